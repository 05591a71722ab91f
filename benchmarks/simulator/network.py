"""The optimum of a scenario: a closed queueing network, solved by convolution (Buzen 1973).

A pool of n threads under backlog is a closed network with n customers: they wait on their own, queue
for a downstream server and for the GIL, and start again. Its throughput has an exact product form for
exponential times; for other times it is an approximation, a good one except close to the knee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Station", "throughput_curve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A place where calls spend time.

    Attributes:
        demand: Mean seconds of service that a call needs there.
        servers: Calls served at once; infinite where nobody queues.
        slowdown: Extra service time per further call present, as a share of the demand.
    """

    demand: float
    servers: float = math.inf
    slowdown: float = 0.0

    def seconds(self, present: int) -> float:
        """Return the mean time between two departures while `present` calls are there."""
        crowd = max(0.0, present - self.servers) if math.isfinite(self.servers) else 0.0
        return self.demand * (1.0 + self.slowdown * crowd) / min(present, self.servers)


def throughput_curve(stations: Sequence[Station], population: int) -> list[float]:
    """Return the throughput with 1, 2, ... `population` calls in the network."""
    used = [station for station in stations if station.demand > 0.0 and math.isfinite(station.servers)]
    alone = sum(station.demand for station in stations if not math.isfinite(station.servers))
    if alone or not used:
        used.append(Station(demand=max(alone, 1e-9)))
    total = _log_factors(used[0], population)
    for station in used[1:]:
        total = _convolve(total, _log_factors(station, population))
    return [math.exp(total[n - 1] - total[n]) for n in range(1, population + 1)]


def _log_factors(station: Station, population: int) -> list[float]:
    """Return the logarithms of the station's factors, which themselves leave the range of a float."""
    factors = [0.0]
    for present in range(1, population + 1):
        factors.append(factors[-1] + math.log(station.seconds(present)))
    return factors


def _convolve(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [_log_sum([left[i] + right[n - i] for i in range(n + 1)]) for n in range(len(left))]


def _log_sum(logarithms: Sequence[float]) -> float:
    largest = max(logarithms)
    return largest + math.log(sum(math.exp(one - largest) for one in logarithms))
