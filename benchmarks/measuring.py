"""How much does measuring a call add to its dispatch?

The difference is far below the drift of a machine and below what the placement of two threads on the
cores changes, so it is formed between neighbouring blocks of calls in one process, which switches
its clocks and books on, off, off, on while 256 tasks stand; then again in other fresh processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import Spread, Target, differences, spread, table
from benchmarks.harness import Candidate, ChildError, Options, Report, Sample, describe, measure, spawn

__all__ = ["candidates", "run"]

LIMIT_US = 1.5
KINDS = {"wall_us": "Wall time", "cpu_us": "CPU time"}
_LOOPS = ("asyncio", "uvloop")
_WAYS = {"offload": "`@offload`", "default_executor": "hybridrt as the loop's default"}

_NOTE = """\
256 standing tasks, microseconds per call: the median over {count} fresh processes, then lowest and
highest. Each process gives the median of {pairs} pairs of neighbouring blocks of {block} s. Wall time is
what a caller pays; CPU time is that of the whole process. Very short calls run in batches that read
the clocks once a call, others read them twice."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return our ways on every loop."""
    return [
        Candidate(
            name=f"{way} on {loop}",
            job="measuring",
            arguments={"way": way, "loop": loop, "tasks": 256, **_timing(quick=quick)},
            needs=("hybridrt", *(("uvloop",) if loop == "uvloop" else ())),
        )
        for way in _WAYS
        for loop in _LOOPS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report.

    Raises:
        ChildError: A process booked calls with measuring off, or none with it on.
    """
    repetitions = 3 if options.quick else 9
    head, samples = measure("measuring", __doc__, options, candidates(quick=options.quick), repetitions)
    _check(samples)
    clocks = _clock_reads(quick=options.quick)
    found = {kind: {name: _difference(taken, kind) for name, taken in samples.items()} for kind in KINDS}
    targets = [Target(claim=name, figure=figure, limit=LIMIT_US) for name, figure in found["wall_us"].items()]
    data = {
        **head,
        "difference": {kind: {n: s.to_dict() for n, s in of.items()} for kind, of in found.items()},
        "clock_read_ns": {name: spread(values).to_dict() for name, values in clocks.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    note = _NOTE.format(count=repetitions, **_timing(quick=options.quick))
    text = _text(samples, found, targets, clocks, note)
    return Report(name="measuring", text=f"{text}\n\n{describe(head)}", data=data)


def _timing(*, quick: bool) -> dict[str, Any]:
    return (
        {"pairs": 4, "block": 0.02, "warmup": 0.2} if quick else {"pairs": 24, "block": 0.04, "warmup": 0.4}
    )


def _check(samples: Mapping[str, Sequence[Sample]]) -> None:
    """Refuse a comparison of two equal sides, which would look like a perfect result."""
    for name, taken in samples.items():
        for booked in (sample["booked"] for sample in taken):
            if booked["off"] or not booked["on"]:
                raise ChildError(
                    f"{name} must book calls with measuring on and none with it off, got {booked}"
                )


def _clock_reads(*, quick: bool) -> Sample:
    arguments = {"reads": 20_000 if quick else 500_000, "blocks": 7}
    return spawn(Candidate(name="clocks", job="clocks", arguments=arguments))


def _difference(taken: Sequence[Sample], kind: str) -> Spread:
    return spread([differences(sample[kind]["on"], sample[kind]["off"]).median for sample in taken])


def _text(
    samples: Mapping[str, Sequence[Sample]],
    found: Mapping[str, Mapping[str, Spread]],
    targets: Sequence[Target],
    clocks: Sample,
    note: str,
) -> str:
    parts = ["# Measuring: what reading the clocks and keeping the books adds to a call", note]
    for kind, title in KINDS.items():
        rows = [_row(name, figure, samples[name], kind) for name, figure in found[kind].items()]
        parts += [f"## {title}", table(("us per call", "on", "off", "difference"), rows)]
    parts += ["## Promises", table(("added, us", "limit", "measured", ""), [t.row() for t in targets])]
    reads = [(name, spread(values).text(0)) for name, values in clocks.items()]
    return "\n\n".join([*parts, "## For orientation", table(("ns per read", "one thread alone"), reads)])


def _row(name: str, figure: Spread, taken: Sequence[Sample], kind: str) -> tuple[str, str, str, str]:
    on, off = (spread([median(sample[kind][side]) for sample in taken]).text(2) for side in ("on", "off"))
    way, _, loop = name.partition(" on ")
    return f"{_WAYS[way]}, {loop}", on, off, figure.text(2)
