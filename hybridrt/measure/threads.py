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

__all__ = ["FILES_MAX", "ThreadProbe", "close_all"]

FILES_MAX = 64
"""Files kept open by all probes together; beyond them each question opens and closes its own."""


class ThreadProbe:
    """CPU time and schedule-ins of the thread that made it."""

    __slots__ = ("_clock_id", "_file", "_native_id")

    def __init__(self) -> None:
        getter = getattr(time, "pthread_getcpuclockid", None)
        self._clock_id: int | None = None if getter is None else getter(threading.get_ident())
        self._native_id = threading.get_native_id()
        self._file: int | None = None
        if len(_keepers) < FILES_MAX:
            self._keep_file()

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
        GIL away: ask rarely.
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

    def _keep_file(self) -> None:
        with contextlib.suppress(OSError):
            self._file = self._open()
            _keepers.add(self)

    def _open(self) -> int:
        return os.open(f"/proc/self/task/{self._native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def _schedstat(self, field: int) -> int | None:
        try:
            if self._file is not None:
                return int(os.pread(self._file, 128, 0).split()[field])
            file = self._open()
            try:
                return int(os.pread(file, 128, 0).split()[field])
            finally:
                os.close(file)
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Give the file back. Later questions are answered with None."""
        file, self._file, self._clock_id, self._native_id = self._file, None, None, -1
        _keepers.discard(self)
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


def close_all() -> None:
    """Give all files back, as in a forked child, where the threads are not."""
    for probe in tuple(_keepers):
        probe.close()


_keepers: set[ThreadProbe] = set()
"""Probes that keep a file open."""
