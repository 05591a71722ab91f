"""The clock seam: the only places that read a clock get it from here.

Tests put a manual clock in its place (`hybridrt.testing.ManualClock`); the control law never sees
a clock at all, it gets times as numbers.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time as the workers and the governor see it, in nanoseconds."""

    def wall_ns(self) -> int:
        """Return a monotonic time."""
        ...

    def cpu_ns(self) -> int:
        """Return the CPU time of the calling thread."""
        ...

    def process_cpu_ns(self) -> int:
        """Return the CPU time of the whole process."""
        ...


class SystemClock:
    """The clocks of the operating system.

    They are bound as plain functions because a worker reads them four times a call.
    """

    wall_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.thread_time_ns)
    process_cpu_ns = staticmethod(time.process_time_ns)
