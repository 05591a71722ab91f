"""Let a sizer govern a simulated process, and keep what came of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.simulator.process import Counters, Job, Process
from benchmarks.simulator.scenario import HIGHEST, Scenario
from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.governor.shield import LOOP_DELAY_TARGET
from hybridrt.values import Reason

__all__ = ["Governed", "Run", "Seen", "Sizer", "Tick", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a sizer may look at.

    Attributes:
        now: Seconds since the start.
        size: Threads at most now.
        window: What happened since the last decision.
        head_age: How long the oldest queued call has waited; 0 without one.
        since_start: Time since a call last started; None while none runs.
        betas: The ratios of the last hundred calls, for sizers that average over calls.
    """

    now: float
    size: int
    window: Window
    head_age: float
    since_start: float | None
    betas: list[float]


class Sizer(Protocol):
    """Something that sizes a pool of threads."""

    interval: float

    def start(self, limits: Limits) -> int:
        """Return the first size."""
        ...

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        ...


class Governed:
    """A policy of the package as a sizer.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.interval = policy.interval
        self.state: State | None = None

    def start(self, limits: Limits) -> int:
        """Return the first size."""
        self.state = self.policy.start(limits)
        return self.state.workers

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        self.state = self.policy.decide(limits, self.state or self.policy.start(limits), seen.window)
        return self.state.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One decision: when, from what, to what, why, the calls that came so far, and how fast they ended."""

    now: float
    size: int
    live: int
    arrived: int
    queued: int
    throughput: float
    reason: Reason | None = None


@dataclass(slots=True)
class Run:
    """What came of a scenario under a sizer."""

    scenario: Scenario
    limits: Limits
    ticks: list[Tick] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)
    """When each call ended, and how long that was after its submission."""
    windows: list[Window] = field(default_factory=list)

    def throughput(self, since: float, until: float) -> float:
        """Return the calls that ended per second in a span."""
        return sum(since <= end < until for end, _ in self.ends) / (until - since)

    def sizes(self, since: float, until: float) -> list[int]:
        """Return the sizes decided in a span."""
        return [tick.size for tick in self.ticks if since <= tick.now < until]

    def threads(self, since: float, until: float) -> list[int]:
        """Return the live threads at the decisions in a span."""
        return [tick.live for tick in self.ticks if since <= tick.now < until]


_MOVED = 2e6
"""Bytes that each call reads or writes in the model, as its last step."""


class _Eyes:
    """Makes windows out of counters, with the errors that the real ones have."""

    def __init__(self, scenario: Scenario, process: Process, seed: int) -> None:
        self._machine, self._signals = scenario.machine, scenario.signals
        self._process = process
        self._random = random.Random(seed + 1)
        self._before = self._sums()
        self._opened = 0.0

    def window(self) -> Window:
        """Close the window that is open."""
        process, sums = self._process, self._sums()
        seconds = process.now - self._opened
        self._opened = process.now
        past = {name: sums[name] - before for name, before in self._before.items()}
        self._before = sums
        calls = int(past["completed"])
        lane_cpu = past["lane_cpu"] / seconds * self._error()
        gil = self._machine.gil and self._signals.gil
        return Window(
            seconds=seconds,
            queued=len(process.queue),
            running=process.running,
            completed=calls,
            wall=past["wall"],
            cpu=min(past["cpu"], past["wall"]),
            busy=past["busy"] / seconds,
            lane_cpu=lane_cpu,
            beta_certified=self._certified(past) if gil and calls else None,
            gil_share=self._gil_share(past["gil"] / seconds) if gil else None,
            knee=self._knee(),
            loop_lateness=self._loop_lateness() if self._machine.gil else None,
            moved=calls * _MOVED / seconds,
        )

    def _sums(self) -> dict[str, float]:
        return {name: getattr(self._process.sums, name) for name in Counters.__slots__}

    def _error(self) -> float:
        return max(0.0, self._random.gauss(1.0, self._signals.noise))

    def _certified(self, past: dict[str, float]) -> float:
        """Return the blocking ratio less a switch interval for each time a thread was scheduled in."""
        doubt = (past["turns"] + past["completed"]) * self._machine.switch_interval
        return max(0.0, past["blocked"] - doubt) / past["wall"] if past["wall"] else 0.0

    def _gil_share(self, share: float) -> float:
        """Return what some ten looks at the GIL would find."""
        return sum(self._random.random() < share for _ in range(10)) / 10

    def _loop_lateness(self) -> float:
        """Return how late a loop would be that asks for the GIL now, behind all in line for it."""
        line = self._process.gil_line()
        return line * self._machine.switch_interval / LOOP_DELAY_TARGET

    def _knee(self) -> float | None:
        """Return the size that fills GIL or cores by the profiles, too low as their waits are."""
        low = self._signals.knee_low
        if not low or self._process.sums.completed < 16:
            return None
        load, machine = self._process.load, self._machine
        slots = 1 if machine.gil else machine.cores
        gil, free = load.mean("gil"), load.mean("free")
        fullest = max(gil / slots, (gil + free) / machine.cores)
        service = gil + free + load.mean("wait") + load.mean("served")
        return max(1.0, service / fullest / low) if fullest else None


def simulate(
    scenario: Scenario, sizer: Sizer, seed: int, *, until: float | None = None, keep_windows: bool = False
) -> Run:
    """Run a scenario under a sizer.

    Args:
        scenario: What to run.
        sizer: What sizes the pool.
        seed: Of all random times; the same arrivals for every sizer.
        until: Seconds to run; None: as many as the scenario says.
        keep_windows: Keep the windows too.
    """
    end = scenario.seconds if until is None else until
    machine = scenario.machine
    cores = float(machine.cores)
    limits = Limits(lowest=1, highest=HIGHEST, capacity=1.0 if machine.gil else cores, cores=cores)
    run = Run(scenario, limits)
    process = Process(scenario, sizer.start(limits), seed, lambda job, now: _note(run, job, now))
    eyes = _Eyes(scenario, process, seed)
    late = random.Random(seed + 2)
    crew = _Crew()
    while process.now < end:
        # The governor mostly naps for 2 to 16 ms and closes a window when it finds it over.
        process.advance(min(end, process.now + sizer.interval + late.uniform(0.0, 0.016)))
        window = eyes.window()
        seen = _see(process, window)
        process.resize(limits.clamp(sizer.decide(limits, seen)))
        run.ticks.append(_tick(process, window, sizer, crew))
        if keep_windows:
            run.windows.append(window)
    return run


class _Crew:
    """Live threads: as many as ran at once, until they were idle for ten seconds or are too many."""

    idle_timeout = 10.0

    def __init__(self) -> None:
        self._peaks: list[tuple[float, int]] = []

    def live(self, process: Process) -> int:
        """Return the threads alive now."""
        self._peaks.append((process.now, process.sums.live))
        process.sums.live = process.running
        while self._peaks[0][0] < process.now - self.idle_timeout:
            self._peaks.pop(0)
        return max(process.running, min(process.size, max(peak for _, peak in self._peaks)))


def _see(process: Process, window: Window) -> Seen:
    return Seen(
        now=process.now,
        size=process.size,
        window=window,
        head_age=process.head_age(),
        since_start=process.now - process.sums.last_start if process.running else None,
        betas=list(process.betas),
    )


def _note(run: Run, job: Job, now: float) -> None:
    run.ends.append((now, now - job.arrived))


def _tick(process: Process, window: Window, sizer: Sizer, crew: _Crew) -> Tick:
    return Tick(
        now=process.now,
        size=process.size,
        live=crew.live(process),
        arrived=process.sums.arrived,
        queued=window.queued,
        throughput=window.completed / window.seconds,
        reason=sizer.state.reason if isinstance(sizer, Governed) and sizer.state else None,
    )
