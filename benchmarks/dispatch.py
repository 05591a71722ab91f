"""What does it cost to hand a call to a thread and get its result back on the loop?

The function does nothing, so the time is dispatch alone. It is asked with one call at a time, and
with 256 standing tasks that each loop over awaits. The tasks stand because starting one costs some
3.5 us by itself, which would be counted as dispatch. Both are asked again with all threads on one
core: where the kernel happens to put two threads changes what waking one of them costs by three
times, and a small device has no choice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

MODES = {
    "single": "One call at a time",
    "standing": "256 standing tasks",
    "single, one core": "One call at a time, all threads on one core",
    "standing, one core": "256 standing tasks, all threads on one core",
}
LOOPS = ("asyncio", "uvloop")
WAYS = {
    "run_in_executor": "`run_in_executor`, stdlib pool",
    "to_thread": "`asyncio.to_thread`",
    "anyio": "`anyio.to_thread.run_sync`",
    "default_executor": "hybridrt as the loop's default",
    "runtime": "`run_in_executor` in a hybridrt `Runtime`",
    "offload": "hybridrt `@offload`",
    "inline": "no thread: called on the loop",
}
OURS = ("default_executor", "runtime", "offload")
_NEEDS = {"anyio": ("anyio",), **dict.fromkeys(OURS, ("hybridrt",))}
_LIMITS = (
    ("standing", "asyncio", "offload", "run_in_executor", 1 / 3),
    ("standing", "uvloop", "offload", "run_in_executor", 1 / 2),
    ("standing", "asyncio", "offload", "anyio", 1 / 6),
    ("standing", "uvloop", "offload", "anyio", 1 / 6),
    *(("single", loop, way, "run_in_executor", 1.1) for loop in LOOPS for way in OURS),
    *(("single, one core", loop, way, "run_in_executor", 1.1) for loop in LOOPS for way in OURS),
    *(("standing", loop, way, "run_in_executor", 1.1) for loop in LOOPS for way in OURS[:2]),
)
"""Mode, loop, ours, theirs, and what the ratio of the two may be."""

_NOTE = """\
Microseconds of wall time per call: the median over {count} fresh processes, then lowest and highest.
Each process is the median of {blocks} blocks of {block} s. A ratio is formed within one repetition,
then summarised. The last row is where every thread loses: a function this short is best called where
it is."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way on every loop."""
    timing = _timing(quick=quick)
    return [
        Candidate(
            name=_key(way, loop),
            job="dispatch",
            arguments={"way": way, "loop": loop, "modes": _modes(), **timing},
            needs=_NEEDS.get(way, ()) + (("uvloop",) if loop == "uvloop" else ()),
        )
        for loop in LOOPS
        for way in WAYS
    ]


def _modes() -> list[dict[str, Any]]:
    return [
        {"name": name, "tasks": 1 if "single" in name else 256, "one_core": "one core" in name}
        for name in MODES
        if "one core" not in name or hasattr(os, "sched_setaffinity")
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 3 if options.quick else 9
    head, samples = measure("dispatch", __doc__, options, candidates(quick=options.quick), repetitions)
    medians = {mode["name"]: _medians(samples, mode["name"]) for mode in _modes()}
    targets = list(_targets(medians))
    timing = _timing(quick=options.quick)
    text = _text(medians, targets, _NOTE.format(count=repetitions, **timing), head)
    data = {
        **head,
        "wall_us": {mode: {k: spread(v).to_dict() for k, v in m.items()} for mode, m in medians.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="dispatch", text=text, data=data)


def _key(way: str, loop: str) -> str:
    return f"{way} on {loop}"


def _timing(*, quick: bool) -> dict[str, Any]:
    if quick:
        return {"block": 0.03, "blocks": 3, "warmup": 0.05}
    return {"block": 0.15, "blocks": 5, "warmup": 0.25}


def _medians(samples: Mapping[str, Sequence[Sample]], mode: str) -> dict[str, list[float]]:
    """Return one figure per process and repetition, by candidate."""
    return {name: [median(s["modes"][mode]["wall_us"]) for s in taken] for name, taken in samples.items()}


def _targets(medians: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for mode, loop, ours, theirs, limit in _LIMITS:
        here, there = (medians.get(mode, {}).get(_key(way, loop)) for way in (ours, theirs))
        if here and there:
            claim = f"{mode}, {loop}: {ours} / {theirs}"
            yield Target(claim=claim, figure=ratios(here, there), limit=limit)


def _text(
    medians: Mapping[str, Mapping[str, Sequence[float]]],
    targets: Sequence[Target],
    note: str,
    head: Mapping[str, Any],
) -> str:
    parts = ["# Dispatch: the cost of handing a call to a thread", note]
    for mode, found in medians.items():
        parts += [f"## {MODES[mode]}", _mode_table(found)]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row() for t in targets])]
    return "\n\n".join([*parts, describe(head)])


def _mode_table(medians: Mapping[str, Sequence[float]]) -> str:
    head = ["us per call", *(cell for loop in LOOPS for cell in (loop, "/ stdlib"))]
    rows = [[title, *_cells(way, medians)] for way, title in WAYS.items()]
    return table(head, [row for row in rows if any(row[1:])])


def _cells(way: str, medians: Mapping[str, Sequence[float]]) -> Iterator[str]:
    for loop in LOOPS:
        values, base = medians.get(_key(way, loop)), medians.get(_key("run_in_executor", loop))
        yield spread(values).text(2 if max(values) < 10 else 1) if values else ""
        yield f"{ratios(values, base).median:.2f}" if values and base else ""
