"""The two homes of a step: hybridrt, and asyncio's default executor with the same measuring."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from ragkit.runners import OnDefaultExecutor, OnHybridrt, Runner

import hybridrt

NAMES = ("hybridrt", "asyncio")
inside = threading.Semaphore(1)


@hybridrt.offload
def double(value: int) -> int:
    """A step."""
    if value < 0:
        raise ValueError("negative")
    return 2 * value


@hybridrt.offload(lane="test-lane")
def alone() -> bool:
    """Return whether no other call is inside; gives others a chance to be."""
    if not inside.acquire(blocking=False):
        return False
    try:
        threading.Event().wait(0.001)
        return True
    finally:
        inside.release()


@asynccontextmanager
async def runner_named(name: str) -> AsyncIterator[Runner]:
    """Open one of the two."""
    if name == "hybridrt":
        async with hybridrt.Runtime() as runtime:
            yield OnHybridrt(runtime)
    else:
        yield OnDefaultExecutor(lanes=(alone,), batch=4)
        await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.parametrize("name", NAMES)
async def test_a_step_gives_its_result_and_its_error(name: str) -> None:
    async with runner_named(name) as runner:
        assert await runner.call(double, 4) == 8
        with pytest.raises(ValueError, match="negative"):
            await runner.call(double, -1)


@hybridrt.offload(batch=4)
def halve(values: list[int]) -> list[int]:
    """A batched step."""
    assert len(values) <= 4
    return [value // 2 for value in values]


@pytest.mark.parametrize("name", NAMES)
async def test_a_pipe_keeps_order_and_limit(name: str) -> None:
    at_once = most = 0
    full = asyncio.Event()

    async def one(value: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 3:
            full.set()
        await full.wait()  # a call may end before the next item is taken
        result = await runner.call(double, value)
        at_once -= 1
        return result

    async with runner_named(name) as runner:
        results = [result async for result in runner.pipe(range(20), one, halve, limit=3)]
    assert results == list(range(20))
    assert most == 3


@pytest.mark.parametrize("name", NAMES)
async def test_a_batched_step_gets_items_together(name: str) -> None:
    async with runner_named(name) as runner:
        assert [result async for result in runner.pipe(range(9), halve)] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
        (step,) = [step for step in runner.cost().steps if step.name == "halve"]
    assert step.calls < 9


@pytest.mark.parametrize("name", NAMES)
async def test_a_pipe_skips_items_that_fail_or_ends_with_the_first_error(name: str) -> None:
    skipped: list[tuple[int, str]] = []

    async def add(value: int) -> int:
        if value == 7:
            raise LookupError("seven")
        return value - 2

    def skip(item: int, error: Exception) -> None:
        skipped.append((item, str(error)))

    async with runner_named(name) as runner:
        assert [result async for result in runner.pipe([1, 2, 7, 5], add, double, skip=skip)] == [0, 6]
        assert sorted(skipped) == [(-1, "negative"), (7, "seven")]
        with pytest.raises(LookupError, match="seven"):
            _ = [result async for result in runner.pipe([7], add, double)]


@pytest.mark.parametrize("name", NAMES)
async def test_every_call_is_measured_and_a_failed_one_counted(name: str) -> None:
    async with runner_named(name) as runner:
        for value in (1, 2, -1):
            await asyncio.gather(runner.call(double, value), return_exceptions=True)
        (step,) = [step for step in runner.cost().steps if step.name == "double"]
    assert (step.calls, step.failed) == (3, 1)
    assert step.wall > 0
    assert step.queue_wait > 0
    assert step.beta is not None
    assert 0 <= step.beta <= 1


@pytest.mark.parametrize("name", NAMES)
async def test_calls_in_a_lane_never_overlap(name: str) -> None:
    async with runner_named(name) as runner:
        assert all(await asyncio.gather(*(runner.call(alone) for _ in range(10))))


async def test_the_pools_decisions_come_with_their_reasons() -> None:
    async with runner_named("hybridrt") as runner:
        await runner.call(double, 1)
        pool = runner.cost().pool
    assert pool.policy == "demand"
    assert pool.workers >= 1
    assert all(decision.reason for decision in pool.decisions)
