"""What do an idle runtime and the governor's thread cost?

An idle process pays for waking, whatever it does then, so what counts is how seldom that is. Under a load
the governor looks at running calls, closes windows and moves the switch interval; its thread's CPU clock
tells what all of that takes. The loads stand: as many calls are in flight all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.children.cost import LOADS
from benchmarks.figures import Spread, Target, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

LOOPS = ("asyncio", "uvloop")
IDLE_LIMIT = 0.1
"""Percent of a core that an idle runtime may use."""
GOVERNOR_LIMIT = 1.5
"""Percent of a core that the governor may use under a load."""

_NOTE = """\
Percent of a core: the median over {count} fresh processes, then lowest and highest, each over {seconds} s
after {warmup} s. *Idle* is the whole process, with a runtime that has had some calls and rests, and without
one. *Governor* is its thread alone, on {loop}; *calls* says how many ended in a second, so that a load that
the machine did not carry can be told."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return an idle loop and an idle runtime on each loop, and every load."""
    timing = {"seconds": 0.3, "warmup": 0.2} if quick else {"seconds": 6.0, "warmup": 4.0}
    idle = [(f"{job} on {loop}", job, loop) for loop in LOOPS for job in ("bare", "idle")]
    return [
        Candidate(
            name=name,
            job="cost",
            arguments={"job": job, "loop": loop, **timing},
            needs=("hybridrt", "uvloop") if loop == "uvloop" else ("hybridrt",),
        )
        for name, job, loop in [*idle, *((load, load, LOOPS[0]) for load in LOADS)]
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 5
    head, samples = measure("cost", __doc__, options, every, repetitions)
    percent = {name: _percent(taken) for name, taken in samples.items()}
    targets = list(_targets(percent))
    timing = every[0].arguments
    note = _NOTE.format(count=repetitions, seconds=timing["seconds"], warmup=timing["warmup"], loop=LOOPS[0])
    data = {
        **head,
        "percent": {name: found.to_dict() for name, found in percent.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    parts = ["# Cost: an idle runtime, and the governor under a load", note, *_tables(percent, samples)]
    parts += ["## Promises", table(("promise", "limit", "measured", ""), [t.row(3) for t in targets])]
    return Report(name="cost", text="\n\n".join([*parts, describe(head)]), data=data)


def _percent(taken: Sequence[Sample]) -> Spread:
    name = "governor" if "governor" in taken[0] else "cpu"
    return spread([100.0 * sample[name] for sample in taken])


def _targets(percent: Mapping[str, Spread]) -> Iterator[Target]:
    for name, found in percent.items():
        if name in LOADS:
            yield Target(claim=f"governor, {name}", figure=found, limit=GOVERNOR_LIMIT)
        elif name.startswith("idle"):
            yield Target(claim=f"runtime {name}", figure=found, limit=IDLE_LIMIT)


def _tables(percent: Mapping[str, Spread], samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    idle = [(loop, *(_cell(percent, f"{job} on {loop}") for job in ("bare", "idle"))) for loop in LOOPS]
    loaded = [
        (name, percent[name].text(2), *(_spread_of(samples[name], of) for of in ("calls", "running")))
        for name in LOADS
        if name in percent
    ]
    return [
        "## Idle",
        table(("loop", "without a runtime", "with one"), idle),
        "## Under a load",
        table(("in flight", "governor", "calls", "running at the end"), loaded),
    ]


def _cell(percent: Mapping[str, Spread], name: str) -> str:
    return percent[name].text(3) if name in percent else ""


def _spread_of(taken: Sequence[Mapping[str, Any]], name: str) -> str:
    return spread([float(sample[name]) for sample in taken]).text(0)
