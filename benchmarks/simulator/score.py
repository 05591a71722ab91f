"""How good a sizer was on a scenario: against the optimum, and against static pools in the same weather."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.simulator.dotnet import DotNet
from benchmarks.simulator.drive import Governed, Run, Sizer, simulate
from benchmarks.simulator.rivals import BetaPool, Fixed, Gradient2, QueueDepth, Vegas, Watermark
from benchmarks.simulator.scenario import HIGHEST, Scenario
from hybridrt.control.demand import DemandPolicy
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.throughput import ThroughputPolicy

__all__ = ["SIZERS", "Score", "Summary", "best_of", "score", "summarise"]

SIZERS: Mapping[str, Callable[[], Sizer]] = {
    "hybridrt": lambda: Governed(DemandPolicy()),
    "paper": lambda: Governed(PaperPolicy()),
    "throughput": lambda: Governed(ThroughputPolicy()),
    "BetaPool": BetaPool,
    ".NET": DotNet,
    "Gradient2": Gradient2,
    "Vegas": Vegas,
    "watermark": Watermark,
    "queue depth": QueueDepth,
}
_SPAN = 0.5
"""Seconds of a mean when looking for the moment at which 90 % is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A sizer on a scenario, in the seconds that count.

    Attributes:
        throughput: Share of the optimum.
        threads: Live threads per thread of the knee, mean.
        reached: Seconds until nine tenths of it; infinite if never.
        p99: Seconds from submission to result, of all calls of the run.
    """

    throughput: float
    threads: float
    reached: float
    p99: float


def best_of(scenario: Scenario, seed: int, since: float, until: float) -> float:
    """Return the throughput to compare with: the optimum, or less if no static pool came to that either.

    Random times of ten seconds deviate from their mean; static pools of three sizes meet the same ones.
    """
    optimum = scenario.optima[-1]
    staffed = optimum.knee + 2.0 * math.sqrt(optimum.knee)
    sizes = {min(HIGHEST, math.ceil(size)) for size in (staffed, 2.0 * staffed, HIGHEST)}
    static = max(simulate(scenario, Fixed(size), seed).throughput(since, until) for size in sizes)
    return min(optimum.throughput, static)


def score(scenario: Scenario, run: Run, best: float, since: float, until: float) -> Score:
    """Judge a run.

    Args:
        scenario: What was run.
        run: What came of it.
        best: The throughput to compare with.
        since: From when it counts, in seconds.
        until: Until when.
    """
    delays = sorted(delay for _, delay in run.ends)
    return Score(
        throughput=run.throughput(since, until) / best if best else 1.0,
        threads=fmean(run.threads(since, until)) / scenario.optima[-1].knee,
        reached=_reached(run, best, scenario.loads[-1].since),
        p99=delays[int(0.99 * len(delays))] if delays else math.inf,
    )


def _reached(run: Run, best: float, since: float) -> float:
    ends = [end for end, _ in run.ends]
    for tick in run.ticks:
        if tick.now < since + _SPAN:
            continue
        calls = bisect_left(ends, tick.now) - bisect_left(ends, tick.now - _SPAN)
        if calls / _SPAN >= 0.9 * best:
            return tick.now - since
    return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Scores of one sizer over many scenarios."""

    worst: float
    tenth: float
    median: float
    within_knee: float
    threads: float
    threads_high: float
    reached: float
    reached_high: float


def summarise(scores: Sequence[Score]) -> Summary:
    """Return what is reported of many scores; `tenth` is the 10th percentile, `high` the 90th."""
    shares = sorted(one.throughput for one in scores)
    threads = sorted(one.threads for one in scores)
    reached = sorted(one.reached for one in scores)
    tenth, ninetieth = len(scores) // 10, min(len(scores) - 1, 9 * len(scores) // 10)
    return Summary(
        worst=shares[0],
        tenth=shares[tenth],
        median=median(shares),
        within_knee=sum(one <= 3.0 for one in threads) / len(threads),
        threads=median(threads),
        threads_high=threads[ninetieth],
        reached=median(reached),
        reached_high=reached[ninetieth],
    )
