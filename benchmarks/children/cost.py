"""Child: CPU time of an idle runtime, and of the governor's thread under a load that stands.

The governor's clock is read from outside, as it reads those of the workers; where threads have no
readable clock there is nothing to report.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import hybridrt
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.work import Work, calibrate

__all__ = ["LOADS", "measure"]

LOADS: dict[str, tuple[int, float, float]] = {
    "92 calls that wait 50 ms": (92, 0.050, 0.0),
    "256 calls that wait 50 ms": (256, 0.050, 0.0),
    "8 calls that compute 50 ms": (8, 0.0, 0.050),
    "92 calls that wait 50 ms and compute 5 ms": (92, 0.050, 0.005),
    "92 calls that wait 0.5 s": (92, 0.500, 0.0),
}
"""Calls in flight, seconds of waiting and seconds of computing of each."""


def measure(*, job: str, loop: str = "asyncio", **arguments: Any) -> Mapping[str, Any]:
    """Return shares of a core: of the process while it is idle, or of the governor under a load.

    Args:
        job: `bare` (a loop alone), `idle` (with a runtime that has had calls), or a name in `LOADS`.
        loop: `asyncio` or `uvloop`.
        **arguments: Passed on: `seconds` measured, and `warmup` before that.
    """
    if job in LOADS:
        return run_on(loop, _loaded(*LOADS[job], **arguments))
    return run_on(loop, _idle(runtime=job == "idle", **arguments))


async def _idle(*, runtime: bool, seconds: float, warmup: float) -> Mapping[str, Any]:
    async with hybridrt.Runtime() if runtime else nullcontext():
        if runtime:
            await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.001) for _ in range(32)))
        await asyncio.sleep(warmup)
        return {"cpu": await _spent(time.process_time, seconds)}


async def _loaded(
    calls: int, wait: float, compute: float, *, seconds: float, warmup: float
) -> Mapping[str, Any]:
    work = Work(calibrate(compute)) if compute else None
    step = partial(hybridrt.offload(_step), wait, work)
    ended: list[int] = []
    async with hybridrt.Runtime() as runtime, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_repeat(step, ended)) for _ in range(calls)]
        await asyncio.sleep(warmup)
        before = len(ended)
        governor = await _spent(_governor_clock(), seconds)
        running = len(runtime.statistics().running)
        made = len(ended) - before
        for task in tasks:
            task.cancel()
    return {"governor": governor, "calls": made / seconds, "running": running}


async def _spent(clock: Callable[[], float], seconds: float) -> float:
    wall, cpu = time.perf_counter(), clock()
    await asyncio.sleep(seconds)
    return (clock() - cpu) / (time.perf_counter() - wall)


def _step(wait: float, work: Work | None) -> None:
    if wait:
        time.sleep(wait)
    if work is not None:
        work()


async def _repeat(step: Callable[[], Awaitable[None]], ended: list[int]) -> None:
    while True:
        await step()
        ended.append(1)


def _governor_clock() -> Callable[[], float]:
    (governor,) = (thread for thread in threading.enumerate() if thread.name == "hybridrt-governor")
    assert governor.ident is not None
    clock = time.pthread_getcpuclockid(governor.ident)
    return partial(time.clock_gettime, clock)


if __name__ == "__main__":
    serve(measure)
