"""Child: what a sleeping thread meets when it wakes, and what a crowd does at a switch interval."""

from __future__ import annotations

import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.children.protocol import serve
from hybridrt.measure.gil import GilProbe

__all__ = ["WORKS", "measure"]

_TEXT = json.dumps(list(range(200_000)))
_BLOB = bytes(range(256)) * 8192


def _spin() -> None:
    for number in range(2_000):
        number * number


WORKS: Mapping[str, Callable[[], object]] = {
    "nothing": lambda: time.sleep(0.05),
    "zlib": lambda: zlib.compress(_BLOB, 6),
    "bytecode": _spin,
    "json.loads": lambda: json.loads(_TEXT),
}


def measure(*, work: str, threads: int, interval: float, seconds: float) -> Mapping[str, Any]:
    """Return how often a sleeper found the GIL free, how late it was, and the work done meanwhile.

    Args:
        work: A name in `WORKS`, done again and again.
        threads: By so many threads.
        interval: Switch interval, in seconds.
        seconds: How long to look.
    """
    sys.setswitchinterval(interval)
    probe, free, late = GilProbe(), [], []
    with _busy(WORKS[work], threads) as done:
        began, before = time.perf_counter(), sum(done)
        while time.perf_counter() - began < seconds:
            due = time.perf_counter_ns() + 2_000_000
            probe.sleep(due)
            time.sleep(0.002)
            free.append(probe.woke(time.perf_counter_ns(), 0))
            late.append((time.perf_counter_ns() - due) / 1e6)
        passed, units = time.perf_counter() - began, sum(done) - before
    return {
        "free": sum(free) / len(free),
        "late_ms": sorted(late)[len(late) // 2],
        "work": units / passed,
    }


@contextmanager
def _busy(work: Callable[[], object], threads: int) -> Iterator[list[int]]:
    """Do `work` in threads, and count it for each of them."""
    done, ended = [0] * threads, threading.Event()

    def run(number: int) -> None:
        while not ended.is_set():
            work()
            done[number] += 1

    crew = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in crew:
        thread.start()
    try:
        yield done
    finally:
        ended.set()
        for thread in crew:
            thread.join()


if __name__ == "__main__":
    serve(measure)
