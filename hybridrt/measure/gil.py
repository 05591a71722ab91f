"""Whether a thread found the GIL free when it woke, and how long it had to wait for it.

The kernel counts how often a thread gave its core up to wait for something. A sleep is one such
wait. A thread that wakes and finds the GIL taken waits again, once a switch interval, so any count
above one says that the GIL was not free; no clock and no threshold is involved, and a short switch
interval does not blind it: `python -m benchmarks gil` finds it free in all sleeps beside nothing and
beside zlib, in none beside bytecode and `json.loads`, at 0.1 as at 5 ms.

The count also tells a long wait for the GIL from a thread that had no core: each wait is over after a switch
interval, so a few of them are no long wait, however late the thread is.

Where threads have no such counter (not Linux), the lateness of the sleep has to do.
"""

from __future__ import annotations

import sys

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not Linux
    _counted = False
else:
    _counted = True

__all__ = ["TIMER_SLACK_NS", "GilProbe", "blocks", "switch_interval_ns"]

TIMER_SLACK_NS = 100_000
"""How late a timer ends a wait: Linux allows itself 50 us, and a wake-up takes as long again."""


def blocks() -> int | None:
    """Return how often the calling thread has waited for anything; 0.4 us, and the GIL is kept.

    None where the platform does not count, a sandbox forbids it, or memory is lacking.
    """
    try:
        return getrusage(RUSAGE_THREAD).ru_nvcsw if _counted else None
    except (OSError, MemoryError):
        return None


def switch_interval_ns() -> int:
    """Return the interpreter's switch interval."""
    return int(sys.getswitchinterval() * 1e9)


class GilProbe:
    """Judges the sleeps of one thread, which calls `sleep` before each and then `woke`.

    Attributes:
        delay_ns: How long the last sleep was late because of the GIL, 0 if that was free.
    """

    def __init__(self) -> None:
        self.delay_ns = 0
        self._blocks: int | None = None
        self._due_ns = 0

    def sleep(self, due_ns: int) -> None:
        """Note the clocks before a sleep that is to end at `due_ns`."""
        self._blocks = blocks()
        self._due_ns = due_ns

    def woke(self, now_ns: int, allowed_ns: int) -> bool:
        """Return True if the GIL was free.

        Args:
            now_ns: The time, read with the GIL held.
            allowed_ns: Lateness that says nothing, where waits are not counted.
        """
        late = max(0, now_ns - self._due_ns)
        count = blocks()
        if count is None or self._blocks is None:
            free = late < allowed_ns
        else:
            waits = count - self._blocks - 1  # the sleep itself is one
            free = waits <= 0
            late = min(late, waits * (switch_interval_ns() + TIMER_SLACK_NS))
        self.delay_ns = 0 if free else late
        return free
