"""A timer on the loop that measures how late it fires.

Every `period` seconds when work begins, every `steady_period` once it has lasted for a hundred beats, because
beside calls that compute each beat takes the GIL from one of them. Every `idle_period` when there is no
work, and `REST` times that while the loop itself does nothing either, because beats are what an idle
runtime costs; see `python -m benchmarks cost`. What is lost: a stall that
begins while the loop rests, with no call submitted just before it, counts from the next beat on, and not at
all if it is over by then.

Runs on the loop's thread alone, `overdue` apart; nothing is locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context

__all__ = ["REST", "Heartbeat"]

REST = 2.5
"""Times the idle period from beat to beat on a loop that rests."""
SETTLED = 100
"""Beats at the short period after which work goes on as it did. Not tuned."""
STIRRED_NS = 1_000_000
"""CPU time of the loop's thread since the last beat below which it rests; a beat takes up to 0.3 ms."""


class Heartbeat:
    """Reports the lateness of each beat.

    Args:
        loop: The loop to measure.
        record: Called on the loop with (time of the beat, lateness, period), in seconds.
        busy: Tells whether the short period is worth its cost now.
        period: Seconds between beats while busy.
        steady_period: Seconds between them once that has lasted; not less.
        idle_period: Seconds between beats otherwise; longer while the loop rests.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        record: Callable[[float, float, float], None],
        busy: Callable[[], bool],
        *,
        period: float = 0.010,
        steady_period: float = 0.025,
        idle_period: float = 0.200,
    ) -> None:
        self._loop = loop
        self._record = record
        self._busy = busy
        self._period = period
        self._steady_period = steady_period
        self._idle_period = idle_period
        self._timer: asyncio.TimerHandle | None = None
        self._context = Context()
        """Of the beats: that of the task that starts them would live as long as the loop."""
        self._due = 0.0
        self._current = period
        self._beats = 0
        """At the short period, in a row."""
        self._used_ns = 0
        self._stopped = False
        self.may_stop: Callable[[], bool] | None = None
        """Asked after each beat whether it is the last, until `quicken`; None: never."""

    def start(self) -> None:
        """Begin to beat."""
        self._arm()

    def stop(self) -> None:
        """Beat no more."""
        self._stopped = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def quicken(self) -> None:
        """Go over to the short period at once; called when work arrives at an idle loop."""
        if self._timer is not None and self._current > self._steady_period:
            self._timer.cancel()
            if self.overdue(time.perf_counter()) > 0.0:  # a stall ends just now
                self._beat()
            else:
                self._arm()
        elif self._stopped:
            self._arm()

    def overdue(self, now: float) -> float:
        """Return by how many seconds the next beat is late at `now`; from any thread."""
        return max(0.0, now - self._due) if self._timer is not None else 0.0

    def _arm(self) -> None:
        self._stopped = False
        rests = self._rests()
        if self._busy():
            self._beats += 1
            self._current = self._period if self._beats <= SETTLED else self._steady_period
        else:
            self._beats = 0
            self._current = REST * self._idle_period if rests else self._idle_period
        # Not loop.time(): uvloop's is cached for a whole turn and counts milliseconds.
        self._due = time.perf_counter() + self._current
        self._timer = self._loop.call_later(self._current, self._beat, context=self._context)

    def _rests(self) -> bool:
        """Return True if the loop's thread has done next to nothing since the last time."""
        before, self._used_ns = self._used_ns, time.thread_time_ns()
        return self._used_ns - before < STIRRED_NS

    def _beat(self) -> None:
        now = time.perf_counter()
        try:
            self._record(now, max(0.0, now - self._due), self._current)
        finally:
            if self.may_stop is None or not self.may_stop():
                self._arm()
            elif self._timer is not None:  # else `stop` was called
                self._timer, self._stopped = None, True
