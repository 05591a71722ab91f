"""Loop delay: the lateness of beats, weighted by the time each of them stands for.

One stall of a second counts for a second, not for one beat among a hundred. Plain arithmetic on
what the heartbeat reports; used on the loop's thread alone.
"""

from __future__ import annotations

from collections import deque

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

    def summary(self) -> LoopDelay | None:
        """Return the percentiles, or None before the first beat."""
        if not self._beats:
            return None
        newest = self._beats[-1][0]
        recent = [beat for beat in self._beats if newest - beat[0] <= self._window]
        ordered = sorted((late, weight) for _, late, weight in recent)
        return LoopDelay(
            p50=_quantile(ordered, 0.50),
            p99=_quantile(ordered, 0.99),
            max=ordered[-1][0],
            window=sum(weight for _, weight in ordered),
        )


def _quantile(ordered: list[tuple[float, float]], share: float) -> float:
    """Return the smallest lateness below which `share` of the time lies."""
    wanted = share * sum(weight for _, weight in ordered)
    passed = 0.0
    for late, weight in ordered:
        passed += weight
        if passed >= wanted:
            return late
    return ordered[-1][0]
