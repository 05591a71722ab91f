"""The loop's delay as a benchmark sees it: a timer that is late, weighted by time.

Apart from the runtime's own heartbeat on purpose: what is measured must not measure itself.
"""

from __future__ import annotations

import asyncio
import threading
import time

__all__ = ["PERIOD", "Pulse"]

PERIOD = 0.010
"""Seconds from beat to beat."""


class Pulse:
    """Beats on the running loop from `start` to `stop`, and counts threads on the way.

    Attributes:
        threads: The most that there were.
        cpu: Share of a core that the loop's thread has computed from start to stop.
    """

    def __init__(self) -> None:
        self._beats: list[tuple[float, float]] = []
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._begun = (0.0, 0.0)
        self.threads = 0
        self.cpu = 0.0

    def start(self) -> None:
        """Begin to beat."""
        self._begun = (time.perf_counter(), time.thread_time())
        self._arm()

    def stop(self) -> None:
        """Beat no more."""
        begun, computed = self._begun
        self.cpu = (time.thread_time() - computed) / (time.perf_counter() - begun)
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._due = time.perf_counter() + PERIOD
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._beat)

    def _beat(self) -> None:
        late = max(0.0, time.perf_counter() - self._due)
        self._beats.append((late, late + PERIOD))
        self.threads = max(self.threads, threading.active_count())
        self._arm()

    def quantile(self, share: float) -> float | None:
        """Return the lateness below which `share` of the time lies; None before the first beat."""
        ordered = sorted(self._beats)
        left = share * sum(weight for _, weight in ordered)
        for late, weight in ordered:
            left -= weight
            if left <= 0:
                return late
        return ordered[-1][0] if ordered else None
