"""Child: microseconds of a spawn, by `create_task` and by `Runtime.background`, in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import hybridrt
from benchmarks.children.protocol import run_on, serve

__all__ = ["measure"]

_Spawn = Callable[[Any], Any]


def measure(*, loop: str, blocks: int, block: int) -> Mapping[str, Any]:
    """Return percentiles of one spawn and the time per task, by way.

    Args:
        loop: `asyncio` or `uvloop`.
        blocks: Blocks of either way.
        block: Tasks of a block, all alive at once.
    """
    return run_on(loop, _measure(blocks, block))


async def _measure(blocks: int, block: int) -> Mapping[str, Any]:
    spawns: dict[str, list[int]] = {"create_task": [], "background": []}
    whole: dict[str, list[float]] = {"create_task": [], "background": []}
    async with hybridrt.Runtime(background_max=2 * block) as runtime:
        create_task: _Spawn = asyncio.get_running_loop().create_task
        ways = {"create_task": create_task, "background": runtime.background}
        for number in range(2 * blocks + 2):
            way = ("create_task", "background", "background", "create_task")[number % 4]
            times, each = await _block(ways[way], block)
            if number >= 2:  # the first of each warms up
                spawns[way] += times
                whole[way].append(each)
    return {way: _figures(spawns[way], whole[way]) for way in spawns}


async def _block(spawn: _Spawn, count: int) -> tuple[list[int], float]:
    """Spawn tasks that give the loop two turns; return the time of each spawn, and microseconds per task."""
    times, clock = [], time.perf_counter_ns
    begun = clock()
    for _ in range(count):
        coro = _task()
        before = clock()
        spawn(coro)
        times.append(clock() - before)
    for _ in range(4):
        await asyncio.sleep(0)
    return times, (clock() - begun) / count / 1000


async def _task() -> None:
    await asyncio.sleep(0)


def _figures(times: list[int], whole: list[float]) -> Mapping[str, float]:
    ordered, blocks = sorted(times), sorted(whole)
    return {
        "p50": ordered[len(ordered) // 2] / 1000,
        "p99": ordered[int(0.99 * len(ordered))] / 1000,
        "whole": blocks[len(blocks) // 2],
    }


if __name__ == "__main__":
    serve(measure)
