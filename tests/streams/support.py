"""What the tests of streams share: cancelling at random points, and what must be left then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from hybridrt import Runtime

from ..loop.support import DEADLINE, eventually

__all__ = ["POINTS", "cancel_at_random_points", "nothing_runs"]

POINTS = 200
"""Points at which a test cancels what it tests; `--race-repeats` and the benchmark have more of them."""


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
