"""Child: calls that wait and then compute, many in flight, through one pool, beside a timer on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks.children.grandchild import begin, line, started
from benchmarks.children.protocol import run_on, serve

__all__ = ["FILLS_CORES", "LOADS", "beats", "measure", "weighted"]

PERIOD = 0.005
"""Seconds from beat to beat of the timer on the loop."""
TEXT = json.dumps([{"id": i, "title": "word " * 8, "vector": [i / 7] * 12} for i in range(700)])
"""Some 190 kB."""
_parsing: list[float] = []
"""CPU seconds that each parse of it took."""

Submit = Callable[[Callable[[], object]], Awaitable[object]]


def _compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def long_python() -> None:
    """Wait for 50 ms and compute for 5 ms in Python."""
    time.sleep(0.050)
    _compute(0.005)


def short_python() -> None:
    """Wait for 5 ms and compute for 1 ms in Python."""
    time.sleep(0.005)
    _compute(0.001)


def parse() -> None:
    """Wait for 30 ms and parse 190 kB in one C call that holds the GIL."""
    time.sleep(0.030)
    begun = time.thread_time()
    json.loads(TEXT)
    _parsing.append(time.thread_time() - begun)


def array() -> None:
    """Wait for 20 ms and compute with numpy, which leaves the GIL to others."""
    import numpy as np

    time.sleep(0.020)
    matrix = np.arange(160_000, dtype=float).reshape(400, 400)
    (matrix @ matrix).sum()
    np.sort(matrix.ravel()[::-1])


LOADS: Mapping[str, Callable[[], object]] = {
    "50 ms + 5 ms Python": long_python,
    "5 ms + 1 ms Python": short_python,
    "30 ms + json.loads": parse,
    "20 ms + numpy": array,
}
FILLS_CORES = "20 ms + numpy"
"""The one whose native threads fill every core: a timer beside it says how late these make any process."""


def measure(
    *,
    load: str,
    way: str,
    size: int,
    loop: str,
    in_flight: int,
    seconds: float,
    warm: float,
    few: float,
) -> Mapping[str, float]:
    """Return calls per second, the loop's lateness, and the time of a call and of a parse; milliseconds.

    Under `FILLS_CORES` also the lateness of a timer in another process.

    The timer beats for the first half of what counts, and calls are counted in the second: a loop that is
    on time pays for each beat, as it takes the GIL from a call, and one that is late leaves most of them out.

    Args:
        load: A name in `LOADS`.
        way: "static", "bare", "runtime" or "anyio".
        size: Threads of the static pool; 0 for the others.
        loop: `asyncio` or `uvloop`.
        in_flight: Calls at once.
        seconds: How long it runs, the first `warm` of which give the cold figure only.
        warm: See there.
        few: Seconds before that for which two callers alone call.
    """
    main = _measure(LOADS[load], way, size, in_flight, seconds, warm, few)
    if load != FILLS_CORES:
        return run_on(loop, main)
    with started("bare_timer", warm=few + warm, seconds=(seconds - warm) / 2) as timer:
        begin(timer)
        return {**run_on(loop, main), "timer": json.loads(line(timer))["late"]}


async def _measure(
    work: Callable[[], object],
    way: str,
    size: int,
    in_flight: int,
    seconds: float,
    warm: float,
    few: float,
) -> Mapping[str, float]:
    times: list[float] = []
    async with _pool(way, size) as submit:
        few_until = time.perf_counter() + few

        async def alone() -> None:
            while time.perf_counter() < few_until:
                await submit(work)

        await asyncio.gather(alone(), alone())
        start = time.perf_counter()
        counts_from, end = start + warm, start + seconds
        beats_until = (counts_from + end) / 2

        async def stand() -> None:
            while (begun := time.perf_counter()) < end:
                await submit(work)
                if (now := time.perf_counter()) > beats_until:
                    times.append(now - begun)

        beating = asyncio.ensure_future(beats(beats_until))
        await asyncio.gather(beating, *(stand() for _ in range(in_flight)))
        took = time.perf_counter() - beats_until
    times.sort()
    late = [by for begun, by in beating.result() if begun > counts_from]
    cold = [by for begun, by in beating.result() if begun <= counts_from]
    return {
        "calls": len(times) / took,
        "loop": 1e3 * weighted(late),
        "cold": 1e3 * max(cold, default=0.0),
        "call": 1e3 * times[int(0.99 * len(times))] if times else 1e3 * seconds,
        **({"parse": 1e3 * sorted(_parsing)[int(0.99 * len(_parsing))]} if _parsing else {}),
    }


async def beats(until: float) -> list[tuple[float, float]]:
    """Return when each beat of the timer began, by `perf_counter`, and by how many seconds it was late."""
    found: list[tuple[float, float]] = []
    while (begun := time.perf_counter()) < until:
        await asyncio.sleep(PERIOD)
        found.append((begun, time.perf_counter() - begun - PERIOD))
    return found


def weighted(late: list[float], share: float = 0.99) -> float:
    """Return the lateness not exceeded for this share of the time; each beat counts for its length."""
    ordered = sorted(late)
    left = share * sum(one + PERIOD for one in ordered)
    for one in ordered:
        left -= one + PERIOD
        if left <= 0.0:
            return one
    return 0.0


@contextlib.asynccontextmanager
async def _pool(way: str, size: int) -> AsyncIterator[Submit]:
    loop = asyncio.get_running_loop()

    def submit(work: Callable[[], object]) -> Awaitable[object]:
        return loop.run_in_executor(None, work)

    if way == "static":
        loop.set_default_executor(ThreadPoolExecutor(size))
        yield submit
    elif way == "anyio":
        import anyio.to_thread

        yield anyio.to_thread.run_sync
    elif way == "bare":
        import hybridrt

        loop.set_default_executor(hybridrt.AdaptiveThreadPoolExecutor())
        yield submit
    else:
        import hybridrt

        async with hybridrt.Runtime():
            yield submit


if __name__ == "__main__":
    serve(measure)
