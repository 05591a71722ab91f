"""The CPU clock of a thread, read from outside while the thread runs.

Linux has both sources. Elsewhere they are absent, and so is one that cannot be read for want of memory,
which the readers say with None; no number is made up. The owner opens the probe in its own thread and
closes it before it ends. Who reads that of a worker holds the scheduler's lock, so that it never meets a
closed one; that of a loop may be closed at any time.
"""

from __future__ import annotations

import threading
import time

from hybridrt.measure import kernel

__all__ = ["ThreadProbe", "own_clock_id"]


def own_clock_id() -> int | None:
    """Return the id of the calling thread's CPU clock; None where there is none."""
    getter = getattr(time, "pthread_getcpuclockid", None)
    try:
        return None if getter is None else int(getter(threading.get_ident()))
    except OSError:  # gevent has patched `get_ident`, and a greenlet of it calls this
        return None


class ThreadProbe:
    """CPU time and schedule-ins of the thread that made it."""

    __slots__ = ("_clock_id", "_folder")

    def __init__(self) -> None:
        self._clock_id = own_clock_id()
        self._folder: str | None = f"/proc/self/task/{threading.get_native_id()}"

    def cpu_ns(self) -> int | None:
        """Return the CPU time of the thread; about 0.6 us, and the GIL is kept."""
        clock_id = self._clock_id
        if clock_id is None:
            return None
        try:
            return time.clock_gettime_ns(clock_id)
        except (OSError, MemoryError):  # the thread is gone
            return None

    def schedule_ins(self) -> int | None:
        """Return how often the kernel put the thread on a core.

        A thread that waits for the GIL wakes at least every switch interval, so a count that
        stands still for longer means that it waits for something else.
        """
        return self._schedstat(2)

    def run_delay_ns(self) -> int | None:
        """Return how long the thread was ready to run and had no core."""
        return self._schedstat(1)

    def is_runnable(self) -> bool | None:
        """Return True if the thread runs or waits for a core, rather than for anything else."""
        try:
            words = self._read("stat").rpartition(b")")[2].split()
        except MemoryError:
            return None
        return words[0] == b"R" if words else None

    def _schedstat(self, field: int) -> int | None:
        try:
            return int(self._read("schedstat").split()[field])
        except (ValueError, IndexError, MemoryError):
            return None

    def _read(self, name: str) -> bytes:
        return kernel.read(f"{self._folder}/{name}") if self._folder else b""

    def close(self) -> None:
        """Answer later questions with None: the number of a thread that has ended may be given again."""
        self._clock_id = self._folder = None
