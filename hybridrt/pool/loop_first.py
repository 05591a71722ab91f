"""The loop goes first: before a call that holds the GIL for long, its thread lets a loop that works finish.

A loop that wants the GIL waits for a whole C call that holds it, each time anew: for `json.loads` of a large
text that is tens of milliseconds for one turn of the loop, and the next such call asks for the GIL as soon as
the loop has it. So the thread of such a call looks whether a loop's thread computes just now, by its CPU
clock, and sleeps in small slices as long as it does, for `MOST_NS` at most.

Loops are known by their watches: a watch joins the shield in its loop's thread. The shared lock
protects the table.
"""

from __future__ import annotations

import threading
from time import perf_counter_ns, sleep
from weakref import WeakKeyDictionary

from hybridrt.measure.foreign import ThreadClocks

__all__ = ["MOST_NS", "LoopFirst"]

MOST_NS = 5_000_000
"""The longest that a call gives way. Not measured."""
_SLICE = 0.0003
"""Seconds from one look to the next: long enough for the loop to wake and take the GIL."""
_BUSY = 0.3
"""Share of a slice in which the loop's thread has computed, from which it works."""


class LoopFirst:
    """The threads of the loops that are watched.

    Attributes:
        calls: Calls that gave way to a loop that worked.
    """

    def __init__(self) -> None:
        self._threads: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._ids: tuple[int, ...] = ()
        """Their kernel ids, replaced as a whole: read without the lock."""
        self.calls = 0

    @property
    def known(self) -> bool:
        """Whether there is a loop; without the lock."""
        return bool(self._ids)

    def join_locked(self, watch: object) -> None:
        """Know the calling thread as that of a loop."""
        self._threads[watch] = threading.get_native_id()
        self._ids = tuple(self._threads.values())

    def leave_locked(self, watch: object) -> None:
        """Know it no more."""
        self._threads.pop(watch, None)
        self._ids = tuple(self._threads.values())

    def clear(self) -> None:
        """Know none, as in a forked child."""
        self._threads.clear()
        self._ids = ()

    def give_way(self) -> int:
        """Sleep while a loop works; return for how many nanoseconds. From any thread, without the lock."""
        threads = self._ids
        if not threads:
            return 0
        clocks = ThreadClocks()
        clocks.restart(threads)
        begun = before = perf_counter_ns()
        while True:
            sleep(_SLICE)
            now, spent = perf_counter_ns(), clocks.spent(threads)
            if spent is None or spent * 1e9 < _BUSY * (now - before):
                break
            if now - begun >= MOST_NS:
                break
            before = now
        if before != begun:
            self.calls += 1
        return now - begun
