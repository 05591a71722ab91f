"""Child: calls of a few microseconds, made directly and through a way of offloading them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.children.dispatch import Meter
from benchmarks.children.echoing import Pace, pace
from benchmarks.children.functions import few_microseconds, slow_if_told
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.pulse import Pulse
from benchmarks.children.standing import end

__all__ = ["measure"]

LINE = "to be or not to be that is the question " * 3
TASKS = 8
BURST = 40
"""Calls that each task makes before it waits."""
PAUSE = 0.004
"""Seconds for which it waits then: the calls take some two fifths of the loop's time."""
STALL = 0.2
"""Seconds from which a late beat counts as a stall by the function that became slow."""

Call = Callable[[str], Awaitable[int]]


def measure(*, part: str, way: str, loop: str, **arguments: Any) -> Mapping[str, Any]:
    """Return the figures of one part.

    Args:
        part: `cost`, `service` or `sudden`.
        way: A name in `WAYS`.
        loop: `asyncio` or `uvloop`.
        **arguments: Those of the part.
    """
    parts: dict[str, Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]]
    parts = {"cost": _cost, "service": _service, "sudden": _sudden}
    return run_on(loop, parts[part](way, **arguments))


# ------------------------------------------------------------------ what a call costs


async def _cost(way: str, *, block: float, blocks: int, warmup: float) -> Mapping[str, Any]:
    """Return microseconds per call, of the plain function and of the way in turns, one task and eight."""
    found = {}
    async with WAYS[way]() as call:
        await _learn(call)
        for name, tasks in (("one", 1), ("eight", TASKS)):
            direct_us, way_us = list[float](), list[float]()
            for _ in range(blocks):
                meters = [Meter(block=block, blocks=1, warmup=warmup) for _ in range(2)]
                for _ in meters[0].turns():
                    few_microseconds(LINE)
                await _drive(call, tasks, meters[1].turns())
                direct_us += meters[0].wall_us
                way_us += meters[1].wall_us
            found[name] = {"direct_us": direct_us, "way_us": way_us}
    return found


async def _drive(call: Call, tasks: int, turns: Iterator[int]) -> None:
    """As `dispatch.drive`, without a wrapper that drops the turn: it would be added to what is measured."""

    async def stand() -> None:
        for _ in turns:
            await call(LINE)

    await asyncio.gather(*(stand() for _ in range(tasks)))


async def _learn(call: Call, calls: int = 300) -> None:
    """Make the calls that a function is learned by; the loop gets its turns."""
    for _ in range(calls):
        await call(LINE)
        await asyncio.sleep(0)


# ------------------------------------------------------------------ what the loop feels


async def _service(way: str, *, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    """Return what echo clients see beside tasks that call in bursts, and the calls per second.

    The loop has no pause within a burst: a client on its core would be late by itself, so they are parted.
    """
    calls, cpu = 0, None
    if hasattr(os, "sched_setaffinity") and len(usable := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, {usable[0]})
        cpu = usable[1]

    async def stand(call: Call) -> None:
        nonlocal calls
        while True:
            for _ in range(BURST):
                await call(LINE)
            calls += BURST
            await asyncio.sleep(PAUSE)

    async with WAYS[way]() as call:
        await _learn(call)
        standing = [asyncio.create_task(stand(call)) for _ in range(TASKS)]
        try:
            paced = await pace(Pace(**pacing, cpu=cpu), lambda: {"calls": calls})  # type: ignore[arg-type]  # JSON
        finally:
            await end(standing)
    return {**paced.clients, **paced.counted}


# ------------------------------------------------------------------ one that becomes slow


async def _sudden(way: str, *, slow_calls: int) -> Mapping[str, Any]:
    """Return the loop's stalls by a function that takes half a second from some call on."""
    from hybridrt import Runtime, offload

    async with Runtime() as runtime:
        call = offload(slow_if_told, pure=True)
        for _ in range(300):
            await call("fast")
            await asyncio.sleep(0)
        stalls = [stall async for stall in _stalls(call, slow_calls)]
        told = runtime.statistics()
    (function,) = (one for one in told.functions if one.name.endswith(":slow_if_told"))
    placement = function.placement
    assert placement is not None
    return {
        "stalls": stalls,
        "inline_calls": placement.inline_calls,
        "overruns": placement.overruns,
        "longest_overrun": placement.longest_overrun,
    }


async def _stalls(call: Call, count: int) -> AsyncIterator[float]:
    """Yield for how long each slow call kept the loop."""
    for _ in range(count):
        pulse = Pulse()
        pulse.start()
        await asyncio.sleep(0.05)
        await call("slow")
        await asyncio.sleep(0.05)
        pulse.stop()
        yield pulse.quantile(1.0) or 0.0


# ------------------------------------------------------------------ the ways


@asynccontextmanager
async def _direct() -> AsyncIterator[Call]:
    async def call(text: str) -> int:
        return few_microseconds(text)

    yield call


def _untyped(call: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """Return the same: type checkers cannot follow variadic arguments through `partial`."""
    return call


@asynccontextmanager
async def _to_thread() -> AsyncIterator[Call]:
    yield partial(_untyped(asyncio.to_thread), few_microseconds)


@asynccontextmanager
async def _thread() -> AsyncIterator[Call]:
    import hybridrt

    async with hybridrt.Runtime():
        yield hybridrt.offload(few_microseconds)


@asynccontextmanager
async def _pure() -> AsyncIterator[Call]:
    import hybridrt

    async with hybridrt.Runtime():
        yield hybridrt.offload(few_microseconds, pure=True)


@asynccontextmanager
async def _forced() -> AsyncIterator[Call]:
    import hybridrt

    async with hybridrt.Runtime():
        yield hybridrt.offload(few_microseconds, where="inline")


WAYS: dict[str, Callable[[], AbstractAsyncContextManager[Call]]] = {
    "direct": _direct,
    "to_thread": _to_thread,
    "thread": _thread,
    "pure": _pure,
    "inline": _forced,
}


if __name__ == "__main__":
    serve(measure)
