"""What a trial looks through: a close heartbeat of the loop, and a thread that asks for the GIL.

The heartbeat runs on the loop's thread. The thread of `GilWatch` alone writes its looks; they are read
when it has ended.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Sequence
from threading import Event, Thread

from hybridrt.measure.gil import GilProbe
from hybridrt.measure.heartbeat import Heartbeat
from hybridrt.observe.loop_delay import DelayWindow
from hybridrt.values import LoopDelay

__all__ = ["PERIOD", "GilWatch", "LoopWatch", "Stamp"]

PERIOD = 0.001
"""Seconds between beats and between looks: close enough to see a stall of 2 ms, and some 2 % of a core."""
LOOKS_MIN = 3
"""Looks into calls below which nothing is said: a call that holds the GIL to its end allows just one."""
LATE_NS = 300_000
"""Lateness of a look that says nothing, on systems that do not count a thread's waits. Not measured."""

Stamp = tuple[float, float]
"""When a call began and when it ended."""


class LoopWatch:
    """Measures the delay of the running loop within a `with` block.

    Attributes:
        worst: The latest beat since this was last set to 0, in seconds.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._delays = DelayWindow()
        self._heartbeat = Heartbeat(
            asyncio.get_running_loop(), self._record, lambda: True, period=PERIOD, steady_period=PERIOD
        )

    def __enter__(self) -> LoopWatch:
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.stop()

    def summary(self) -> LoopDelay | None:
        """Return the percentiles, or None before the first beat."""
        return self._delays.summary()

    def _record(self, at: float, late: float, period: float) -> None:
        self._delays.record(at, late, period)
        self.worst = max(self.worst, late)


class GilWatch:
    """Asks for the GIL every millisecond within a `with` block, from a thread of its own."""

    def __init__(self) -> None:
        self._ended = Event()
        self._looks: list[tuple[float, float, bool]] = []
        self._thread = Thread(target=self._run, name="hybridrt-trial", daemon=True)

    def __enter__(self) -> GilWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        probe = GilProbe()
        while not self._ended.is_set():
            began_ns = time.perf_counter_ns()
            due_ns = began_ns + int(PERIOD * 1e9)
            probe.sleep(due_ns)
            time.sleep(PERIOD)
            now_ns = time.perf_counter_ns()
            free = probe.woke(now_ns, LATE_NS)
            self._looks.append((due_ns / 1e9, (now_ns - began_ns) / 1e9, free))

    def share_taken(self, calls: Sequence[Stamp]) -> float | None:
        """Return the share of the calls' time in which the GIL was taken; None with too few looks.

        A look counts if it was due within a call, and for as long as it took: one that waits for 16 ms
        stands for sixteen that would have waited, too.

        Args:
            calls: In the order of their begins, without overlap.
        """
        begins = [begin for begin, _ in calls]
        inside = [
            (weight, free)
            for due, weight, free in self._looks
            if (place := bisect_right(begins, due) - 1) >= 0 and due <= calls[place][1]
        ]
        if len(inside) < LOOKS_MIN:
            return None
        return sum(weight for weight, free in inside if not free) / sum(weight for weight, _ in inside)
