"""Loads of known shape: pure Python, sleep, a hash that leaves the GIL, and mixtures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.children.workloads import Phases

__all__ = ["compute", "hashing", "mixed", "two_phase", "wait"]


@contextmanager
def compute(iterations: int) -> Iterator[Phases]:
    """Pure Python under the GIL; some 35 to 40 ns an iteration on the machine it was written on."""

    def call() -> int:
        return _spin(iterations)

    yield (call,)


@contextmanager
def wait(seconds: float) -> Iterator[Phases]:
    """Nothing but waiting."""

    def call() -> None:
        time.sleep(seconds)

    yield (call,)


@contextmanager
def mixed(iterations: int, seconds: float) -> Iterator[Phases]:
    """Pure Python, then a wait, in every call."""

    def call() -> int:
        total = _spin(iterations)
        time.sleep(seconds)
        return total

    yield (call,)


@contextmanager
def hashing(size: int) -> Iterator[Phases]:
    """SHA-256 of some megabytes, which leaves the GIL to others for all of its time."""
    block = bytes(size)

    def call() -> bytes:
        return hashlib.sha256(block).digest()

    yield (call,)


@contextmanager
def two_phase(seconds: float, iterations: int) -> Iterator[Phases]:
    """A service that waits for the first half of the run and computes for the second."""
    with wait(seconds) as first, compute(iterations) as second:
        yield (*first, *second)


def _spin(iterations: int) -> int:
    total = 0
    for i in range(iterations):
        total += i * i
    return total
