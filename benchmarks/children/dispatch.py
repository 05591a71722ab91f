"""Child: what one call costs, one at a time and with standing tasks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from benchmarks.children.calls import WAYS
from benchmarks.children.protocol import run_on, serve

__all__ = ["Meter", "Mode", "drive", "measure"]

_STRIDE = 64
"""Calls between two looks at the clock, so that looking costs about 1 ns a call."""


class Mode(TypedDict):
    """How the calls are made: by how many standing tasks, and whether all threads share a core."""

    name: str
    tasks: int
    one_core: bool


def measure(
    *, way: str, loop: str, modes: Sequence[Mode], block: float, blocks: int, warmup: float
) -> Mapping[str, Any]:
    """Return microseconds of wall and CPU time per call, for each block of each mode.

    Args:
        way: A name in `WAYS`.
        loop: `asyncio` or `uvloop`.
        modes: What to measure, in this order.
        block: Seconds of one block.
        blocks: Blocks that count.
        warmup: Seconds of calls before them that do not.
    """
    return run_on(loop, _measure(way, modes, lambda: Meter(block=block, blocks=blocks, warmup=warmup)))


async def _measure(name: str, modes: Sequence[Mode], meters: Callable[[], Meter]) -> Mapping[str, Any]:
    async with WAYS[name]() as way:
        if (answer := await way.call(7)) != 7:
            raise RuntimeError(f"{name} must return what its function returns, 7, got {answer!r}")
        results = {}
        for mode in modes:
            if mode["one_core"]:
                _stay_on_one_core()
            meter = meters()
            await drive(way.call, mode["tasks"], meter.turns())
            results[mode["name"]] = {"wall_us": meter.wall_us, "cpu_us": meter.cpu_us}
        return {"modes": results}


async def drive(call: Callable[[int], Awaitable[int]], tasks: int, turns: Iterator[int]) -> None:
    """Await calls from `tasks` tasks that live until the turns, which they share, are used up."""

    async def stand() -> None:
        for turn in turns:
            await call(turn)

    await asyncio.gather(*(stand() for _ in range(tasks)))


class Meter:
    """Hands out turns to all tasks and times them block by block.

    In the steady state a turn is taken when a call has ended, so the rate of turns is the rate of
    calls. Starting the tasks falls into the warm-up, and the last calls end after the last block.
    `begin` is told the number of each block before it; 0 is the warm-up.
    """

    def __init__(
        self, *, block: float, blocks: int, warmup: float, begin: Callable[[int], object] | None = None
    ) -> None:
        self._spans = [warmup] + [block] * blocks
        self._begin = begin
        self.wall_us: list[float] = []
        self.cpu_us: list[float] = []

    def turns(self) -> Iterator[int]:
        """Yield numbers until the time of the last block is over."""
        for number, span in enumerate(self._spans):
            if self._begin is not None:
                self._begin(number)
            wall, cpu, count = time.perf_counter(), time.process_time(), 0
            elapsed = 0.0
            while elapsed < span or not count:  # a block may pass before its first turn
                yield from range(_STRIDE)
                count += _STRIDE
                elapsed = time.perf_counter() - wall
            if number:
                self.wall_us.append(elapsed * 1e6 / count)
                self.cpu_us.append((time.process_time() - cpu) * 1e6 / count)


def _stay_on_one_core() -> None:
    """Move every thread to the first usable core; threads to come inherit it. Linux only."""
    first = {min(os.sched_getaffinity(0))}
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), first)


if __name__ == "__main__":
    serve(measure)
