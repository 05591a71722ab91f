"""A discrete-event model of a process: a queue, a pool of threads, a server, a GIL, cores.

A call is taken from the queue when fewer than `size` run, waits on its own, is served downstream,
and computes. The GIL goes round the threads that ask for it, each for the switch interval at most;
spinning threads never stop asking. Not in the model: that the kernel may have no core for the
thread whose turn it is, and that a blocked thread must wake first.

Arrivals have random numbers of their own, and a call's times are drawn when it arrives: the n-th call
is the same one, and of an open load comes at the same moment, whatever the size of the pool.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

from benchmarks.simulator.scenario import Load, Scenario

__all__ = ["Counters", "Job", "Process"]


class Job:
    """One call on its way through the process."""

    __slots__ = (
        "arrived", "blocked", "client", "free", "gil_left", "gil_turns", "served", "spins", "started",
        "think", "used", "wait",
    )  # fmt: skip

    def __init__(self, arrived: float, *, client: bool = False, spins: bool = False) -> None:
        self.arrived = self.started = arrived
        self.client, self.spins = client, spins
        self.wait = self.served = self.free = self.think = 0.0
        self.gil_left = self.used = self.blocked = 0.0
        self.gil_turns = 0


class Counters:
    """Sums since the start; what windows are made of."""

    __slots__ = (
        "arrived", "blocked", "busy", "completed", "cpu", "gil", "lane_cpu", "last_start", "live", "turns",
        "wall",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrived = self.completed = self.live = self.turns = 0
        self.wall = self.cpu = self.busy = self.lane_cpu = self.gil = self.blocked = 0.0
        self.last_start = 0.0


class Process:
    """The process of a scenario; `advance` runs it, `size` may change in between.

    Args:
        scenario: What it has to do.
        size: Threads at most at first.
        seed: Of its random times; the same for all sizers.
        finished: Called with each finished call and the time.
    """

    def __init__(
        self, scenario: Scenario, size: int, seed: int, finished: Callable[[Job, float], None] | None = None
    ) -> None:
        self.now = 0.0
        self.size = size
        self.running = 0
        self.queue: deque[Job] = deque()
        self.sums = Counters()
        self._machine = scenario.machine
        self._random = random.Random(seed)
        self._arrivals = random.Random(f"{seed} arrivals")
        self._finished = finished
        self._events: list[tuple[float, int, Callable[[Job], None], Job]] = []
        self._number = 0
        self.load = scenario.loads[0]
        self.betas: deque[float] = deque(maxlen=100)
        self._busy_since = 0.0
        self._serving = self._computing = self._holding = 0
        self._at_server: deque[tuple[Job, float]] = deque()
        self._at_cores: deque[Job] = deque()
        self._at_gil: deque[Job] = deque()
        self._slots = 1 if self._machine.gil else self._machine.cores
        self._generation = 0
        for load in scenario.loads:
            self._at(load.since, self._entering(load), _NOBODY)
        for _ in range(self._machine.spinners):
            self._ask_gil(Job(0.0, spins=True))

    def advance(self, until: float) -> None:
        """Run up to a moment."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, act, job = heapq.heappop(events)
            act(job)
        self.now = until
        self._count_busy()

    def resize(self, size: int) -> None:
        """Change the number of threads; running calls go on."""
        self.size = size
        self._start_waiting()

    def head_age(self) -> float:
        """Return how long the oldest queued call has waited."""
        return self.now - self.queue[0].arrived if self.queue else 0.0

    def gil_line(self) -> int:
        """Return how many threads have the GIL or wait for it."""
        return self._holding + len(self._at_gil)

    # ------------------------------------------------------------------ arrivals

    def _at(self, time: float, act: Callable[[Job], None], job: Job) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, act, job))

    def _entering(self, load: Load) -> Callable[[Job], None]:
        return lambda _: self._enter(load)

    def _enter(self, load: Load) -> None:
        """Begin with another load: an open stream goes over, clients of a closed loop leave or join."""
        before, self.load = self.load, load
        self._generation += 1
        if load.rate:
            self._arrive_later(self._generation)
        kept = before.clients if before is not load else 0
        for _ in range(load.clients - kept):
            self._arrive(client=True)

    def _arrive_later(self, generation: int) -> None:
        pause = self._arrivals.expovariate(self.load.rate / self.load.burst)
        self._at(self.now + pause, lambda _: self._arrive_together(generation), _NOBODY)

    def _arrive_together(self, generation: int) -> None:
        if generation != self._generation:
            return
        for _ in range(self.load.burst):
            self._arrive(client=False)
        self._arrive_later(generation)

    def _arrive(self, *, client: bool) -> None:
        if client and not self.load.clients:
            return
        self.sums.arrived += 1
        self.queue.append(self._make(client=client))
        self._start_waiting()

    def _make(self, *, client: bool) -> Job:
        """Return a call that arrives now, all its times drawn."""
        calls = self.load.calls
        kind = calls[0]
        if len(calls) > 1:
            kind = self._random.choices(calls, [call.share for call in calls])[0]
        job = Job(self.now, client=client)
        job.wait, job.served = self._draw(kind.wait, kind.spread), self._draw(kind.served, kind.spread)
        job.gil_left = job.used = self._draw(kind.gil, kind.spread)
        job.free = self._draw(kind.free, kind.spread)
        job.think = self._draw(self.load.think, 1.0) if client else 0.0
        return job

    def _start_waiting(self) -> None:
        while self.queue and self.running < self.size:
            self._count_busy()
            self.running += 1
            self.sums.live = max(self.sums.live, self.running)
            job = self.queue.popleft()
            job.started = self.sums.last_start = self.now
            self._wait(job)

    # ------------------------------------------------------------------ a call's way

    def _draw(self, mean: float, spread: float) -> float:
        if mean <= 0.0 or spread == 0.0:
            return mean
        if spread == 1.0:
            return self._random.expovariate(1.0 / mean)
        sigma = math.sqrt(math.log(1.0 + spread * spread))
        return self._random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)

    def _wait(self, job: Job) -> None:
        self._at(self.now + job.wait, self._ask_server, job)

    def _ask_server(self, job: Job) -> None:
        seconds, server = job.served, self.load.server
        if not seconds or server is None:
            self._at(self.now + seconds, self._wake, job)
        elif self._serving < server.servers:
            self._serve(job, seconds)
        else:
            self._at_server.append((job, seconds))

    def _serve(self, job: Job, seconds: float) -> None:
        self._serving += 1
        slowdown = self.load.server.slowdown if self.load.server else 0.0
        self._at(self.now + seconds * (1.0 + slowdown * len(self._at_server)), self._leave_server, job)

    def _leave_server(self, job: Job) -> None:
        self._serving -= 1
        limit = self.load.server.servers if self.load.server else 1 << 30
        while self._at_server and self._serving < limit:
            self._serve(*self._at_server.popleft())
        self._wake(job)

    def _wake(self, job: Job) -> None:
        job.blocked = self.now - job.started
        if job.gil_left:
            self._ask_gil(job)
        else:
            self._ask_core(job)

    def _ask_gil(self, job: Job) -> None:
        self._at_gil.append(job)
        self._grant_gil()

    def _grant_gil(self) -> None:
        machine = self._machine
        while self._at_gil and self._holding < self._slots:
            job = self._at_gil.popleft()
            self._holding += 1
            job.gil_turns += 1
            limit = machine.switch_interval if machine.gil else math.inf
            slice_ = limit if job.spins else min(job.gil_left, limit)
            if not self._at_gil and not job.spins:
                slice_ = job.gil_left  # nobody asks for it; whoever comes meanwhile is served after
            cost = machine.switch_cost + machine.crowd_cost * len(self._at_gil) if machine.gil else 0.0
            job.gil_left -= slice_
            if not job.spins:
                self.sums.lane_cpu += slice_ + cost
                job.used += cost
            self.sums.gil += slice_ + cost
            self._at(self.now + slice_ + cost, self._leave_gil, job)

    def _leave_gil(self, job: Job) -> None:
        self._holding -= 1
        if job.spins or job.gil_left > 1e-12:
            self._ask_gil(job)
        else:
            self._grant_gil()
            self._ask_core(job)

    def _ask_core(self, job: Job) -> None:
        if not job.free:
            self._finish(job)
        elif self._computing < self._machine.cores:
            self._compute(job)
        else:
            self._at_cores.append(job)

    def _compute(self, job: Job) -> None:
        self._computing += 1
        job.used += job.free
        self.sums.lane_cpu += job.free
        self._at(self.now + job.free, self._leave_core, job)

    def _leave_core(self, job: Job) -> None:
        self._computing -= 1
        if self._at_cores:
            self._compute(self._at_cores.popleft())
        self._finish(job)

    def _finish(self, job: Job) -> None:
        self._count_busy()
        self.running -= 1
        sums = self.sums
        sums.completed += 1
        sums.wall += self.now - job.started
        sums.cpu += job.used
        sums.blocked += job.blocked
        sums.turns += job.gil_turns
        self.betas.append(1.0 - job.used / max(1e-9, self.now - job.started))
        if self._finished is not None:
            self._finished(job, self.now)
        if job.client:
            self._at(self.now + job.think, lambda _: self._arrive(client=True), _NOBODY)
        self._start_waiting()

    def _count_busy(self) -> None:
        self.sums.busy += self.running * (self.now - self._busy_since)
        self._busy_since = self.now


_NOBODY = Job(0.0)
