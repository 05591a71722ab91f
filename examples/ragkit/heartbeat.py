"""How late the loop is: a timer that should fire every 10 ms, and by how much it does not.

The job has its own, so that the loop of the other executor is measured by the very same clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Heartbeat", "Phase", "quantile"]

INTERVAL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of the job; times in seconds.

    Attributes:
        name: Which part.
        wall: How long it took.
        cpu: CPU time of the process, all threads.
        delay_p50: Loop delay, weighted by time, so that a long stall counts for its length.
        delay_p99: The same.
        delay_max: The same.
        threads_max: Most threads alive in the process at a beat.
    """

    name: str
    wall: float
    cpu: float
    delay_p50: float
    delay_p99: float
    delay_max: float
    threads_max: int


class Heartbeat:
    """Measures the running loop, phase by phase. For the loop's thread only."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.threads: list[tuple[float, int]] = []
        """Threads alive in the process, whenever that changed, by seconds since the heartbeat was made."""
        self._made = time.perf_counter()
        self._late: list[float] = []
        self._threads_max = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens in the block; phases follow each other, they do not nest."""
        self._late = []
        self._threads_max = 0
        self._count_threads()
        wall, cpu = time.perf_counter(), time.process_time()
        self._start()
        try:
            yield
        finally:
            self._stop()
            self.phases.append(self._phase(name, time.perf_counter() - wall, time.process_time() - cpu))

    def _phase(self, name: str, wall: float, cpu: float) -> Phase:
        late = self._late or [0.0]
        return Phase(
            name=name,
            wall=wall,
            cpu=cpu,
            delay_p50=quantile(late, 0.5),
            delay_p99=quantile(late, 0.99),
            delay_max=max(late),
            threads_max=self._threads_max,
        )

    def _start(self) -> None:
        # Not `loop.time()`: uvloop's counts whole milliseconds and stands still within a turn.
        self._due = time.perf_counter() + INTERVAL
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._beat)

    def _beat(self) -> None:
        self._late.append(max(0.0, time.perf_counter() - self._due))
        self._count_threads()
        self._start()

    def _count_threads(self) -> None:
        count = threading.active_count()
        self._threads_max = max(self._threads_max, count)
        if not self.threads or self.threads[-1][1] != count:
            self.threads.append((time.perf_counter() - self._made, count))

    def _stop(self) -> None:
        """End with the beat that is due: a stall that lasts until now counts too."""
        if self._timer is not None:
            self._timer.cancel()
        late = time.perf_counter() - self._due
        if late > 0:
            self._late.append(late)


def quantile(late: Sequence[float], share: float) -> float:
    """Return the delay below which the loop was for a share of the time.

    A beat stands for the time since the one before: the interval and its own lateness.
    """
    ordered = sorted(late)
    total = sum(INTERVAL + value for value in ordered)
    reached = 0.0
    for value in ordered:
        reached += INTERVAL + value
        if reached >= share * total:
            return value
    return ordered[-1]
