"""The functions whose calls the benchmark of starts submits; of a module, so that isolates find them.

Each tells when it began, by a clock that all processes of a machine share.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from types import FunctionType

__all__ = [
    "brief", "compute_long", "compute_short", "far_job", "hash_free", "hash_on", "job", "new_function",
    "spin_on", "started", "summing", "wait_on", "wait_short",
]  # fmt: skip

_BLOCK = bytes(4_000_000)
started: list[str] = []
"""What stands beside the others and has begun."""


def _compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def compute_short() -> float:
    """Compute for half a millisecond."""
    begun = time.perf_counter()
    _compute(0.0005)
    return begun


def compute_long() -> float:
    """Compute for 40 ms."""
    begun = time.perf_counter()
    _compute(0.04)
    return begun


def wait_short() -> float:
    """Wait for 10 ms."""
    begun = time.perf_counter()
    time.sleep(0.01)
    return begun


def hash_free() -> float:
    """Compute for some 20 ms without the GIL."""
    begun = time.perf_counter()
    hashlib.sha256(_BLOCK + _BLOCK).digest()
    return begun


def summing(count: int) -> float:
    """Compute for some milliseconds, wherever."""
    begun = time.perf_counter()
    total = 0
    for number in range(count):
        total += number
    return begun


def new_function() -> Callable[[], float]:
    """Return a function that no pool has seen: its code is another one each time."""
    code = compute_short.__code__
    return FunctionType(code.replace(co_name=f"new_{time.perf_counter_ns()}"), globals())


def brief() -> None:
    """Compute for a tenth of a millisecond."""
    _compute(0.0001)


def spin_on(ended: threading.Event) -> None:
    """Compute until told to end."""
    started.append("spin_on")
    while not ended.is_set():
        sum(range(100))


def wait_on(ended: threading.Event) -> None:
    """Wait until told to end."""
    started.append("wait_on")
    ended.wait()


def hash_on(ended: threading.Event, seconds: float) -> None:
    """Compute without the GIL, for long or until told to end."""
    started.append("hash_on")
    end = time.thread_time() + seconds
    while time.thread_time() < end and not ended.is_set():
        hashlib.sha256(_BLOCK).digest()


def job(ended: threading.Event, seconds: float) -> None:
    """Compute for long, or until told to end."""
    started.append("job")
    end = time.thread_time() + seconds
    while time.thread_time() < end and not ended.is_set():
        sum(range(100))


def far_job(seconds: float) -> None:
    """Wait for long, in an isolate."""
    time.sleep(seconds)
