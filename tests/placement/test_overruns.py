"""Calls on the loop that took too long: which are told, and what follows."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hybridrt.loop.binding import current_binding
from hybridrt.loop.inline import TURN_NS, Turn
from hybridrt.measure.gil import blocks
from hybridrt.observe.placement import INLINE_MAX_NS, PAUSE
from hybridrt.placements import PlacementReason
from hybridrt.testing import ManualClock

from ..loop.support import turns
from .support import MS, US, Work, learn, placement, pure


def count_looks() -> list[int]:
    """Return a list that grows with each look at the CPU clock of the loop's thread."""
    loop_binding, looks = current_binding(), list[int]()
    cpu_ns = loop_binding.cpu_ns

    def look() -> int:
        looks.append(cpu_ns())
        return looks[-1]

    loop_binding.cpu_ns = look
    return looks


async def test_a_function_that_suddenly_takes_long_stalls_the_loop_once(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    await short("abc")
    clock.advance(0.9)  # the loop is idle
    work.cpu = 0.5
    await short("abc")
    assert work.was_here
    await learn(short, "abc", calls=20)
    here = threading.get_ident()
    assert work.threads.count(here) == 2
    told = placement(short)
    assert told.overruns == 1
    assert told.longest_overrun == pytest.approx(0.5)


async def test_after_an_overrun_the_next_calls_go_to_a_worker_and_then_back(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    work.cpu = 1 * MS
    await short("abc")
    work.cpu = 5 * US
    told = placement(short)
    assert told.paused == PAUSE
    assert (told.sizes[0].where, told.sizes[0].reason) == ("thread", PlacementReason.OVERRUN)
    for _ in range(PAUSE):
        await short("abc")
        assert not work.was_here
    await short("abc")
    assert work.was_here


async def test_the_thread_is_looked_at_once_in_a_turn_that_lasts(clock: ManualClock) -> None:
    short = pure(Work(clock, cpu=5 * US))
    await learn(short, "abc")
    await turns(2)
    looks = count_looks()
    for _ in range(60):
        await short("abc")
    assert len(looks) == 1
    await turns(2)
    await short("abc")  # the loop may have slept
    assert len(looks) == 2


async def test_after_a_call_that_could_not_be_told_the_next_is_known_exactly(clock: ManualClock) -> None:
    work = Work(clock, cpu=5 * US)
    short = pure(work)
    await learn(short, "abc")
    for _ in range(20):
        await short("abc")
    clock.advance(390 * US)  # kept from a core
    work.cpu = 3 * INLINE_MAX_NS / 1e9
    await short("abc")
    assert placement(short).overruns == 0
    await short("abc")
    assert placement(short).overruns == 1


async def test_what_was_given_up_is_looked_at_again_in_the_same_turn_too() -> None:
    turn = Turn(asyncio.get_running_loop())
    turn.mark(1_000, 0)
    turn.notice()
    assert turn.mark_until_ns == 1_000 + TURN_NS
    turn.mark_until_ns = 0
    turn.wait(1)
    turn._begin()  # room is taken, so the turn is noticed again
    assert turn.mark_until_ns == 0


async def test_a_call_that_was_kept_from_a_core_is_no_overrun(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    work.wait = 5 * MS
    await short("abc")
    work.wait = 0.0
    await short("abc")
    assert work.was_here
    assert placement(short).overruns == 0


@pytest.mark.skipif(blocks() is None, reason="the platform does not count waits")
async def test_a_call_whose_thread_waited_for_nothing_is_no_overrun_however_long_it_took(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridrt.loop.inline.blocks", lambda: 7)  # else the governor may have the GIL
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    work.wait = 500 * MS
    await short("abc")
    assert placement(short).overruns == 0


@pytest.mark.blocks_the_loop
async def test_a_call_that_blocks_the_loop_is_an_overrun(clock: ManualClock) -> None:
    work, closed = Work(clock), threading.Event()

    def block(text: str) -> Any:
        if work.wait:
            closed.wait(1 * MS)
        return work(text)

    short = pure(block)
    await learn(short, "abc")
    work.wait = 500 * MS
    await short("abc")
    assert work.was_here
    assert placement(short).overruns == 1


async def test_a_function_whose_first_calls_did_not_wait_hardly_waits_on_the_loop(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(clock)
    waited = 0
    monkeypatch.setattr("hybridrt.loop.inline.blocks", lambda: waited)
    looked_up = pure(work)
    await learn(looked_up, "abc")
    here = list[bool]()
    for number in range(200):
        work.wait = 0.0 if number % 3 else 40 * MS
        waited += work.wait > 0
        await looked_up("abc")
        if work.wait:
            here.append(work.was_here)
    assert here[0]
    assert sum(here) <= 12
