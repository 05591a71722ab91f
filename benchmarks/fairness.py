"""What does a short computing call suffer from neighbours that never let go?

A call of 5 ms, one in flight, beside calls that compute without end, that wait for queued calls, or
that spin on another's result. What counts is the time from submission to result against what the call
would have taken alone at that moment: its usual time alone, in the same process just before, times what it
computed for over what it computes for alone; a shared machine changes its speed by half from one second to
the next. The first call beside a new neighbour is one of those timed. The standard library's pool shares
the GIL out evenly, until its threads are all taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import Spread, Target, percentile, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

BESIDE = (
    "one endless call",
    "eight endless calls",
    "calls that wait for queued ones",
    "a call that spins on another's result",
)
POOLS = {"stdlib": "stdlib pool", "hybridrt": "hybridrt"}
LIMIT = 4.0
"""What the 99th percentile beside one endless call may be, in times of the call alone."""

_NOTE = """\
Milliseconds from submission to result of a pure-Python call of {call:.0f} ms, {calls} of them one after
the other: the median over {count} fresh processes, then lowest and highest. *Times* is the 99th percentile,
in each process, of what each call took against the median alone; the latter is scaled by the CPU time of
that call over the median CPU time alone, because the machine does not keep its speed. *Lost* says in how
many processes a call did not come through within 20 s."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every pool beside every neighbour."""
    timing = {"call": 0.005, "calls": 20 if quick else 200}
    return [
        Candidate(
            name=f"{pool} beside {beside}",
            job="fairness",
            arguments={"pool": pool, "beside": beside, **timing},
            needs=("hybridrt",),
        )
        for beside in BESIDE
        for pool in POOLS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    every = candidates(quick=options.quick)
    repetitions = 2 if options.quick else 5
    head, samples = measure("fairness", __doc__, options, every, repetitions)
    found = {name: _figures(taken) for name, taken in samples.items()}
    targets = list(_targets(found, samples))
    note = _NOTE.format(count=repetitions, call=5.0, calls=every[0].arguments["calls"])
    data = {
        **head,
        "figures": {name: {k: v.to_dict() for k, v in of.items()} for name, of in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    parts = ["# Fairness: a short call beside neighbours that never let go", note, _table(found, samples)]
    parts += ["## Promises", table(("promise", "limit", "measured", ""), [t.row() for t in targets])]
    return Report(name="fairness", text="\n\n".join([*parts, describe(head)]), data=data)


def _targets(
    found: Mapping[str, Mapping[str, Spread]], samples: Mapping[str, Sequence[Sample]]
) -> Iterator[Target]:
    for beside in BESIDE:
        name = f"hybridrt beside {beside}"
        if name not in found:
            continue
        lost = spread([float(sample["lost"]) for sample in samples[name]])
        yield Target(claim=f"runs that lost a call, {beside}", figure=lost, limit=0.0)
        if beside == BESIDE[0] and "times" in found[name]:
            yield Target(
                claim=f"p99 in times of the call alone, {beside}", figure=found[name]["times"], limit=LIMIT
            )


def _figures(taken: Sequence[Sample]) -> dict[str, Spread]:
    alone = [median(sample["alone_ms"]) for sample in taken]
    through = [sample["beside_ms"] for sample in taken]
    found = {"alone": spread(alone)}
    if all(through):
        found["median"] = spread([median(times) for times in through])
        found["first"] = spread([times[0] for times in through])
        found["p99"] = spread([percentile(times, 0.99) for times in through])
        found["times"] = spread([percentile(times_alone(sample), 0.99) for sample in taken])
    return found


def times_alone(sample: Sample) -> list[float]:
    """Return what each call beside a neighbour took, in times of what it would have taken alone then."""
    alone, computing_alone = median(sample["alone_ms"]), median(sample["alone_cpu_ms"])
    calls = zip(sample["beside_ms"], sample["beside_cpu_ms"], strict=True)
    return [took / (alone * computed / computing_alone) for took, computed in calls]


def _table(found: Mapping[str, Mapping[str, Spread]], samples: Mapping[str, Sequence[Sample]]) -> str:
    rows = [
        (
            beside,
            title,
            *(_cell(found[name], figure) for figure in ("alone", "first", "median", "p99", "times")),
            f"{sum(sample['lost'] for sample in samples[name])} of {len(samples[name])}",
        )
        for beside in BESIDE
        for pool, title in POOLS.items()
        if (name := f"{pool} beside {beside}") in found
    ]
    return table(("beside", "pool", "alone", "first", "median", "p99", "times", "lost"), rows)


def _cell(figures: Mapping[str, Any], name: str) -> str:
    return figures[name].text(1) if name in figures else "never"
