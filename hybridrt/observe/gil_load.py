"""How contended the GIL is, by what a sleeping thread met when it woke; see `measure.gil`."""

from __future__ import annotations

from collections import deque

from hybridrt.measure.gil import TIMER_SLACK_NS

__all__ = ["GilLoad"]

_MEMORY = 0.1
"""Weight of a new wake-up in the means: some twenty of them count."""
_CHANGES = 64
"""Changes of the switch interval kept: some seconds of a restless shield."""
_SLEEP_NS = 50_000
"""What a wait costs that found nothing to wait for."""


class GilLoad:
    """Running counts and means; the shared lock protects them.

    Attributes:
        wakes: Wake-ups so far.
        taken: Those that found the GIL taken.
        share: Share of the last wake-ups that found the GIL taken; None before the first.
        delay_ns: Mean time that all of the last wake-ups waited.
    """

    __slots__ = ("_intervals", "delay_ns", "share", "taken", "wakes")

    def __init__(self, interval_ns: int) -> None:
        self.wakes = self.taken = 0
        self.share: float | None = None
        self.delay_ns = 0.0
        self._intervals: deque[tuple[int, int]] = deque([(0, interval_ns)], maxlen=_CHANGES)
        """Switch intervals and since when they were in force, the latest last."""

    def woke(self, delay_ns: int, *, free: bool) -> None:
        """Count a wake-up, and how long it waited."""
        taken = 0.0 if free else 1.0
        self.wakes += 1
        self.taken += int(taken)
        if self.share is None:
            self.share, self.delay_ns = taken, float(delay_ns)
            return
        self.share += _MEMORY * (taken - self.share)
        self.delay_ns += _MEMORY * (delay_ns - self.delay_ns)

    def saw_interval(self, now_ns: int, interval_ns: int) -> None:
        """Take note of the switch interval at `now_ns`."""
        if self._intervals[-1][1] != interval_ns:
            self._intervals.append((now_ns, interval_ns))

    def longest_wait_since(self, start_ns: int) -> int:
        """Return how long a thread can have waited for the GIL at once, since `start_ns`.

        It wakes at least every switch interval, or as soon after it as the kernel's timers allow. The
        longest interval in force since then counts; beyond the changes kept the longest of them.
        """
        longest = 0
        for since_ns, interval_ns in reversed(self._intervals):
            longest = max(longest, interval_ns)
            if since_ns <= start_ns:
                break
        return longest + TIMER_SLACK_NS

    def wait_since(self, start_ns: int) -> int:
        """Return how long one wait for the GIL took since then, as far as can be told."""
        return min(self.longest_wait_since(start_ns), int(2 * self.delay_ns) + _SLEEP_NS)

    @property
    def wait_mean(self) -> float | None:
        """Seconds that the last wake-ups that found the GIL taken waited for it."""
        return None if not self.share else self.delay_ns / self.share / 1e9
