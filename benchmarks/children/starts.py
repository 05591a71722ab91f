"""Child: how long calls of every kind wait for their start beside neighbours that do not end, in one pool.

The neighbours begin first, and stay. Then a call of each kind is made, one after the other.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.children import beginning as f
from benchmarks.children.protocol import run_on, serve

__all__ = ["measure"]

PATIENCE = 3.0
"""Seconds from submission to result after which a call counts as never coming through."""
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_WAITING, _COMPUTING = 40, 4
_BEGINNING = {"stdlib": 1.0, "hybridrt": 12.0}
"""Seconds after which neighbours that have not begun by then never will."""
_SEEN = 0.3
"""Seconds more, in which the governor sees what they do."""
_SUMS = 150_000
_PILE = 20
"""Short calls under way from which no more are made: on a busy machine they would only pile up."""
_FOR_EVER = 600.0

Run = Callable[..., Awaitable[Any]]
"""Runs a function in a thread, with its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An open pool.

    Attributes:
        run: Runs a function in a thread.
        far: Calls `far_job` in an isolate; None where there are none.
        probes: Makes a call of each kind, which gives the time of its start.
    """

    run: Run
    far: Run | None
    probes: Mapping[str, Callable[[], Awaitable[float]]]


def _common(run: Run) -> dict[str, Callable[[], Awaitable[float]]]:
    return {
        "unknown": lambda: run(f.new_function()),
        "short": lambda: run(f.compute_short),
        "long": lambda: run(f.compute_long),
        "waiting": lambda: run(f.wait_short),
        "GIL-free": lambda: run(f.hash_free),
        "names": _resolve,
    }


async def _resolve() -> float:
    """Return when the name was there: the loop tells of no start."""
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    return time.perf_counter()


@asynccontextmanager
async def _stdlib() -> AsyncIterator[Open]:
    """The loop's default pool."""
    run = partial(asyncio.get_running_loop().run_in_executor, None)
    yield Open(run=run, far=None, probes=_common(run))


@asynccontextmanager
async def _ours() -> AsyncIterator[Open]:
    from hybridrt import Runtime, offload

    async with Runtime(shutdown_timeout=5.0) as runtime:
        limited = offload(f.compute_long, limit=1)
        in_lane = offload(f.compute_short, lane="benchmark")
        pure = offload(f.summing, pure=True)
        isolated = offload(f.summing, pure=True, where="isolate")
        for _ in range(40):  # until it runs in an isolate
            await pure(_SUMS)
        probes = _common(runtime.offload) | {
            "pure": lambda: pure(_SUMS),
            "isolate": lambda: isolated(_SUMS),
            "limit": limited,
            "lane": in_lane,
        }
        far = offload(f.far_job, pure=True, where="isolate", abandon_on_cancel=True)
        yield Open(run=runtime.offload, far=far, probes=probes)


POOLS = {"stdlib": _stdlib, "hybridrt": _ours}


class Neighbours:
    """Calls that do not end before they are told to.

    Args:
        pool: Where they run.
    """

    def __init__(self, pool: Open) -> None:
        self._pool = pool
        self._ended = threading.Event()
        self._spun_on = threading.Event()
        self._tasks: list[asyncio.Future[Any]] = []
        self._kinds: list[str] = []

    def begin(self, kind: str) -> None:
        """Submit those of one kind."""
        self._kinds.append(kind)
        run, ended = self._pool.run, self._ended
        if kind == "short calls":
            self._add(self._traffic())
        elif kind == "endless computing":
            for _ in range(_COMPUTING):
                self._add(run(f.spin_on, ended))
        elif kind == "endless waiting":
            for _ in range(_WAITING):
                self._add(run(f.wait_on, ended))
        elif kind == "endless GIL-free":
            for _ in range(_CORES):
                self._add(run(f.hash_on, ended, _FOR_EVER))
        elif kind == "a long known job":
            self._add(run(f.job, ended, _FOR_EVER))
        elif kind == "long isolate calls" and self._pool.far is not None:
            for _ in range(_CORES):
                self._add(self._pool.far(_FOR_EVER))
        elif kind == "spinning on a result":
            self._add(run(f.spin_on, self._spun_on))
            self._add(run(_end_last, ended, self._spun_on))  # queued behind it, and does not end either

    async def begun(self, seconds: float) -> None:
        """Wait until all of them have begun that run in threads, for so long at most."""
        for _ in range(int(seconds / _SEEN)):
            await asyncio.sleep(_SEEN)
            if len(f.started) >= _expected(self._kinds):
                break
        await asyncio.sleep(_SEEN)

    def _add(self, call: Awaitable[Any]) -> None:
        self._tasks.append(asyncio.ensure_future(call))

    async def _traffic(self) -> None:
        """Make a thousand calls a second, of a tenth of a millisecond each."""
        begun, made = time.perf_counter(), 0
        calls: set[asyncio.Future[Any]] = set()
        while not self._ended.is_set():
            due = int((time.perf_counter() - begun) * 1000)
            if len(calls) < _PILE:
                new: set[asyncio.Future[Any]] = {
                    asyncio.ensure_future(self._pool.run(f.brief)) for _ in range(min(100, due - made))
                }
                calls |= new
                for call in new:
                    call.add_done_callback(calls.discard)
            made = due
            await asyncio.sleep(0.005)
        for call in calls:
            call.cancel()

    async def end(self) -> None:
        """Let them all go."""
        self._ended.set()
        self._spun_on.set()  # what should set it may still be queued, and is cancelled then
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=5.0)


def _expected(kinds: list[str]) -> int:
    """Return how many calls of these neighbours say that they have begun."""
    counts = {
        "endless computing": _COMPUTING,
        "endless waiting": _WAITING,
        "endless GIL-free": _CORES,
        "a long known job": 1,
        "spinning on a result": 2,
    }
    return sum(counts.get(kind, 0) for kind in kinds)


def _end_last(ended: threading.Event, other: threading.Event) -> None:
    f.spin_on(ended)
    other.set()


async def _learn(pool: Open) -> None:
    """Let the pool see each function often enough."""
    for name, times in (("short", 40), ("long", 4), ("waiting", 20), ("GIL-free", 24)):
        probe = pool.probes[name]
        for _ in range(0, times, 2):
            await asyncio.gather(probe(), probe())
    for name in ("limit", "lane", "isolate"):
        if name in pool.probes:
            await pool.probes[name]()
    never = threading.Event()
    for _ in range(12):
        await asyncio.gather(*(pool.run(f.hash_on, never, 0.02) for _ in range(2)))
    await pool.run(f.job, never, 0.6)
    f.started.clear()


async def _seconds(probe: Callable[[], Awaitable[float]]) -> float | None:
    """Make a call and return the seconds until it started, or None if it never did."""
    submitted = time.perf_counter()
    call = asyncio.ensure_future(probe())
    await asyncio.wait({call}, timeout=PATIENCE)
    if call.done():
        return call.result() - submitted
    call.cancel()
    return None


async def _measure(pool: str, beside: list[str], times: int) -> Mapping[str, Any]:
    async with POOLS[pool]() as opened:
        await _learn(opened)
        neighbours = Neighbours(opened)
        for kind in beside:
            neighbours.begin(kind)
        await neighbours.begun(_BEGINNING[pool])
        found: dict[str, list[float | None]] = {name: [] for name in opened.probes}
        for name, _ in itertools.product(opened.probes, range(times)):
            if None not in found[name]:
                found[name].append(await _seconds(opened.probes[name]))
        await neighbours.end()
    return {"seconds": found}


def measure(*, pool: str, beside: list[str], times: int) -> Mapping[str, Any]:
    """Return by kind the seconds from submission to start of its calls; None for one that never started.

    Args:
        pool: A name in `POOLS`.
        beside: The kinds of neighbours.
        times: Calls of each kind.
    """
    return run_on("asyncio", _measure(pool, beside, times))


if __name__ == "__main__":
    serve(measure)
