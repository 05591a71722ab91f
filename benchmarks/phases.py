"""Does the loop stay awake beside many calls that wait first and compute then?

128 callers stand in a loop and each call waits and then computes: what a synchronous tool of an agent does
that fetches and parses. A timer of 5 ms on the same loop says how late the loop is. The standard library's
pool does so at five sizes, to see what the best fixed size gives, and anyio with its 40 threads. The first
load comes once more, after some seconds of two callers, as in a service that was quiet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.children.phases import FILLS_CORES
from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["FEW_FIRST", "IN_FLIGHT", "LOADS", "best_size", "candidates", "each", "run"]

IN_FLIGHT = 128

FEW_FIRST = "50 ms + 5 ms Python, few first"
"""The first load again, after some seconds of two callers: by then the function is known."""
LOADS = ("50 ms + 5 ms Python", "5 ms + 1 ms Python", "30 ms + json.loads", "20 ms + numpy", FEW_FIRST)
SIZES = (8, 16, 32, 64, 128)
OURS = ("bare executor", "Runtime")
_WAYS = {
    **{f"static {size}": ("static", size) for size in SIZES},
    "anyio.to_thread": ("anyio", 0),
    "bare executor": ("bare", 0),
    "Runtime": ("runtime", 0),
}
LATE_MS = 5.0
"""Milliseconds that the 99th percentile of the loop's lateness may be where the phase computes in Python."""
TIMERS = 1.5
"""What it may be where native threads fill every core, over the lateness of a timer in another process."""
C_CALLS = 2.0
"""What it may be where the phase is one C call that holds the GIL, over the CPU time of such a call."""
THROUGHPUT = 0.95
"""Share of the calls per second of the best fixed size."""
FIGURES = {"calls": "calls/s", "loop": "loop p99", "cold": "cold, slowest", "call": "call p99"}
BESIDE = {"timer": "timer beside"}
"""Measured under `FILLS_CORES` alone."""

_NOTE = """\
{in_flight} calls in flight for {seconds:.0f} s, the first {warm:.0f} of which are only in *cold*: the median
over {count} fresh processes, then lowest and highest, in milliseconds. *Loop p99* is the lateness of a 5 ms
timer on the loop that is not exceeded for 99 % of the time; *cold* is its slowest beat of the first seconds.
The timer beats for half of the time and the calls are counted in the other half: a loop that is on time pays
for each beat, a late one leaves most of them out. Callers and pool share one process. *Timer beside* is
the lateness of such a timer on a loop that does nothing else, in another process: native threads fill the
cores there."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every pool under every load."""
    timing = {"seconds": 3.0, "warm": 1.0} if quick else {"seconds": 8.0, "warm": 2.0}
    return [
        Candidate(
            name=f"{title} under {load}",
            job="phases",
            arguments={
                "load": load.partition(",")[0],
                "way": way,
                "size": size,
                "loop": "asyncio",
                "in_flight": IN_FLIGHT,
                "few": 2 * timing["warm"] if load == FEW_FIRST else 0.0,
                **timing,
            },
            needs=(
                *(("hybridrt",) if title in OURS else ()),
                *(("anyio",) if way == "anyio" else ()),
                *(("numpy",) if "numpy" in load else ()),
            ),
        )
        for load in LOADS
        for title, (way, size) in _WAYS.items()
        if load != FEW_FIRST or title in (*OURS, "static 16", "static 32")
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 5
    head, samples = measure("phases", __doc__, options, every, repetitions)
    found = {
        name: {figure: spread(each(taken, figure)) for figure in FIGURES | BESIDE if figure in taken[0]}
        for name, taken in samples.items()
    }
    targets = [target for load in LOADS for target in _targets(load, samples)]
    arguments = every[0].arguments
    note = _NOTE.format(
        count=repetitions,
        in_flight=arguments["in_flight"],
        seconds=arguments["seconds"],
        warm=arguments["warm"],
    )
    parts = ["# Phases: the loop beside calls that wait and then compute", note]
    for load in LOADS:
        if rows := list(_rows(load, found)):
            parts += [f"## {load}", table(("pool", *_shown(load).values()), rows)]
    parts += ["## Promises", table(("promise", "limit", "measured", ""), [t.row() for t in targets])]
    data = {
        **head,
        "figures": {name: {k: v.to_dict() for k, v in of.items()} for name, of in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="phases", text="\n\n".join([*parts, describe(head)]), data=data)


def _shown(load: str) -> Mapping[str, str]:
    return FIGURES | BESIDE if load == FILLS_CORES else FIGURES


def _rows(load: str, found: Mapping[str, Mapping[str, Spread]]) -> Iterator[tuple[str, ...]]:
    for title in _WAYS:
        if (name := f"{title} under {load}") in found:
            yield title, *(found[name][figure].text(0 if figure == "calls" else 1) for figure in _shown(load))


def _targets(load: str, samples: Mapping[str, Sequence[Sample]]) -> Iterator[Target]:
    """Yield what is promised of our pools, against the best fixed size of the same run."""
    best = best_size(load, samples)
    for title in OURS:
        name = f"{title} under {load}"
        if name not in samples:
            continue
        late = each(samples[name], "loop")
        if "json" in load:
            over = ratios(late, each(samples[name], "parse"))
            yield Target(claim=f"loop p99 over that of the C call's CPU, {name}", figure=over, limit=C_CALLS)
        elif load == FILLS_CORES:
            over = ratios(late, each(samples[name], "timer"))
            yield Target(claim=f"loop p99 over that of the timer beside, {name}", figure=over, limit=TIMERS)
        else:
            yield Target(claim=f"loop p99 in ms, {name}", figure=spread(late), limit=LATE_MS)
        if best is not None:
            calls, time = (
                ratios(each(samples[name], figure), each(samples[best], figure))
                for figure in ("calls", "call")
            )
            claim = f"over those of the best fixed size, {name}"
            yield Target(claim=f"calls/s {claim}", figure=calls, limit=THROUGHPUT, at_least=True)
            yield Target(claim=f"call p99 {claim.replace('those', 'that')}", figure=time, limit=1.0)


def best_size(load: str, samples: Mapping[str, Sequence[Sample]]) -> str | None:
    """Return the name of the fixed size with the most calls per second under a load."""
    static = [name for size in SIZES if (name := f"static {size} under {load}") in samples]
    return max(static, key=lambda name: _median(samples[name], "calls"), default=None)


def each(taken: Sequence[Sample], figure: str) -> list[float]:
    """Return a figure of each sample."""
    return [sample[figure] for sample in taken]


def _median(taken: Sequence[Sample], figure: str) -> float:
    return spread(each(taken, figure)).median
