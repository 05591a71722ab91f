"""First calls of a pure function: a few run, the others are held until it is known where they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import hybridrt
from hybridrt import OffloadTimeoutError, Runtime, offload
from hybridrt.control.placement import Choice
from hybridrt.loop.first_calls import HELD_MAX, LOOK, PATIENCE, TRIED, FirstCalls, Held, HeldCalls
from hybridrt.loop.router import Router
from hybridrt.placements import PlacementReason
from hybridrt.values import Kind

from .support import Gate, Timers, eventually, turns


@pytest.fixture
def blind_governor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the governor from looking at calls, so that none is seen to wait."""
    monkeypatch.setattr("hybridrt.governor.governor.sample_pool", lambda *_: False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at held calls at each turn of the loop, and never lose patience."""
    monkeypatch.setattr("hybridrt.loop.first_calls.LOOK", 0.0)
    monkeypatch.setattr("hybridrt.loop.first_calls.PATIENCE", 1e9)


def unknown(**known: Any) -> Any:
    """Return what is known of a function that nobody knows."""
    return SimpleNamespace(
        **{"kind": Kind.UNKNOWN, "leaves_gil": False, "slow_start": 1, "name": "f"} | known
    )


class Verdict:
    """What a test says is known."""

    there = False

    def __call__(self) -> bool:
        return self.there


async def crowd(first: FirstCalls, calls: int, profile: Any, verdict: Callable[[], bool]) -> list[Held]:
    """Let calls begin; return those that are held."""
    of_loop = HeldCalls(asyncio.get_running_loop())
    return [held for _ in range(calls) if (held := first.enter(of_loop, profile, verdict)) is not None]


def let_go(held: list[Held]) -> list[bool]:
    """Return what the calls that may go on were told."""
    return [each.future.result() for each in held if each.future.done()]


async def test_two_calls_of_an_unknown_function_run_and_the_others_are_held() -> None:
    first = FirstCalls()
    held = await crowd(first, 32, unknown(), Verdict())
    assert (first.running, first.held, let_go(held)) == (TRIED, 30, [])


async def test_each_call_that_ends_lets_the_one_that_has_waited_for_longest_go_on() -> None:
    first = FirstCalls()
    held = await crowd(first, 5, unknown(), Verdict())
    first.leave()
    assert [each.future.done() for each in held] == [True, False, False]
    assert (held[0].future.result(), first.running) == (True, TRIED)


async def test_the_verdict_reaches_all_that_wait_and_gives_them_no_place() -> None:
    first, verdict = FirstCalls(), Verdict()
    held = await crowd(first, 32, unknown(), verdict)
    verdict.there = True
    first.leave()
    assert (let_go(held), first.running) == ([False] * 30, TRIED - 1)


async def test_a_look_finds_those_whose_verdict_is_there_behind_others() -> None:
    first, verdict = FirstCalls(), Verdict()
    others = await crowd(first, TRIED + 2, unknown(), Verdict())
    held = await crowd(first, 2, unknown(), verdict)
    verdict.there = True
    first.look(0.0)
    assert (let_go(held), let_go(others)) == ([False, False], [])


@pytest.mark.parametrize("known", [{"kind": Kind.WAITING}, {"leaves_gil": True}])
async def test_calls_that_wait_or_leave_the_gil_are_not_held(known: dict[str, Any]) -> None:
    first = FirstCalls()
    assert await crowd(first, 32, unknown(**known), Verdict()) == []


async def test_as_many_more_run_as_were_seen_to_wait() -> None:
    first, profile = FirstCalls(), unknown()
    held = await crowd(first, 32, profile, Verdict())
    profile.slow_start = 8
    first.look(0.0)
    assert (first.running, len(let_go(held))) == (8, 6)


async def test_one_more_runs_if_none_has_ended_for_too_long() -> None:
    """Those that run may wait for it in a way that nobody sees."""
    first = FirstCalls()
    held = await crowd(first, 32, unknown(), Verdict())
    for now, gone in ((0.0, 0), (PATIENCE - 0.1, 0), (PATIENCE, 1), (PATIENCE + 0.1, 1), (2 * PATIENCE, 2)):
        first.look(now)
        assert len(let_go(held)) == gone


async def test_only_so_many_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridrt.loop.first_calls.HELD_MAX", 10)
    assert HELD_MAX > 10
    first = FirstCalls()
    await crowd(first, 32, unknown(), Verdict())
    assert (first.running, first.held) == (22, 10)


async def test_a_place_of_a_call_cancelled_in_the_same_turn_goes_to_the_next() -> None:
    first = FirstCalls()
    held = await crowd(first, 4, unknown(), Verdict())
    waiting = [asyncio.ensure_future(each.wait(None, None, None)) for each in held]
    await turns()
    first.leave()
    waiting[0].cancel()
    assert await waiting[1] is True
    assert (waiting[0].cancelled(), first.running, first.held) == (True, TRIED, 0)


async def test_a_held_call_whose_loop_was_closed_passes_its_place_on() -> None:
    first = FirstCalls()
    await crowd(first, TRIED, unknown(), Verdict())

    def hold_on_a_loop_that_ends() -> None:
        async def hold() -> None:
            await crowd(first, 1, unknown(), Verdict())

        asyncio.run(hold())

    thread = threading.Thread(target=hold_on_a_loop_that_ends)
    await asyncio.to_thread(_run, thread)
    held = await crowd(first, 1, unknown(), Verdict())
    first.leave()
    assert (let_go(held), first.running, first.held) == ([True], TRIED, 0)


def _run(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


# ---------------------------------------------------------------------- through `offload`


def first_calls(fn: Any) -> FirstCalls:
    """Return what holds the calls of an offloaded function."""
    router: Router = fn._router
    return router.first


def decide(fn: Any) -> None:
    """Have all sizes of a function decided: they run in threads."""
    for size_class in fn._router._size_classes.values():
        size_class.choice = Choice(where="thread", reason=PlacementReason.CARRYING)


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_a_crowd_of_first_calls_gets_all_its_results() -> None:
    async with Runtime(), Gate() as gate:
        fn = offload(gate, pure=True)
        calls = [asyncio.ensure_future(fn(number)) for number in range(32)]
        await gate.entered()
        assert (first_calls(fn).running, fn._router.statistics().held) == (TRIED, 30)  # type: ignore[union-attr]
        gate.release()
        assert await asyncio.gather(*calls) == list(range(32))
        assert (first_calls(fn).running, first_calls(fn).held) == (0, 0)


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_held_calls_take_the_verdict_while_the_first_ones_still_run() -> None:
    async with Runtime() as runtime, Gate() as gate:
        fn = offload(gate, pure=True)
        calls = [asyncio.ensure_future(fn(number)) for number in range(8)]
        await gate.entered()
        decide(fn)
        await eventually(lambda: first_calls(fn).held == 0)
        assert first_calls(fn).running == TRIED
        assert runtime.statistics().submitted >= TRIED
        gate.release()
        assert await asyncio.gather(*calls) == list(range(8))


def noting(gate: Gate) -> tuple[Any, list[int]]:
    """Return a pure function that notes what it is called with and waits at the gate, and its notes."""
    ran: list[int] = []

    def note(number: int) -> None:
        ran.append(number)
        gate(number)

    return offload(note, pure=True), ran


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_a_held_call_that_is_cancelled_never_runs() -> None:
    async with Runtime(), Gate() as gate:
        note, ran = noting(gate)
        calls = [asyncio.ensure_future(note(number)) for number in range(4)]
        await gate.entered()
        calls[3].cancel()
        await asyncio.wait({calls[3]})
        assert first_calls(note).held == 1
        gate.release()
        await asyncio.gather(*calls[:3])
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.parametrize("option", ["timeout", "queue_timeout"])
@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_the_times_of_a_held_call_run(option: str, timers: Timers) -> None:
    async with Runtime(), Gate() as gate:
        plain = offload(gate, pure=True)
        calls = [asyncio.ensure_future(plain(number)) for number in range(TRIED)]
        await gate.entered()
        timed = asyncio.ensure_future(plain.options(**{option: 60.0})(TRIED))
        await turns()
        assert first_calls(plain).held == 1
        timers.fire()
        with pytest.raises(OffloadTimeoutError, match=f"did not start within its {option} of 60.0 s") as told:
            await timed
        assert not told.value.started
        gate.release()
        await asyncio.gather(*calls)


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_a_runtime_that_closes_lets_its_held_calls_go_on() -> None:
    async with Gate() as gate:
        async with Runtime():
            fn = offload(gate, pure=True)
            calls = [asyncio.ensure_future(fn(number)) for number in range(8)]
            await gate.entered()
            gate.release()
        assert await asyncio.gather(*calls) == list(range(8))


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_held_calls_beyond_the_deadline_of_a_runtime_end_with_it() -> None:
    async with Gate() as gate:
        runtime = Runtime(shutdown_timeout=0.0)
        async with runtime:
            fn = offload(gate, pure=True)
            calls = [asyncio.ensure_future(fn(number)) for number in range(8)]
            await gate.entered()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error).__name__ for error in done} == {"RuntimeClosedError"}
        gate.release()


async def test_calls_in_a_lane_are_not_held() -> None:
    async with Runtime(), Gate() as gate:
        fn = offload(gate, pure=True, lane="one")
        calls = [asyncio.ensure_future(fn(number)) for number in range(8)]
        await gate.entered()
        assert (first_calls(fn).running, first_calls(fn).held) == (0, 0)
        gate.release()
        assert await asyncio.gather(*calls) == list(range(8))


async def test_calls_that_wait_for_each_other_are_seen_to_wait_and_all_start() -> None:
    """All of them must be inside before any may leave."""
    inside = threading.Barrier(6)

    @offload(pure=True)
    def meet(number: int) -> int:
        inside.wait()
        return number

    async with Runtime():
        assert await asyncio.gather(*(meet(number) for number in range(6))) == list(range(6))


def test_held_calls_are_looked_at_every_few_milliseconds() -> None:
    assert 0.0 < LOOK <= 0.01


async def test_any_number_of_held_calls_of_a_closed_loop_give_their_places_on() -> None:
    first, dead = FirstCalls(), asyncio.new_event_loop()
    of_loop = HeldCalls(dead)
    held = [first.enter(of_loop, unknown(), Verdict()) for _ in range(2_000)]
    assert held.count(None) == TRIED
    here = await crowd(first, 1, unknown(), Verdict())
    dead.close()
    for _ in range(TRIED):
        first.leave()
    assert (first.running, first.held, let_go(here)) == (1, 0, [True])


@pytest.mark.usefixtures("blind_governor", "impatient")
async def test_a_deadline_ends_calls_that_are_held() -> None:
    async with Runtime(), Gate() as gate:
        note, ran = noting(gate)
        calls = [asyncio.ensure_future(note(number)) for number in range(2)]
        await gate.entered()
        async with hybridrt.deadline(3600.0) as scope:
            held = asyncio.ensure_future(note(2))
            await eventually(lambda: first_calls(note).held == 1)
            scope._end_bounded()
        with pytest.raises(OffloadTimeoutError, match=r"did not start within its deadline of 3600.0 s"):
            await held
        assert first_calls(note).held == 0
        gate.release()
        await asyncio.gather(*calls)
    assert sorted(ran) == [0, 1]
