"""Threads of this process that Python did not start: those of BLAS, of OpenMP and of other native libraries.

A matrix product that takes a millisecond of its caller's CPU time may take as much of each other core, in
threads that the library keeps. The kernel lists the threads of the process; those that `threading` does not
know are native. Linux has it; elsewhere there are none to be seen.
"""

from __future__ import annotations

import os
import threading

from hybridrt.measure import kernel
from hybridrt.measure.foreign import ThreadClocks

__all__ = ["NativeThreads"]


class NativeThreads:
    """CPU time of the native threads; to be used from one thread."""

    def __init__(self) -> None:
        self._clocks = ThreadClocks()
        self._ids: tuple[int, ...] = ()
        self._extra: int | None = None
        """Threads beyond those of Python, when they were listed last."""

    def __len__(self) -> int:
        return len(self._ids)

    def find(self) -> None:
        """Look for threads that came or went; 10 us, and the GIL is kept while they stay."""
        count = _thread_count()
        if count is None:
            return
        if count - threading.active_count() == self._extra and self._clocks.saw_all(self._ids):
            return
        try:
            ids = os.listdir("/proc/self/task")  # first: threads start meanwhile, as it gives the GIL away
        except OSError:
            return
        own = {thread.native_id for thread in threading.enumerate()}
        if None in own:
            return  # one that starts just now has no number yet, and would be taken for a native one
        self._ids = tuple(id for id in map(int, ids) if id not in own)
        self._extra = count - len(own)
        self._clocks.restart(self._ids)

    def spent_ns(self) -> int:
        """Return the CPU time they used since the last question; 0.5 us a thread, and the GIL is kept."""
        return int((self._clocks.spent(self._ids) or 0.0) * 1e9) if self._ids else 0


def _thread_count() -> int | None:
    """Return how many threads the process has; None where the kernel does not tell."""
    words = kernel.read("/proc/self/stat").rpartition(b")")[2].split()
    return int(words[17]) if len(words) > 17 else None
