"""`Runtime.warm`: the first calls of a function are made before anybody waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hybridrt import Runtime, RuntimeClosedError, offload
from hybridrt.control.placement import ENOUGH, TRIALS
from hybridrt.placements import PlacementReason, SizePlacement
from hybridrt.testing import ManualClock

from .isolates import Isolates
from .support import MS, US, Work, placement, pure, stop_time


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with Runtime(govern_anyio=False) as runtime:
        yield runtime


@pytest.fixture
async def clock(runtime: Runtime) -> ManualClock:
    return stop_time()


@pytest.fixture
def isolates(monkeypatch: pytest.MonkeyPatch) -> Isolates:
    """Have two isolates that are ready at once."""
    isolates = Isolates(carry=200 * US, cpu=16 * MS)
    monkeypatch.setattr("hybridrt.loop.isolated_call.isolated_call", isolates)
    monkeypatch.setattr("hybridrt.loop.isolated_call.warm_up", isolates.warm_up)
    monkeypatch.setattr("hybridrt.loop.isolated_call.calls_at_once", lambda *_: 2)
    return isolates


def size(offloaded: Any) -> SizePlacement:
    return placement(offloaded).sizes[0]


async def test_a_function_that_is_not_pure_is_called_once_with_the_arguments(runtime: Runtime) -> None:
    calls: list[Any] = []
    await runtime.warm(lambda *args, **kwargs: calls.append((args, kwargs)), 1, two=2)
    assert calls == [((1,), {"two": 2})]


async def test_a_short_pure_function_is_called_until_it_runs_on_the_loop(
    runtime: Runtime, clock: ManualClock
) -> None:
    work = Work(clock, cpu=5 * US)
    fn = pure(work)
    await runtime.warm(fn, "abc")
    assert len(work.threads) == ENOUGH
    await fn("abc")
    assert work.was_here


async def test_a_function_that_holds_the_gil_is_tried_in_isolates_and_runs_once_in_each(
    runtime: Runtime, holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding)
    await runtime.warm(fn, "abc")
    assert (size(fn).where, size(fn).reason) == ("isolate", PlacementReason.HOLDS_GIL)
    assert isolates.calls >= TRIALS + 2


async def test_no_more_calls_run_at_once_than_the_function_allows(
    runtime: Runtime, holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding, limit=1)
    await runtime.warm(fn, "abc")
    assert size(fn).where == "isolate"


async def test_a_short_batched_function_is_called_until_it_runs_on_the_loop(
    runtime: Runtime, clock: ManualClock
) -> None:
    work = Work(clock, cpu=5 * US)
    await runtime.warm(pure(work, batch=8), "abc")
    assert len(work.threads) == ENOUGH


async def test_a_batched_function_that_holds_the_gil_is_called_with_one_item_at_a_time(
    runtime: Runtime, holding: Work, isolates: Isolates
) -> None:
    fn = pure(holding, batch=8)
    await runtime.warm(fn, "abc")
    assert [(each.where, each.size_max) for each in placement(fn).sizes] == [("isolate", 1)]
    assert isolates.calls == TRIALS + 2


async def test_a_function_without_a_choice_of_place_is_called_once(
    runtime: Runtime, clock: ManualClock
) -> None:
    work = Work(clock)
    await runtime.warm(pure(work, where="thread"), "abc")
    await runtime.warm(pure(work, where="inline"), "abc")
    assert len(work.threads) == 2


async def test_what_the_first_call_raises_is_raised(runtime: Runtime) -> None:
    with pytest.raises(ZeroDivisionError):
        await runtime.warm(offload(pure=True)(divmod), 1, 0)


async def test_a_runtime_that_is_not_open_warms_nothing() -> None:
    with pytest.raises(RuntimeClosedError, match="not open"):
        await Runtime().warm(len, "abc")
