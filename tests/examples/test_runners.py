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
        yield OnDefaultExecutor(lanes=(alone,))
        await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.parametrize("name", NAMES)
async def test_a_step_gives_its_result_and_its_error(name: str) -> None:
    async with runner_named(name) as runner:
        assert await runner.call(double, 4) == 8
        with pytest.raises(ValueError, match="negative"):
            await runner.call(double, -1)


@pytest.mark.parametrize("name", NAMES)
async def test_map_keeps_order_and_limit(name: str) -> None:
    at_once = most = 0

    async def one(value: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        result = await runner.call(double, value)
        at_once -= 1
        return result

    async with runner_named(name) as runner:
        assert await runner.map(one, range(20), limit=3) == list(range(0, 40, 2))
    assert most == 3


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
