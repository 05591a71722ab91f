"""Which functions make a loop late: each beat's lateness, shared out among those that computed meanwhile.

A function is charged for the time for which it had the GIL since the beat before, as its CPU time and its
share of the GIL tell, or for which it kept the loop itself. Where all of them had it for longer than the beat
was late, each bears its part of the lateness. What is left over is no function's: it is that of the loop's
own callbacks, or of other programs.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LATE", "DelayShares"]

LATE = 0.001
"""Seconds of lateness that are worth a question; a timer alone is late by some tenths of that."""
_HALVED_AFTER = 60.0
"""Seconds after which what was seen counts half. Not tuned."""
_NAMES_MAX = 512


class DelayShares:
    """The lateness of one loop by function."""

    def __init__(self) -> None:
        self._late = 0.0
        self._by_name: dict[str, float] = {}
        self._halved_at: float | None = None

    def record(self, at: float, late: float, computed: Mapping[str, float]) -> None:
        """Take in a late beat.

        Args:
            at: When it came, in seconds.
            late: How late it was.
            computed: For how long each function had the GIL, or the loop, since the beat before, in seconds.
        """
        self._fade(at)
        self._late += late
        together = max(late, sum(computed.values()))
        charged = dict(self._by_name)
        for name, seconds in computed.items():
            charged[name] = charged.get(name, 0.0) + late * seconds / together
        if len(charged) > _NAMES_MAX:
            most = sorted(charged, key=lambda name: charged[name], reverse=True)
            charged = {name: charged[name] for name in most[: _NAMES_MAX // 2]}
        self._by_name = charged  # a new one each time: others may look at the old one

    def shares(self) -> dict[str, float]:
        """Return the share of the lateness that each function has caused; empty if none was seen."""
        late, charged = self._late, self._by_name
        return {name: min(1.0, seconds / late) for name, seconds in charged.items()} if late else {}

    def _fade(self, at: float) -> None:
        if self._halved_at is None or at < self._halved_at:
            self._halved_at = at
        if (times := (at - self._halved_at) // _HALVED_AFTER) > 0.0:
            self._halved_at = at
            left = 0.5**times
            self._late *= left
            self._by_name = {name: left * seconds for name, seconds in self._by_name.items()}
