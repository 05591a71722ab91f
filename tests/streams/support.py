"""What the tests of streams share: cancelling at random points, and what must be left then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from hybridrt import Runtime, offload

from ..loop.support import DEADLINE, eventually

__all__ = [
    "POINTS",
    "Thing",
    "as_kind",
    "cancel_at_random_points",
    "cancel_own_task",
    "listed",
    "nothing_runs",
]

POINTS = 200
"""Points at which a test cancels what it tests; `--race-repeats` and the benchmark have more of them."""


class Thing:
    """Something that can be watched."""


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def as_kind(kind: str, fn: Callable[[int], Any], **options: Any) -> Any:
    """Return a function as a stage of that kind; `options` are those of the offloaded one."""

    async def on_loop(number: int) -> Any:
        return fn(number)

    def generator(number: int) -> Iterator[Any]:
        yield fn(number)

    async def async_generator(number: int) -> AsyncIterator[Any]:
        yield fn(number)

    return {
        "def": fn,
        "awaitable": lambda number: on_loop(number),
        "async def": on_loop,
        "generator": generator,
        "async generator": async_generator,
        "offloaded": offload(fn, **options or {"limit": 2}),
    }[kind]


def nothing_runs(runtime: Runtime) -> bool:
    """Return True if no call is queued or runs."""
    now = runtime.statistics()
    return not now.running and not sum(now.queued.values())


async def cancel_at_random_points(
    runtime: Runtime, make: Callable[[], Coroutine[Any, Any, Any]], *, seed: int, points: int = POINTS
) -> None:
    """Start and cancel something again and again, and look for tasks and calls that it leaves.

    Args:
        runtime: What it runs on.
        make: Makes what is started.
        seed: Of the numbers of turns that the loop gets before each cancelling.
        points: How often.
    """
    chance = random.Random(seed)
    before = asyncio.all_tasks()
    for point in range(points):
        task = asyncio.ensure_future(make())
        for _ in range(chance.choice((0, 1, 2, 3, 5, 8, 13, 30))):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.002)
        task.cancel()
        try:
            async with asyncio.timeout(DEADLINE):
                await task
        except asyncio.CancelledError:
            pass
        left = asyncio.all_tasks() - before
        assert not left, f"point {point} left {left}"
    await eventually(lambda: nothing_runs(runtime))
