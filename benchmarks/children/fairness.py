"""Child: short computing calls, alone and beside calls that never let go, through one pool.

Pure-Python calls of known length, one in flight at a time, each timed from submission to result. What
stands beside them computes until the child ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from benchmarks.children.protocol import serve
from benchmarks.children.work import Work, calibrate
from hybridrt import AdaptiveThreadPoolExecutor

__all__ = ["measure"]

POOLS: dict[str, Callable[[], Executor]] = {
    "stdlib": ThreadPoolExecutor,
    "hybridrt": AdaptiveThreadPoolExecutor,
}
PATIENCE = 20.0
"""Seconds after which a call counts as never coming through."""


class Beside:
    """Calls that hold on until they are let go: each kind of bad neighbour."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._ended = threading.Event()

    def spin(self) -> None:
        """Compute without end."""
        while not self._ended.is_set():
            for number in range(1000):
                number * number

    def begin(self, kind: str) -> None:
        """Submit the neighbours of a scenario."""
        if kind == "one endless call":
            self._pool.submit(self.spin)
        elif kind == "eight endless calls":
            for _ in range(8):
                self._pool.submit(self.spin)
        elif kind == "calls that wait for queued ones":
            for depth in (3, 3, 3):
                self._pool.submit(self._nest, depth)
        elif kind == "a call that spins on another's result":
            self._pool.submit(self._spin_on)

    def _nest(self, depth: int) -> None:
        if depth:
            self._pool.submit(self._nest, depth - 1).result()

    def _spin_on(self) -> None:
        other = self._pool.submit(self.spin)
        while not other.done():
            pass

    def end(self) -> None:
        """Let them all go."""
        self._ended.set()


def measure(*, pool: str, beside: str, call: float, calls: int) -> Mapping[str, Any]:
    """Return milliseconds from submission to result of each call and those it computed: alone, and beside.

    Args:
        pool: A name in `POOLS`.
        beside: The neighbours; see `Beside`.
        call: Seconds of CPU of one call.
        calls: How many.
    """
    work = Work(calibrate(call))
    chosen = POOLS[pool]()
    alone = [_time(chosen, work) for _ in range(calls)]
    neighbours = Beside(chosen)
    neighbours.begin(beside)
    try:
        found = _until_lost(chosen, work, calls)
    finally:
        neighbours.end()
        chosen.shutdown(cancel_futures=True)
    return {
        "alone_ms": [took for took, _ in alone],
        "alone_cpu_ms": [computed for _, computed in alone],
        "beside_ms": [took for took, _ in found],
        "beside_cpu_ms": [computed for _, computed in found],
        "lost": len(found) < calls,
    }


def _until_lost(pool: Executor, work: Work, calls: int) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for _ in range(calls):
        try:
            found.append(_time(pool, work))
        except FutureTimeoutError:
            break
    return found


def _time(pool: Executor, work: Work) -> tuple[float, float]:
    begun = time.perf_counter()
    computed = pool.submit(_computed, work).result(PATIENCE)
    return (time.perf_counter() - begun) * 1e3, computed * 1e3


def _computed(work: Work) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


if __name__ == "__main__":
    serve(measure)
