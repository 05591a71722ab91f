"""CPU use of threads that another library owns, asked from outside without giving the GIL away.

A thread's kernel id gives the id of its CPU clock. That is what `pthread_getcpuclockid` works out
too, but the kernel answers for an id whose thread is gone with an error, where the C function would
follow a dangling pointer. Linux has it; elsewhere the source is absent, which is said with None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sized

from hybridrt.measure.threads import own_clock_id

__all__ = ["ThreadClocks"]


class ThreadClocks:
    """CPU time of a changing set of threads; about 0.5 us a thread."""

    def __init__(self) -> None:
        self._readable = own_clock_id() == _clock_id(threading.get_native_id())
        self._last: dict[int, int] | None = None

    def restart(self, native_ids: Iterable[int]) -> None:
        """Count from now on."""
        self._last = self._read(native_ids)

    def saw_all(self, native_ids: Sized) -> bool:
        """Return False if one of these threads was gone at the last question."""
        return not self._readable or self._last is None or len(self._last) == len(native_ids)

    def spent(self, native_ids: Iterable[int]) -> float | None:
        """Return the CPU seconds that these threads used since the last question.

        A thread that is new has used all of its time since then; what one used that ended is lost.
        None where the platform has no such clocks.
        """
        last, now = self._last, self._read(native_ids)
        self._last = now
        if not self._readable:
            return None
        before = now if last is None else last
        # A clock that went back belongs to a new thread under an old id.
        used = (cpu - before.get(id, 0) if cpu >= before.get(id, 0) else cpu for id, cpu in now.items())
        return sum(used) / 1e9

    def _read(self, native_ids: Iterable[int]) -> dict[int, int]:
        if not self._readable:
            return {}
        clocks = {}
        for native_id in native_ids:
            try:
                clocks[native_id] = time.clock_gettime_ns(_clock_id(native_id))
            except OSError:  # the thread is gone
                continue
        return clocks


def _clock_id(native_id: int) -> int:
    """Return the kernel's id of a thread's CPU clock: the inverted thread id, "per thread", "scheduler"."""
    return ~native_id << 3 | 6
