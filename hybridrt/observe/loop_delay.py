"""Loop delay: the lateness of beats, weighted by the time each of them stands for.

One stall of a second counts for a second, not for one beat among a hundred. Plain arithmetic on
what the heartbeat reports. Recorded on the loop's thread; read in any, from a copy.
"""

from __future__ import annotations

from collections import deque
from operator import itemgetter

from hybridrt.values import LoopDelay

__all__ = ["DelayWindow"]


class DelayWindow:
    """The beats of the last `window` seconds.

    Args:
        window: Seconds to look back.
        size: Beats kept at most, whatever their age.
    """

    def __init__(self, window: float = 60.0, size: int = 8192) -> None:
        self._window = window
        self._beats: deque[tuple[float, float, float]] = deque(maxlen=size)

    def record(self, at: float, late: float, period: float) -> None:
        """Take in a beat that fired `late` seconds after its time, `period` after the last."""
        self._beats.append((at, late, late + period))

    def summary(self, now: float | None = None, overdue: float = 0.0) -> LoopDelay | None:
        """Return the percentiles, or None without a beat.

        Args:
            now: The time; None: that of the latest beat.
            overdue: By how much the next beat is late already.
        """
        if now is None:
            now = self._beats[-1][0] if self._beats else 0.0
        ordered = sorted((late, weight) for _, late, weight in self._latest(now, overdue))
        if not ordered:
            return None
        return LoopDelay(
            p50=_quantile(ordered, 0.50),
            p99=_quantile(ordered, 0.99),
            max=ordered[-1][0],
            window=sum(weight for _, weight in ordered),
        )

    def p99(self, now: float, overdue: float = 0.0) -> float:
        """Return the 99th percentile at `now`; 0 before the first beat.

        Asked ten times a second beside calls, so it looks at no more than the latest beats: some 20 us.

        Args:
            now: The time.
            overdue: By how much the next beat is late already.
        """
        beats = self._latest(now, overdue)
        above = 0.01 * sum(map(_weight, beats))
        for _, late, weight in sorted(beats, key=_lateness, reverse=True):
            above -= weight
            if above < 0.0:
                return late
        return 0.0

    def _latest(self, now: float, overdue: float) -> list[tuple[float, float, float]]:
        since = now - self._window
        beats = [beat for beat in self._beats.copy() if beat[0] >= since]
        if overdue > 0.0:
            beats.append((now, overdue, overdue))
        return beats


_lateness, _weight = itemgetter(1), itemgetter(2)


def _quantile(ordered: list[tuple[float, float]], share: float) -> float:
    """Return the smallest lateness below which `share` of the time lies."""
    wanted = share * sum(weight for _, weight in ordered)
    passed = 0.0
    for late, weight in ordered:
        passed += weight
        if passed >= wanted:
            return late
    return ordered[-1][0]
