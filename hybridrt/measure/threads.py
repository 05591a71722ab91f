"""The CPU clock of a thread, read from outside while the thread runs.

Linux has both sources. Elsewhere they are absent, which the readers say with None; nobody makes a
number up. The owner opens the probe in its own thread and closes it before it ends; a reader holds
the scheduler's lock, so that it never meets a closed probe.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

__all__ = ["ThreadProbe"]


class ThreadProbe:
    """CPU time and schedule-ins of the thread that made it."""

    __slots__ = ("_clock_id", "_file", "_native_id")

    def __init__(self) -> None:
        getter = getattr(time, "pthread_getcpuclockid", None)
        self._clock_id: int | None = None if getter is None else getter(threading.get_ident())
        self._native_id = threading.get_native_id()
        self._file: int | None = None

    def cpu_ns(self) -> int | None:
        """Return the CPU time of the thread; about 0.6 us, and the GIL is kept."""
        if self._clock_id is None:
            return None
        try:
            return time.clock_gettime_ns(self._clock_id)
        except OSError:  # the thread is gone
            return None

    def schedule_ins(self) -> int | None:
        """Return how often the kernel put the thread on a core.

        A thread that waits for the GIL wakes at least every switch interval, so a count that
        stands still for longer means that it waits for something else. Reading a file gives the
        GIL away: ask rarely. The file is opened at the first question, because most threads are
        never asked.
        """
        return self._schedstat(2)

    def run_delay_ns(self) -> int | None:
        """Return how long the thread was ready to run and had no core."""
        return self._schedstat(1)

    def is_runnable(self) -> bool | None:
        """Tell whether the thread runs or waits for a core, rather than for anything else."""
        try:
            with open(f"/proc/self/task/{self._native_id}/stat", "rb", buffering=0) as file:
                return file.read(512).rpartition(b")")[2].split()[0] == b"R"
        except (OSError, IndexError):
            return None

    def _schedstat(self, field: int) -> int | None:
        try:
            if self._file is None:
                path = f"/proc/self/task/{self._native_id}/schedstat"
                self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._file, 128, 0).split()[field])
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Give the file back. Later questions are answered with None."""
        file, self._file, self._clock_id, self._native_id = self._file, None, None, -1
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)
