"""A timer on the loop that measures how late it fires.

Every `period` seconds while there is work, every `idle_period` when there is none, so that an idle
runtime costs next to nothing. Runs on the loop's thread alone, `overdue` apart; nothing is locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["Heartbeat"]


class Heartbeat:
    """Reports the lateness of each beat.

    Args:
        loop: The loop to measure.
        record: Called on the loop with (time of the beat, lateness, period), in seconds.
        busy: Tells whether the short period is worth its cost now.
        period: Seconds between beats while busy.
        idle_period: Seconds between beats otherwise.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        record: Callable[[float, float, float], None],
        busy: Callable[[], bool],
        *,
        period: float = 0.010,
        idle_period: float = 0.200,
    ) -> None:
        self._loop = loop
        self._record = record
        self._busy = busy
        self._period = period
        self._idle_period = idle_period
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._current = period

    def start(self) -> None:
        """Begin to beat."""
        self._arm()

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def quicken(self) -> None:
        """Go over to the short period at once; called when work arrives at an idle loop."""
        if self._timer is not None and self._current > self._period:
            self._timer.cancel()
            self._arm()

    def overdue(self, now: float) -> float:
        """Return by how many seconds the next beat is late at `now`; from any thread."""
        return max(0.0, now - self._due) if self._timer is not None else 0.0

    def _arm(self) -> None:
        self._current = self._period if self._busy() else self._idle_period
        # Not loop.time(): uvloop's is cached for a whole turn and counts milliseconds.
        self._due = time.perf_counter() + self._current
        self._timer = self._loop.call_later(self._current, self._beat)

    def _beat(self) -> None:
        now = time.perf_counter()
        self._record(now, max(0.0, now - self._due), self._current)
        self._arm()
