"""Grandchild: a timer on a loop that has nothing else to do, beside what other processes compute."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

from benchmarks.children.phases import beats, weighted
from benchmarks.children.protocol import serve

__all__ = ["measure"]


def measure(*, warm: float, seconds: float) -> Mapping[str, float]:
    """Say that it is ready, wait for a line, and return the lateness in milliseconds not exceeded for 99 %.

    Args:
        warm: Seconds that do not count.
        seconds: Those that do.
    """
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(warm)
    beaten = asyncio.run(beats(time.perf_counter() + seconds))
    return {"late": 1e3 * weighted([by for _, by in beaten])}


if __name__ == "__main__":
    serve(measure)
