"""Child: the memory of a process with an idle pool, and what calls leave behind.

Nothing is imported to look at memory where the system can be asked without: what a candidate
imports is a part of its price, and an import made here would hide it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from benchmarks.children.calls import WAYS, nothing
from benchmarks.children.protocol import run_on, serve

__all__ = ["measure"]

_STANDING = 256


def measure(*, job: str, way: str, **arguments: Any) -> Mapping[str, Any]:
    """Return samples of the process: of an `idle` pool, or of its `growth` by calls.

    Args:
        job: `idle` or `growth`.
        way: A name in `WAYS`; for idle also `bare`, for growth also `submit` and `submit, stdlib`.
        **arguments: Passed on: `calls`, and `rest` (idle, seconds) or `every` (growth, calls).
    """
    if job == "idle":
        return run_on("asyncio", _idle(way, **arguments))
    if way.startswith("submit"):
        return {"samples": _grow_submitting(way, **arguments)}
    return run_on("asyncio", _grow(way, **arguments))


async def _idle(way: str, calls: int, rest: float) -> Mapping[str, Any]:
    """Sample the process with the pool open, after calls, and after a rest."""
    async with nullcontext() if way == "bare" else WAYS[way]() as opened:
        samples = {"open": _sample()}
        if opened is not None:
            await _call(opened.call, calls)
            samples["used"] = _sample()
            await asyncio.sleep(rest)
            samples["rested"] = _sample()
        return samples


async def _grow(way: str, calls: int, every: int) -> Mapping[str, Any]:
    async with WAYS[way]() as opened:
        samples = []
        for _ in range(calls // every):
            await _call(opened.call, every)
            samples.append(_sample())
        return {"samples": samples}


async def _call(call: Callable[[int], Awaitable[int]], calls: int) -> None:
    """Make calls from standing tasks; all have ended at the return."""
    turns = iter(range(calls))

    async def stand() -> None:
        for turn in turns:
            await call(turn)

    await asyncio.gather(*(stand() for _ in range(_STANDING)))


def _grow_submitting(way: str, calls: int, every: int) -> list[Mapping[str, float]]:
    with _executor(way) as executor:
        samples = []
        for _ in range(calls // every):
            _submit(executor, every)
            samples.append(_sample())
        return samples


def _executor(way: str) -> ThreadPoolExecutor:
    if way == "submit, stdlib":
        return ThreadPoolExecutor()
    import hybridrt

    return hybridrt.AdaptiveThreadPoolExecutor()


def _submit(executor: ThreadPoolExecutor, calls: int) -> None:
    """Submit calls, at most `_STANDING` of them unfinished; all have ended at the return."""
    pending: deque[Future[int]] = deque()
    for number in range(calls):
        if len(pending) == _STANDING:
            pending.popleft().result()
        pending.append(executor.submit(nothing, number))
    while pending:
        pending.popleft().result()


def _sample() -> Mapping[str, float]:
    """Return what is alive once the garbage is gone; sizes in bytes.

    `blocks` counts the allocations of Python objects and sees a leak of one small object in a
    thousand calls; `private`, the pages that this process wrote, sees leaks of C code too, but also
    how the allocator scatters. USS would do worse: it counts a mapped file as long as no other
    process maps it, and moves by megabytes when another Python starts.
    """
    gc.collect()
    rss, private = _resident()
    return {
        "rss": rss,
        "private": private,
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "threads": threading.active_count(),
        "modules": len(sys.modules),
    }


def _resident() -> tuple[int, int]:
    """Return resident and private bytes; where the system does not tell, USS is the private part."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
            kib = {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith("kB\n")}
    except FileNotFoundError:
        import psutil

        full = psutil.Process().memory_full_info()
        return full.rss, full.uss
    return kib["Rss:"] * 1024, kib["Private_Dirty:"] * 1024


if __name__ == "__main__":
    serve(measure)
