"""Under `auto` a pure function moves between threads and isolates by what it costs there."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable

import pytest

from hybridrt import NotPortableError, Runtime, WorkerLostError, offload
from hybridrt.control.placement import AGAIN, AGAIN_FELT, TRIALS, UNCLASSED
from hybridrt.errors import IsolateStartError
from hybridrt.placements import PlacementReason, SizePlacement
from hybridrt.pool.rebalance import no_isolate_free
from hybridrt.testing import ManualClock

from .isolates import Isolates, show_holding, show_releasing
from .support import MS, US, Work, learn, placement, pure


@pytest.fixture
def isolates(monkeypatch: pytest.MonkeyPatch) -> Isolates:
    isolates = Isolates(carry=200 * US, cpu=16 * MS)
    monkeypatch.setattr("hybridrt.loop.isolated_call.isolated_call", isolates)
    monkeypatch.setattr("hybridrt.loop.isolated_call.warm_up", isolates.warm_up)
    return isolates


def standing(offloaded: object) -> SizePlacement:
    return placement(offloaded).sizes[0]  # type: ignore[arg-type]  # of whatever signature


async def test_a_function_that_holds_the_gil_moves_to_an_isolate(holding: Work, isolates: Isolates) -> None:
    fn = pure(holding)
    await fn("abc")
    assert len(holding.threads) == 1
    await learn(fn, "abc", calls=TRIALS + 2)
    assert isolates.calls == TRIALS + 2
    assert (standing(fn).where, standing(fn).reason) == ("isolate", PlacementReason.HOLDS_GIL)
    assert standing(fn).tried
    assert placement(fn).isolate_calls == TRIALS + 2


async def test_a_call_for_which_an_isolate_was_started_tells_nothing_of_the_next(
    holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=1 + TRIALS)
    assert standing(fn).reason is PlacementReason.TRIAL
    await fn("abc")
    assert standing(fn).reason is PlacementReason.HOLDS_GIL


async def test_a_function_that_is_not_pure_never_moves(holding: Work, isolates: Isolates) -> None:
    await learn(offload(holding), "abc", calls=20)
    assert isolates.calls == 0


async def test_a_function_that_releases_the_gil_stays_in_threads(
    clock: ManualClock, isolates: Isolates
) -> None:
    work = Work(clock, cpu=16 * MS)
    show_releasing(work)
    fn = pure(work)
    await learn(fn, "abc", calls=20)
    assert isolates.calls == 0
    assert standing(fn).reason is PlacementReason.RELEASES_GIL


async def test_a_function_that_costs_more_to_carry_than_to_run_comes_back(
    holding: Work, isolates: Isolates
) -> None:
    isolates.carry = 20 * MS
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 10)
    assert (standing(fn).where, standing(fn).reason) == ("thread", PlacementReason.CARRYING)
    assert isolates.calls <= TRIALS + 1


async def test_a_short_function_never_starts_an_isolate(clock: ManualClock, isolates: Isolates) -> None:
    work = Work(clock, cpu=150 * US)
    show_holding(work)
    await learn(pure(work), "abc", calls=2 * AGAIN)
    assert isolates.calls == 0


async def test_a_function_comes_back_when_carrying_becomes_dear(holding: Work, isolates: Isolates) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 8)
    isolates.carry = 30 * MS
    before = len(holding.threads)
    await learn(fn, "abc", calls=40)
    assert standing(fn).where == "thread"
    assert len(holding.threads) > before


async def test_a_function_that_becomes_short_comes_back_and_ends_on_the_loop(
    holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 8)
    isolates.cpu, holding.cpu = 5 * US, 5 * US
    await learn(fn, "abc", calls=60)
    assert standing(fn).where == "inline"
    assert holding.was_here


async def test_now_and_then_one_call_in_an_isolate_is_made_in_a_thread(
    holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=2 * AGAIN_FELT)
    assert standing(fn).where == "isolate"
    assert len(holding.threads) == 2


async def test_a_function_never_seen_with_the_gil_is_given_time_to_show_what_it_does(
    clock: ManualClock, isolates: Isolates
) -> None:
    work = Work(clock, cpu=2 * MS)
    isolates.cpu = 2 * MS
    fn = pure(work)
    await learn(fn, "abc", calls=UNCLASSED + TRIALS + 3)
    assert standing(fn).reason is PlacementReason.SHARES_GIL
    before = len(work.threads)
    await learn(fn, "abc", calls=AGAIN)
    assert 8 < len(work.threads) - before <= 32
    show_releasing(work)
    await learn(fn, "abc", calls=16)
    assert (standing(fn).where, standing(fn).reason) == ("thread", PlacementReason.RELEASES_GIL)


async def test_now_and_then_carrying_is_tried_again(holding: Work, isolates: Isolates) -> None:
    isolates.carry = 20 * MS
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 10)
    tried = isolates.calls
    isolates.carry = 100 * US
    await learn(fn, "abc", calls=8 * AGAIN)
    assert isolates.calls > tried
    assert standing(fn).where == "isolate"


@pytest.mark.blocks_the_loop
async def test_the_time_of_a_call_that_is_made_again_in_a_thread_runs_from_its_beginning(
    holding: Work, isolates: Isolates, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, fn = asyncio.get_running_loop(), pure(holding)
    await learn(fn, "abc", calls=TRIALS + 8)
    assert standing(fn).where == "isolate"
    isolates.loses = "it is a lambda"
    delays: list[float] = []

    def note(delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        if getattr(callback, "__name__", "") == "expire":
            delays.append(delay)
            time.sleep(0.002)  # uvloop's clock has milliseconds
        return arm(delay, callback, *args)

    arm = loop.call_later
    monkeypatch.setattr(loop, "call_later", note)
    await fn.options(timeout=3600.0)("abc")
    first, again = delays
    assert again < first


async def test_a_function_that_cannot_be_carried_stays_in_threads_and_says_why(
    holding: Work, isolates: Isolates
) -> None:
    isolates.refuses = "it is a lambda"
    fn = pure(holding)
    await learn(fn, "abc", calls=20)
    assert len(holding.threads) == 20
    assert placement(fn).not_portable == "it is a lambda"
    assert standing(fn).reason is PlacementReason.NOT_PORTABLE


async def test_a_function_of_which_one_call_could_not_be_carried_is_carried_again_later(
    holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 2)
    isolates.loses = "its module could not be imported"
    await fn("abc")
    isolates.loses = ""
    await learn(fn, "abc", calls=200)
    assert (standing(fn).where, placement(fn).not_portable) == ("thread", "its module could not be imported")
    await learn(fn, "abc", calls=100)
    assert (standing(fn).where, placement(fn).not_portable) == ("isolate", None)


async def test_a_function_that_can_never_be_carried_is_tried_at_growing_distances(
    holding: Work, isolates: Isolates
) -> None:
    isolates.loses = "it is a generator"
    fn = pure(holding)
    tried = list[int]()
    for _ in range(9):
        await learn(fn, "abc", calls=100)
        tried.append(isolates.calls)
    assert tried == [1, 1, 2, 2, 2, 2, 2, 3, 3]
    assert placement(fn).not_portable == "it is a generator"


async def test_a_result_that_cannot_be_carried_back_costs_one_more_call(
    holding: Work, isolates: Isolates
) -> None:
    isolates.loses = "it is a generator"
    fn = pure(holding)
    await learn(fn, "abc", calls=20)
    assert isolates.calls == 1
    assert len(holding.threads) == 20


NOT_STARTED = [
    pytest.param(IsolateStartError(errno.EMFILE, "none could be started"), id="none could be started"),
    pytest.param(WorkerLostError("it ended at once", started=False), id="they end at once"),
]


@pytest.mark.parametrize("error", NOT_STARTED)
async def test_a_call_for_which_no_isolate_starts_is_made_in_a_thread_and_the_next_ones_try_again(
    holding: Work, isolates: Isolates, error: Exception
) -> None:
    isolates.fails = error
    fn = pure(holding)
    await learn(fn, "abc", calls=1 + 5)
    assert (len(holding.threads), isolates.calls) == (6, 5)
    assert placement(fn).not_portable is None
    isolates.fails = None
    await learn(fn, "abc", calls=TRIALS + 2)
    assert len(holding.threads) == 6
    assert standing(fn).where == "isolate"


async def test_a_function_whose_isolates_end_as_they_start_is_not_tried_there_for_each_call(
    holding: Work, isolates: Isolates
) -> None:
    isolates.fails = WorkerLostError("it ended at once", started=False)
    fn = pure(holding)
    await learn(fn, "abc", calls=1 + 100)
    assert (len(holding.threads), isolates.calls) == (101, 8)
    assert placement(fn).not_portable == "it ended at once"
    isolates.fails = None
    await learn(fn, "abc", calls=300)
    assert (standing(fn).where, placement(fn).not_portable) == ("isolate", None)


@pytest.mark.parametrize("error", NOT_STARTED)
async def test_what_is_forced_into_an_isolate_and_finds_none_raises(
    holding: Work, isolates: Isolates, error: Exception
) -> None:
    isolates.fails = error
    with pytest.raises(type(error)):
        await pure(holding, where="isolate")("abc")
    assert not holding.threads


@pytest.mark.parametrize("error", [WorkerLostError("it ended"), OSError(errno.ENOENT, "the function's own")])
async def test_a_call_that_may_have_run_in_an_isolate_is_not_made_again(
    holding: Work, isolates: Isolates, error: Exception
) -> None:
    isolates.fails = error
    fn = pure(holding)
    await fn("abc")
    with pytest.raises(type(error)):
        await fn("abc")
    assert len(holding.threads) == 1


async def test_what_is_forced_into_an_isolate_and_cannot_be_carried_raises(
    holding: Work, isolates: Isolates
) -> None:
    isolates.refuses = "it is a lambda"
    with pytest.raises(NotPortableError, match="it is a lambda"):
        await pure(holding, where="isolate")("abc")
    assert not holding.threads


async def test_where_isolate_carries_the_first_call_already(holding: Work, isolates: Isolates) -> None:
    fn = pure(holding, where="isolate", isolation="process")
    await learn(fn, "abc", calls=4)
    assert (isolates.calls, isolates.isolation) == (4, "process")
    assert standing(fn).reason is PlacementReason.FORCED
    assert not isolates.spills


async def test_what_may_run_anywhere_runs_in_a_thread_if_no_isolate_comes_free(
    holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await learn(fn, "abc", calls=TRIALS + 2)
    assert isolates.spills
    threads = len(holding.threads)
    isolates.fails = no_isolate_free()
    assert await fn("abc") == "abc"
    assert len(holding.threads) == threads + 1
    assert standing(fn).where == "isolate"


async def test_where_thread_keeps_a_pure_function_in_threads(holding: Work, isolates: Isolates) -> None:
    await learn(pure(holding, where="thread"), "abc", calls=20)
    assert isolates.calls == 0


@pytest.mark.slow
async def test_an_isolated_call_really_runs_elsewhere() -> None:
    async with Runtime(govern_anyio=False):
        elsewhere = offload(pure=True, where="isolate", isolation="process")(os.getpid)
        assert await elsewhere() != os.getpid()
