"""Child: what one read costs of each clock that timing a call may need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from timeit import Timer
from typing import Any

from benchmarks.children.protocol import serve

__all__ = ["measure"]


def measure(*, reads: int, blocks: int) -> Mapping[str, Any]:
    """Return nanoseconds of one read of each clock, for each block of `reads`."""
    return {
        name: [seconds * 1e9 / reads for seconds in Timer(read).repeat(blocks, reads)]
        for name, read in _clocks()
    }


def _clocks() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "nothing (an empty function)", _empty
    yield "time.perf_counter_ns", time.perf_counter_ns
    yield "time.thread_time_ns", time.thread_time_ns
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        yield "time.clock_gettime_ns of a thread's clock", partial(time.clock_gettime_ns, clock)


def _empty() -> None: ...


if __name__ == "__main__":
    serve(measure)
