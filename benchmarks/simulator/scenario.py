"""What a simulated process has to do, and the best that any number of threads could do with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from benchmarks.simulator.network import Station, throughput_curve

__all__ = ["HIGHEST", "Call", "Load", "Machine", "Optimum", "Scenario", "Server", "Signals"]

HIGHEST = 256
"""Threads at most, in all scenarios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function: first it waits, then it computes; mean seconds.

    Attributes:
        share: Its share of the calls.
        wait: Time blocked that nobody else lengthens.
        served: Service time at the downstream server.
        gil: CPU time with the GIL.
        free: CPU time without it.
        spread: Coefficient of variation of each of these times; 0 is constant, 1 exponential.
    """

    share: float = 1.0
    wait: float = 0.0
    served: float = 0.0
    gil: float = 0.0
    free: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A disk or a connection pool downstream.

    Attributes:
        servers: Requests served at once.
        slowdown: Extra service time for each request beyond those, as a share.
    """

    servers: int
    slowdown: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What arrives from a moment on.

    Attributes:
        calls: The functions.
        since: Seconds after the start.
        rate: Arrivals per second, or 0 for a closed loop.
        clients: Clients of a closed loop, each with one call in flight.
        think: Mean pause of a client between two calls.
        burst: Calls that arrive together.
        server: The downstream server.
    """

    calls: tuple[Call, ...]
    since: float = 0.0
    rate: float = 0.0
    clients: int = 0
    think: float = 0.0
    burst: int = 1
    server: Server | None = None

    def mean(self, part: Literal["wait", "served", "gil", "free"]) -> float:
        """Return a mean over the mix."""
        total = sum(call.share for call in self.calls)
        return float(sum(call.share * getattr(call, part) for call in self.calls)) / total


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it runs.

    Attributes:
        gil: Whether there is a GIL.
        cores: Usable cores.
        switch_interval: The interpreter's, in seconds.
        switch_cost: GIL time lost when it changes hands.
        crowd_cost: The same for each further thread that asks for it.
        spinners: Computing calls beside, with permits of their own.
    """

    gil: bool = True
    cores: int = 2
    switch_interval: float = 0.0005
    switch_cost: float = 0.00001
    crowd_cost: float = 0.0000005
    spinners: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Which optional signals the policy gets, and how good they are.

    Attributes:
        gil: GIL use, its delay and the certified ratio.
        noise: Relative error of these and of the lane's CPU.
        knee_low: How many times too low the knee by profiles reads; 0 gives none.
    """

    gil: bool = True
    noise: float = 0.05
    knee_low: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best for one load.

    Attributes:
        throughput: Calls per second.
        knee: Threads that keep the bottleneck just busy; where the load fills none, the threads that its
            own peaks keep busy (square-root staffing, with the variance that bursts add).
        service: Seconds a call takes alone.
    """

    throughput: float
    knee: float
    service: float


@dataclass(frozen=True)
class Scenario:
    """A process and its loads, one after the other."""

    name: str
    loads: tuple[Load, ...]
    machine: Machine = field(default_factory=Machine)
    signals: Signals = field(default_factory=Signals)
    seconds: float = 20.0

    @cached_property
    def optima(self) -> tuple[Optimum, ...]:
        """The best for each load."""
        return tuple(_optimum(load, self.machine) for load in self.loads)


def stations(load: Load, machine: Machine) -> list[Station]:
    """Return where the calls of a load spend their time in the process.

    A spinning thread costs each call one switch interval and takes no capacity: the GIL goes round.
    """
    gil = load.mean("gil")
    slots = 1.0 if machine.gil else float(machine.cores)
    switch = machine.switch_cost if machine.gil and gil else 0.0
    turn = machine.spinners * machine.switch_interval if machine.gil and gil else 0.0
    served = load.mean("served")
    server = load.server
    return [
        Station(demand=load.mean("wait") + turn),
        Station(demand=served, servers=server.servers, slowdown=server.slowdown)
        if server
        else Station(demand=served),
        Station(demand=gil + switch, servers=slots),
        Station(demand=load.mean("free"), servers=float(machine.cores)),
    ]


def _optimum(load: Load, machine: Machine) -> Optimum:
    places = stations(load, machine)
    service = sum(place.demand for place in places)
    most = best = max(throughput_curve(places, HIGHEST))
    if load.clients:
        best = min(best, _closed(load, places))
    elif load.rate:
        best = min(best, load.rate)
    busy = best * service
    peaks = busy + 2.0 * math.sqrt(busy * (load.burst + 1) / 2) if load.rate else busy
    knee = max(1.0, busy, min(most * service, peaks))
    return Optimum(throughput=best, knee=knee, service=service)


def _closed(load: Load, places: list[Station]) -> float:
    """Return the throughput of a closed loop with as many threads as clients."""
    clients = min(load.clients, 2 * HIGHEST)
    return max(throughput_curve([*places, Station(demand=load.think)], clients))
