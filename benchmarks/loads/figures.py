"""The arithmetic on the findings of a load. Pure; knows no processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, geometric_mean, median
from typing import Any

from benchmarks.figures import Spread, ratios, spread
from benchmarks.harness import Sample

__all__ = [
    "at_once",
    "average_efficiency",
    "efficiency",
    "loop_delays",
    "loop_over_limit",
    "over_phases",
    "p99_ratio",
    "paired",
    "ramp_seconds",
    "ramps",
    "reason_shares",
    "share_of_best",
    "share_of_cores",
    "was_brief",
]

Findings = Mapping[str, Any]

LOOP_SECONDS = 0.005
"""p99 of the loop's delay that is good enough, however small that of the best static pool is."""
LOOP_SHARE = 0.1
"""Share of that of the best static pool that is good enough, too."""
_BUCKET = 0.1
_SPAN = 5
"""Buckets that a rate is taken over: half a second."""


def over_phases(sample: Sample, what: str) -> float:
    """Return a rate or a time over the phases of a run, as their geometric mean.

    The phases of a load differ in rate by orders of magnitude; so each counts alike. One in which
    nothing came back, which happens in quick runs, counts as half a call that took all of it.
    """
    return geometric_mean([phase[what] or _nothing(phase, what) for phase in sample["phases"]])


def _nothing(phase: Mapping[str, Any], what: str) -> float:
    seconds = max(1, len(phase["timeline"])) * _BUCKET
    return 0.5 / seconds if what == "rate" else seconds


def at_once(sample: Sample) -> float:
    """Return how many calls ran at once at the end, as the mean over the phases."""
    return fmean(phase["running"] for phase in sample["phases"])


def paired(findings: Findings, what: str) -> tuple[list[float], list[float]]:
    """Return a figure of ours and of the best static pool, pair by pair."""
    ours, best = ([over_phases(pair[side], what) for pair in findings["pairs"]] for side in ("ours", "best"))
    return ours, best


def efficiency(findings: Findings) -> Spread:
    """Return the throughput of ours as a share of the best static size's."""
    return ratios(*paired(findings, "rate"))


def p99_ratio(findings: Findings, what: str = "total") -> Spread:
    """Return p99 of ours over that of the best static size: `total` from submission, `run` in a thread."""
    return ratios(*paired(findings, f"{what}_p99"))


def average_efficiency(found: Sequence[Findings], of: Callable[[Findings], Spread] = efficiency) -> Spread:
    """Return the mean over the loads of their median efficiency, none of them counted above 1.

    Where ours is faster than any static pool, or the sweep missed the best, that hides no loss elsewhere.
    """
    return spread([fmean(min(1.0, of(findings).median) for findings in found)])


def ramp_seconds(timeline: Sequence[int], wanted: float) -> float | None:
    """Return seconds from the cold start until the rate of half a second is `wanted`; None if it never is.

    The half second begins at the time returned: from then on calls come back at that rate.
    """
    for first in range(len(timeline) - _SPAN + 1):
        if sum(timeline[first : first + _SPAN]) / (_SPAN * _BUCKET) >= wanted:
            return first * _BUCKET
    return None


def ramps(findings: Findings) -> Spread | None:
    """Return the time to 90 % of the best static pool's rate in its second half, over the pairs.

    A run that never gets there counts with its whole length. None for a load with phases, where the
    start is only one of several.
    """
    if any(len(pair["ours"]["phases"]) > 1 for pair in findings["pairs"]):
        return None
    return spread([_ramp(pair["ours"], pair["best"]) for pair in findings["pairs"]])


def _ramp(ours: Sample, best: Sample) -> float:
    timeline = ours["phases"][0]["timeline"]
    found = ramp_seconds(timeline, 0.9 * _settled_rate(best["phases"][0]["timeline"]))
    return len(timeline) * _BUCKET if found is None else found


def _settled_rate(timeline: Sequence[int]) -> float:
    half = timeline[len(timeline) // 2 :]
    return sum(half) / (len(half) * _BUCKET)


def share_of_best(findings: Findings, pool: str, what: str = "rate") -> Spread | None:
    """Return a figure of an alternative as a share of the best static size's; None if it did not run.

    Formed with the run of the best size beside it; with their median where it ran less often than that.
    """
    found = [over_phases(sample, what) for sample in findings["alternatives"].get(pool, ())]
    best = paired(findings, what)[1]
    if not found:
        return None
    return ratios(found, best if len(found) == len(best) else [median(best)] * len(found))


def loop_delays(findings: Findings) -> dict[str, float]:
    """Return p99 of the loop's delay in seconds of every candidate, as the median of its runs.

    Static sizes are points of the sweep, one run each; those of older reports have none.
    """
    points = {f"static {size}": point.get("loop") for size, point in findings["sweep"].items()}
    runs = {side: [pair[side] for pair in findings["pairs"]] for side in ("best", "ours")}
    runs |= findings["alternatives"]
    found = {
        name: median(sample["loop_delay_p99"] or 0.0 for sample in of) for name, of in runs.items() if of
    }
    return {name: delay for name, delay in points.items() if delay is not None} | found


def loop_over_limit(findings: Findings, pool: str) -> Spread | None:
    """Return p99 of the loop's delay over what it may be, for `ours` or an alternative; None if none ran.

    It may be 5 ms, or a tenth of that of the best static size in the run beside it.
    """
    best, ours = ([pair[side] for pair in findings["pairs"]] for side in ("best", "ours"))
    runs = ours if pool == "ours" else findings["alternatives"].get(pool, ())
    if len(runs) != len(best):
        return None
    limits = [max(LOOP_SECONDS, LOOP_SHARE * (sample["loop_delay_p99"] or 0.0)) for sample in best]
    return ratios([sample["loop_delay_p99"] or 0.0 for sample in runs], limits)


def reason_shares(findings: Findings) -> dict[str, float]:
    """Return how often each reason decided the size of ours: shares of the decisions of all runs."""
    reasons = Counter(
        reason
        for pair in findings["pairs"]
        for _, _, reason, _ in pair["ours"]["statistics"].get("decisions", ())
    )
    return {reason: count / reasons.total() for reason, count in reasons.most_common()}


def was_brief(findings: Findings, pool: str) -> bool:
    """Return True if an alternative ran for less time or less often than ours."""
    runs = findings["alternatives"].get(pool, ())
    return findings["alternative_seconds"] < findings["seconds"] or len(runs) < len(findings["pairs"])


def share_of_cores(findings: Findings) -> Spread:
    """Return the throughput of ours over (usable cores) times that of one thread, from the sweep."""
    full = findings["facts"]["usable_cpus"] * findings["sweep"]["1"]["rate"]
    return spread([rate / full for rate in paired(findings, "rate")[0]])
