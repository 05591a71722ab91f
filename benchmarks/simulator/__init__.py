"""How close to the best possible size does each sizing law come, in a model of a process with a GIL?

A discrete-event model (`process`) with an analytic optimum (`network`); no real time is measured, so a
noisy machine changes nothing. The law was tuned on the random scenarios of five seeds; a full run shows
two others, on which it must never be tuned (`scenarios.HOLDOUT`). So as not to look at these more often
than a report needs, a run with `--quick` or `--only` shows two of the five.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.figures import table
from benchmarks.harness import Options, Report, describe, header
from benchmarks.simulator.drive import Run, simulate
from benchmarks.simulator.scenario import Scenario
from benchmarks.simulator.scenarios import HOLDOUT, NAMED, SEEN, TUNING, draw_many
from benchmarks.simulator.score import SIZERS, Score, Summary, best_of, score, summarise

__all__ = ["run"]

_SEED = 5
"""Of the random times within a scenario."""
_LIMITS = {
    "median": (0.99, "median share of the optimum"),
    "tenth": (0.93, "10th percentile"),
    "worst": (0.80, "worst"),
    "within_knee": (0.90, "share of the scenarios with at most 3 threads per thread of the knee"),
}
_NOTE = """\
{count} random scenarios, of the seeds {seeds}: open and closed loads, bursts, mixes, downstream servers,
with and without a GIL, constant to heavy-tailed times, good, noisy and missing signals.
{tuned}

Throughput 10 to 20 s after the start as a share of the optimum (analytic; no more than what static pools of
three sizes reach with the same random times). Threads: live ones per thread of the knee. Seconds: to 90 % of
the optimum."""
_UNSEEN = """\
These seeds were drawn by chance on 2026-11-23, and the law was never tuned on them. The two before, {seen},
had been looked at in three reports while the law was still being changed."""
_TUNED = "The law was tuned on these seeds, among others."
_NAMED_NOTE = """\
Throughput in the last ten seconds as a share of the optimum, and live threads there; the knee is the
number of threads that the bottleneck, or the load if it is less, keeps busy."""


def run(options: Options) -> Report:
    """Run all sizers on all scenarios and return the report."""
    head = header(__doc__, options, 1, [])
    names = [name for name in SIZERS if not options.only or any(part in name for part in options.only)]
    if not names:
        raise ValueError(f"--only must match a sizer, got {', '.join(options.only)}; there are: {[*SIZERS]}")
    count = 2 if options.quick else 40
    unseen = not options.quick and not options.only
    seeds = HOLDOUT if unseen else TUNING[: len(HOLDOUT)]
    random = [scenario for seed in seeds for scenario in draw_many(seed, count)]
    named = NAMED[:2] if options.quick else NAMED
    with ProcessPoolExecutor() as processes:
        judged = list(processes.map(partial(_judge, names=names), [*random, *named]))
    overall = {name: summarise([scores[name] for scores, _ in judged[: len(random)]]) for name in names}
    data = {
        **head,
        "seeds": seeds,
        "summary": {name: asdict(summary) for name, summary in overall.items()},
        "scenarios": {
            scenario.name: {name: asdict(one) for name, one in scores.items()}
            for scenario, (scores, _) in zip([*random, *named], judged, strict=True)
        },
        "curves": {
            scenario.name: curves for scenario, (_, curves) in zip(named, judged[len(random) :], strict=True)
        },
    }
    parts = ["# Simulator: sizing laws against the optimum"]
    title = "Scenarios that the law was not tuned on" if unseen else "Scenarios that the law was tuned on"
    parts += [f"## {title}", _note(len(random), seeds, unseen=unseen), _overall(overall)]
    parts += ["## By name", _NAMED_NOTE, _by_name(named, [scores for scores, _ in judged[len(random) :]])]
    if unseen:
        parts += ["## Promises", _promises(overall["hybridrt"])]
    return Report(name="simulator", text="\n\n".join([*parts, describe(head)]), data=_finite(data))


def _note(count: int, seeds: Sequence[int], *, unseen: bool) -> str:
    names, seen = (" and ".join(map(str, each)) for each in (seeds, SEEN))
    return _NOTE.format(count=count, seeds=names, tuned=_UNSEEN.format(seen=seen) if unseen else _TUNED)


def _judge(scenario: Scenario, names: Sequence[str]) -> tuple[dict[str, Score], dict[str, Any]]:
    since, until = scenario.seconds - 10.0, scenario.seconds
    best = best_of(scenario, _SEED, since, until)
    scores, curves = {}, {}
    for name in names:
        came = simulate(scenario, SIZERS[name](), _SEED)
        scores[name] = score(scenario, came, best, since, until)
        curves[name] = _curve(came)
    return scores, curves


def _curve(came: Run) -> dict[str, list[float]]:
    """Return threads and throughput over time, five points a second."""
    steps = range(1, int(came.scenario.seconds * 5) + 1)
    times = [step / 5 for step in steps]
    sizes = [next((tick.size for tick in came.ticks if tick.now >= time), 0) for time in times]
    rates = [0.0] * len(times)
    for end, _ in came.ends:
        rates[min(len(rates) - 1, int(end * 5))] += 5.0
    return {"seconds": times, "size": [float(size) for size in sizes], "throughput": rates}


def _overall(summaries: Mapping[str, Summary]) -> str:
    head = ("sizer", "worst", "10 %", "median", "threads", "90 %", "<= 3 knees", "seconds", "90 %")
    return table(head, [_row(name, one) for name, one in summaries.items()])


def _row(name: str, one: Summary) -> tuple[str, ...]:
    shares = (f"{share:.2f}" for share in (one.worst, one.tenth, one.median))
    threads = (f"{one.threads:.1f}", f"{one.threads_high:.1f}", f"{one.within_knee:.0%}")
    return (name, *shares, *threads, _seconds(one.reached), _seconds(one.reached_high))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if math.isfinite(seconds) else "never"


def _by_name(scenarios: Sequence[Scenario], scored: Sequence[Mapping[str, Score]]) -> str:
    head = ("scenario", "knee", *scored[0])
    return table(head, list(_name_rows(scenarios, scored)))


def _name_rows(
    scenarios: Sequence[Scenario], scored: Sequence[Mapping[str, Score]]
) -> Iterator[tuple[str, ...]]:
    for scenario, scores in zip(scenarios, scored, strict=True):
        knee = scenario.optima[-1].knee
        cells = (f"{one.throughput:.0%}, {one.threads * knee:.0f}" for one in scores.values())
        yield (scenario.name, f"{knee:.0f}", *cells)


def _promises(ours: Summary) -> str:
    rows = []
    for name, (limit, claim) in _LIMITS.items():
        value = getattr(ours, name)
        rows.append((claim, f">= {limit:.2f}", f"{value:.3f}", "held" if value >= limit else "missed"))
    return table(("hybridrt", "limit", "simulated", ""), rows)


def _finite(data: Any) -> Any:
    """Replace what JSON cannot hold by None."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
