"""Time slice: a loop that wakes takes the core of a computing thread at once.

Linux lets a thread that computes keep its core to the end of its slice, 1.4 ms or more, although one of
higher priority wakes. Since 6.12 a thread may ask for a slice of its own, and one that wakes interrupts
those whose slice is longer than its own (EEVDF, `sched_setattr(2)`). So a loop's thread asks for the least
there is. Beside two computing processes on two cores the p99 of a timer's lateness was 0.1 ms instead of
3.0. The thread gets no more of a core than before.

Threads and processes have the slice of the one that starts them: those of an executor get the usual one.
Elsewhere, on older kernels and where a sandbox forbids it nothing happens.
"""

from __future__ import annotations

import platform
import struct
import sys
import threading

from hybridrt.measure.kernel import system_call

__all__ = ["LEAST_NS", "ShortSlices", "slice_of", "take_usual"]

LEAST_NS = 100_000
"""Shorter ones are refused."""
_NUMBERS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_SET = _NUMBERS.get(platform.machine(), 0) if sys.platform == "linux" else 0
"""The number of `sched_setattr`, or 0; that of `sched_getattr` is the next."""
_FIELDS = struct.Struct("=IIQiIQQQ")
"""Of the first version: size, policy, flags, niceness, real-time priority, slice, deadline, period."""
_NORMAL = 0
_USUAL = 0
"""Asks for the slice that the kernel gives to all."""


class ShortSlices:
    """The loops' threads whose slice is short, and what it was before."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._asked: set[int] = set()
        """Threads that were asked for, those included that have a short slice anyway or can have none."""

    def keep(self, native_ids: set[int]) -> None:
        """Have these threads wake at once, and give all others back what they had.

        One whose slice is as short already stays as it is.
        """
        for native_id in self._before.keys() - native_ids:
            _set(native_id, self._before.pop(native_id))
        new, self._asked = native_ids - self._asked, native_ids
        for native_id in new:
            before = slice_of(native_id)
            if before is not None and before > LEAST_NS and _set(native_id, LEAST_NS):
                self._before[native_id] = before

    def start_clean(self) -> None:
        """Forget all threads, in a forked child; its own has the slice of the one that forked."""
        self._asked = set()
        if self._before:
            self._before.clear()
            take_usual(threading.get_native_id())


def take_usual(native_id: int) -> None:
    """Give a thread the usual slice, if it has a short one from a loop's thread."""
    if slice_of(native_id) == LEAST_NS:
        _set(native_id, _USUAL)


def slice_of(native_id: int) -> int | None:
    """Return the slice of a thread in nanoseconds, or None if it cannot have one of its own."""
    attributes = _read(native_id)
    return None if attributes is None else attributes[5] or None


def _set(native_id: int, slice_ns: int) -> bool:
    attributes = _read(native_id)
    if attributes is None:
        return False
    return system_call(
        _SET, native_id, bytearray(_FIELDS.pack(*attributes[:5], slice_ns, *attributes[6:])), 0
    )


def _read(native_id: int) -> tuple[int, ...] | None:
    """Return the scheduling attributes of a thread that is scheduled like all, or None."""
    buffer = bytearray(_FIELDS.size)
    if not _SET or not system_call(_SET + 1, native_id, buffer, len(buffer), 0):
        return None
    attributes = _FIELDS.unpack(buffer)
    return attributes if attributes[1] == _NORMAL else None
