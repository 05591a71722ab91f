"""Does a thread that wakes know whether the GIL is free, and what does a short switch interval cost a crowd?

A sleeper wakes every 2 ms beside threads that work, and counts its own waits: one means that the GIL
was free (see `hybridrt.measure.gil`). Then Python threads compute together at several switch intervals:
all that wait for the GIL wake once an interval to ask for it, which is work that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.children.gil import WORKS
from benchmarks.figures import Spread, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

INTERVALS_MS = (0.1, 0.5, 1.0, 2.0, 5.0)
CROWDS = (1, 2, 4, 8, 16)
USUAL_MS = 5.0

_NOTE = """\
The median over {count} fresh processes of {seconds} s, then lowest and highest. *Free* is the share of
wake-ups that found the GIL free, *late* how many milliseconds after its time the sleeper went on. The work
of a crowd is a share of what one thread does alone at 5 ms, formed run by run; the sleeper is with it."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every kind of work, and every crowd at every interval."""
    found = [(work, 1, interval) for work in WORKS for interval in (0.1, USUAL_MS)]
    found += [("bytecode", crowd, interval) for crowd in CROWDS for interval in INTERVALS_MS]
    return [
        Candidate(
            name=_key(work, threads, interval),
            job="gil",
            arguments={
                "work": work,
                "threads": threads,
                "interval": interval / 1e3,
                "seconds": 0.1 if quick else 0.6,
            },
            needs=("hybridrt",),
        )
        for work, threads, interval in dict.fromkeys(found)
    ]


def run(options: Options) -> Report:
    """Measure and report; nothing is promised."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 5
    head, samples = measure("gil", __doc__, options, every, repetitions)
    note = _NOTE.format(count=repetitions, seconds=every[0].arguments["seconds"])
    parts = ["# The GIL: who finds it free, and what asking for it costs", note]
    parts += ["## One sleeper beside one thread", _sleeper_table(samples)]
    parts += ["## Work of a crowd of Python threads", _crowd_table(samples)]
    return Report(name="gil", text="\n\n".join([*parts, describe(head)]), data={**head, "samples": samples})


def _key(work: str, threads: int, interval: float) -> str:
    return f"{threads} x {work} at {interval} ms"


def _of(samples: Mapping[str, Sequence[Sample]], key: str, name: str) -> list[Any]:
    return [sample[name] for sample in samples.get(key, ())]


def _sleeper_table(samples: Mapping[str, Sequence[Sample]]) -> str:
    rows = [
        (work, f"{interval} ms", *(spread(_of(samples, key, name)).text(2) for name in ("free", "late_ms")))
        for work in WORKS
        for interval in (0.1, USUAL_MS)
        if (key := _key(work, 1, interval)) in samples
    ]
    return table(("beside", "switch interval", "free", "late, ms"), rows)


def _crowd_table(samples: Mapping[str, Sequence[Sample]]) -> str:
    alone = _of(samples, _key("bytecode", 1, USUAL_MS), "work")
    rows = [
        (f"{crowd} threads", *(_cell(samples, alone, crowd, interval) for interval in INTERVALS_MS))
        for crowd in CROWDS
    ]
    return table(("", *(f"{interval} ms" for interval in INTERVALS_MS)), rows)


def _cell(samples: Mapping[str, Sequence[Sample]], alone: list[float], crowd: int, interval: float) -> str:
    work = _of(samples, _key("bytecode", crowd, interval), "work")
    if not alone or not work:
        return ""
    found: Spread = ratios(work, alone)
    return found.text(2)
