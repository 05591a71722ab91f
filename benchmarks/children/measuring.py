"""Child: the same calls with measuring on and off, block by block in one process.

Two processes would differ by more than what is looked for, because the kernel puts their threads on
other cores. `HYBRIDRT_MEASURE=0` would not do either: without measurements nothing is known about a
function, so its calls take another way through the pool. Here the pool has learned what it needs in
the warm-up, and then the clocks and the books alone are switched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

from benchmarks.children.calls import WAYS
from benchmarks.children.dispatch import Meter, drive
from benchmarks.children.protocol import run_on, serve

if TYPE_CHECKING:
    from hybridrt import AdaptiveThreadPoolExecutor

__all__ = ["measure"]


def measure(*, way: str, loop: str, tasks: int, pairs: int, block: float, warmup: float) -> Mapping[str, Any]:
    """Return microseconds per call of neighbouring blocks, on and off, and the calls booked in them.

    Args:
        way: A name in `WAYS` that is ours.
        loop: `asyncio` or `uvloop`.
        tasks: Standing tasks.
        pairs: Blocks of each side.
        block: Seconds of one block.
        warmup: Seconds of calls before them, with measuring on.
    """
    return run_on(loop, _measure(way, tasks, pairs, block, warmup))


async def _measure(name: str, tasks: int, pairs: int, block: float, warmup: float) -> Mapping[str, Any]:
    async with WAYS[name]() as way:
        if way.executor is None:
            raise ValueError(f"way must be one of ours, which measure, got {name!r}")
        switch = _Switch(way.executor)
        meter = Meter(block=block, blocks=2 * pairs, warmup=warmup, begin=switch.begin)
        await drive(way.call, tasks, meter.turns())
        switch.begin(0)
    return {
        "wall_us": _by_side(meter.wall_us),
        "cpu_us": _by_side(meter.cpu_us),
        "booked": switch.booked,
    }


def _is_on(number: int) -> bool:
    """Tell the side of a block: on, off, off, on, so that a steady drift cancels."""
    return number % 4 in (0, 1)


def _by_side(blocks: list[float]) -> dict[str, list[float]]:
    sides: dict[str, list[float]] = {"on": [], "off": []}
    for number, value in enumerate(blocks, start=1):
        sides["on" if _is_on(number) else "off"].append(value)
    return sides


class _Switch:
    """Turns measuring on and off in a pool that runs, and counts the calls it books meanwhile."""

    def __init__(self, executor: AdaptiveThreadPoolExecutor) -> None:
        self._executor = executor
        self._pool = executor._pool
        self._side = "on"
        self._before = 0
        self.booked = {"on": 0, "off": 0}

    def begin(self, number: int) -> None:
        """Switch to the side of a block."""
        on = _is_on(number)
        if on:
            self._count()
        with self._pool.lock:  # under which calls are booked
            self._pool.measures = on
        if not on:
            self._count()
        self._side = "on" if on else "off"
        self._pool.use_clocks()
        if not on:
            # The clocks stand still instead of reading zero, which would look like calls queued for
            # ages and start overdrafts.
            roster = self._pool.roster
            roster.wall_ns = roster.cpu_ns = roster.queue_ns = repeat(time.perf_counter_ns()).__next__

    def _count(self) -> None:
        calls = sum(function.calls for function in self._executor.statistics().functions)
        self.booked[self._side] += calls - self._before
        self._before = calls


if __name__ == "__main__":
    serve(measure)
