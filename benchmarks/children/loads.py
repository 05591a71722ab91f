"""Child: one load through one pool, driven closed-loop by standing tasks."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from benchmarks.children.cpu import CpuMeter
from benchmarks.children.pools import Pool, Stamps, open_pool
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.pulse import Pulse
from benchmarks.children.records import Records
from benchmarks.children.standing import end
from benchmarks.children.workloads import Phases, open_load

__all__ = ["drive", "measure", "timed"]


_WARMUP_MOST = 5.0


def measure(
    *,
    load: str,
    pool: str,
    size: int | None,
    loop: str,
    tasks: int,
    seconds: float,
    warmup: float = 0.0,
) -> Mapping[str, Any]:
    """Return the figures of a run, one set per phase of the load.

    Args:
        load: A name in `workloads.LOADS`.
        pool: A name that `open_pool` knows.
        size: Threads of a static pool.
        loop: `asyncio` or `uvloop`.
        tasks: Standing tasks, each with one call in flight.
        seconds: Seconds that count, divided among the phases.
        warmup: Seconds that do not, longer if fewer calls than `size` came back in them: a pool that
            is too large takes its time for the first. 0 counts the cold start.
    """
    with open_load(load) as phases:
        return run_on(loop, _measure(phases, pool, size, tasks, warmup, seconds))


async def _measure(
    phases: Phases, name: str, size: int | None, tasks: int, warmup: float, seconds: float
) -> Mapping[str, Any]:
    async with open_pool(name, size) as pool:
        run = Run(phases, seconds)
        standing = [asyncio.create_task(drive(run, pool)) for _ in range(tasks)]
        if warmup:
            await _warm_up(run, warmup, size or 0)
        run.count()
        meter, pulse = CpuMeter(), Pulse()
        pulse.start()
        await asyncio.sleep(seconds)
        cpu = meter.read()
        pulse.stop()
        told = {"threads_end": threading.active_count(), "statistics": pool.statistics()}
        await end(standing)
    return {
        "phases": run.summaries(),
        **cpu,
        "threads_peak": pulse.threads,
        "loop_delay_p99": pulse.quantile(0.99),
        "loop_delay_max": pulse.quantile(1.0),
        **told,
    }


async def drive(run: Run, pool: Pool) -> None:
    """Submit the phase's function again and again until the run is over."""
    clock, submit = time.perf_counter, pool.submit
    while (submitted := clock()) < run.ends:
        phase = run.phase(submitted)
        began, ended = await submit(run.calls[phase])
        run.records[phase].add(submitted, began, ended, clock())


async def _warm_up(run: Run, seconds: float, calls: int) -> None:
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    # An event would be one thing more to look at with every call.
    while run.returned() < calls and time.perf_counter() < began + _WARMUP_MOST:  # noqa: ASYNC110
        await asyncio.sleep(seconds / 10)


class Run:
    """The phases of a run, their times and what is recorded of their calls."""

    def __init__(self, phases: Phases, seconds: float) -> None:
        self.calls = [timed(call, f"phase{number}") for number, call in enumerate(phases)]
        self.records = [Records() for _ in phases]
        self.ends = math.inf
        self._counts = math.inf
        self._span = seconds / len(phases)

    def count(self) -> None:
        """Let the calls count from now on; what came before was the warm-up."""
        self._counts = time.perf_counter()
        self.ends = self._counts + self._span * len(self.calls)

    def returned(self) -> int:
        """Return how many calls came back."""
        return sum(map(len, self.records))

    def phase(self, now: float) -> int:
        """Return the number of the phase at that time."""
        if now < self._counts:
            return 0
        return min(len(self.calls) - 1, int((now - self._counts) / self._span))

    def summaries(self) -> list[Mapping[str, Any]]:
        """Return the figures of each phase, of the calls that came back while it lasted."""
        return [records.summary(*self._window(number)) for number, records in enumerate(self.records)]

    def _window(self, number: int) -> tuple[float, float]:
        begin = self._counts + number * self._span
        return begin, begin + self._span


def timed(call: Callable[[], object], name: str) -> Callable[[], Stamps]:
    """Return a function that makes the call and gives its times.

    Each has a code object of its own, as functions that users write do: pools that keep a profile
    per function must not take the phases of a load for one.
    """

    def run() -> Stamps:
        began = clock()
        call()
        return began, clock()

    clock = time.perf_counter
    distinct = FunctionType(run.__code__.replace(co_name=name), run.__globals__, name, None, run.__closure__)
    return distinct


if __name__ == "__main__":
    serve(measure)
