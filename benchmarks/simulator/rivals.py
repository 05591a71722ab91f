"""How others size a pool: each law once more, as its source says, on what a window tells.

Sources: BetaPool 1.0.2 (`executor.py`); .NET's `PortableThreadPool` (`HillClimbing.cs`, `GateThread.cs`);
Netflix concurrency-limits (`Gradient2Limit`, `VegasLimit`). Watermark and queue depth are the two rules
that autoscalers come with. Where a law limits requests it limits threads here, and what it calls a
round trip is the service time.
"""

from __future__ import annotations

import math

from benchmarks.simulator.drive import Seen
from hybridrt.control.window import Limits

__all__ = ["BetaPool", "Fixed", "Gradient2", "QueueDepth", "Vegas", "Watermark"]


class Fixed:
    """A size that never changes.

    Args:
        size: The size.
    """

    interval = 0.1

    def __init__(self, size: int) -> None:
        self.size = size

    def start(self, limits: Limits) -> int:
        """Return the size."""
        return self.size

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the size."""
        return self.size


class BetaPool:
    """Mean ratio of the last hundred calls: above 0.7 two more, below 0.3 one less, every 2 s at most.

    Its guard, 85 % of the system's CPU, is taken as the process alone would set it off.
    """

    interval = 0.5
    lowest, highest = 4, 64

    def __init__(self) -> None:
        self._changed = 0.0
        self._calls = 0

    def start(self, limits: Limits) -> int:
        """Return the smallest size."""
        return self.lowest

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        self._calls += seen.window.completed
        if seen.now - self._changed < 2.0 or self._calls < 10:
            return seen.size
        size = max(self.lowest, min(self.highest, seen.size + self._step(limits, seen)))
        if size != seen.size:
            self._changed = seen.now
        return size

    def _step(self, limits: Limits, seen: Seen) -> int:
        beta = sum(seen.betas) / len(seen.betas) if seen.betas else 0.5
        if beta > 0.7 and seen.window.lane_cpu / limits.cores < 0.85:
            return 2
        return -1 if beta < 0.3 else 0


class Gradient2:
    """Netflix' default limit: long over short service time times 1.5 tolerance, plus a queue of four."""

    interval = 1.0
    lowest, highest, first = 1.0, 200.0, 20.0
    smoothing, tolerance, queue, memory = 0.2, 1.5, 4.0, 600

    def __init__(self) -> None:
        self._limit = self.first
        self._long = 0.0
        self._samples = 0

    def start(self, limits: Limits) -> int:
        """Return the first size."""
        return int(self.first)

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        window = seen.window
        if window.completed >= 10:
            self._take_in(window.wall / window.completed, window.busy)
        return int(self._limit)

    def _take_in(self, short: float, busy: float) -> None:
        self._samples += 1
        weight = 1.0 / self._samples if self._samples <= 10 else 2.0 / (self.memory + 1)
        self._long += weight * (short - self._long)
        if self._long / short > 2.0:
            self._long *= 0.95
        if busy < self._limit / 2:
            return
        gradient = max(0.5, min(1.0, self.tolerance * self._long / short))
        wanted = self._limit * gradient + self.queue
        mixed = (1.0 - self.smoothing) * self._limit + self.smoothing * wanted
        self._limit = max(self.lowest, min(self.highest, mixed))


class Vegas:
    """Netflix' Vegas: the queue within the limit, L*(1 - least/now), between three and six log10 L."""

    interval = 1.0
    highest, first = 1000.0, 20.0

    def __init__(self) -> None:
        self._limit = self.first
        self._least = math.inf
        self._probes = 0

    def start(self, limits: Limits) -> int:
        """Return the first size."""
        return int(self.first)

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        window = seen.window
        if window.completed >= 10:
            self._take_in(window.wall / window.completed, window.busy)
        return int(self._limit)

    def _take_in(self, service: float, busy: float) -> None:
        self._probes += 1
        if self._probes >= 22 * self._limit:  # 30 times the limit with a jitter of 0.5 to 1
            self._probes, self._least = 0, service
        self._least = min(self._least, service)
        if busy * 2 < self._limit:
            return
        step = max(1, int(math.log10(self._limit)))
        queue = math.ceil(self._limit * (1.0 - self._least / service))
        self._limit = max(1.0, min(self.highest, self._limit + _vegas_step(queue, step)))


def _vegas_step(queue: int, step: int) -> int:
    if queue <= step:
        return 6 * step
    if queue < 3 * step:
        return step
    return -step if queue > 6 * step else 0


class Watermark:
    """Half as many more above 90 % of the threads busy, a quarter fewer below 50 %, every second."""

    interval = 1.0
    lowest, highest, first = 4, 256, 4

    def start(self, limits: Limits) -> int:
        """Return the smallest size."""
        return self.first

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        use = seen.window.busy / seen.size
        size = seen.size
        if use > 0.9:
            size = math.ceil(1.5 * size)
        elif use < 0.5:
            size = int(0.75 * size)
        return max(self.lowest, min(self.highest, size))


class QueueDepth:
    """A thread for every fourth queued call, one less when the queue is empty, twice a second."""

    interval = 0.5
    lowest, highest, first = 4, 256, 4

    def start(self, limits: Limits) -> int:
        """Return the smallest size."""
        return self.first

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        queued = seen.window.queued
        size = seen.size + math.ceil(queued / 4) if queued else seen.size - 1
        return max(self.lowest, min(self.highest, size))
