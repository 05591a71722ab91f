"""Does a program under load end as it should, wherever Ctrl-C strikes?

A program makes calls of all kinds, 24 at once and more, on each loop, with `hybridrt.run` and with
`asyncio.run`. At a random instant it gets SIGINT, once, or a second time a moment later. It must end by its
deadline with the status of an interrupted program, and leave neither a thread of the pool nor a permit nor a
call that has no end in the books.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Target, spread, table
from benchmarks.harness import (
    Candidate,
    Options,
    Progress,
    Report,
    Sample,
    collect,
    describe,
    header,
    select,
)

__all__ = ["candidates", "run"]

LOOPS, WAYS, PRESSES = ("asyncio", "uvloop"), ("hybridrt.run", "asyncio.run"), (1, 2)
SLOWEST = 3.0
"""Seconds a program may take to end: the 2 of its `shutdown_timeout`, and one more for tasks."""

_NOTE = """\
{rounds} programs of each kind, two at a time, each with instants of its own: the first within 0.1 s after
the program is busy, the second within 0.03 s after the first. *As it should* is by SIGINT, and with nothing
left. The programs of `asyncio.run` ignore SIGINT once their runtime has closed: what comes then meets Python
and the loop alone."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return a kind of program for each loop, each way to run it, one Ctrl-C and two."""
    rounds = 4 if quick else 125
    return [
        Candidate(
            name=f"{loop}, {how}, {'once' if presses == 1 else 'twice'}",
            job="interrupts",
            arguments={"rounds": rounds, "seed": seed, "loop": loop, "how": how, "presses": presses},
            needs=("hybridrt", loop),
        )
        for seed, (loop, how, presses) in enumerate(itertools.product(LOOPS, WAYS, PRESSES))
    ]


def run(options: Options) -> Report:
    """Measure and report."""
    chosen, absent = select(candidates(quick=options.quick), options.only)
    head = header(__doc__, options, 1, absent)
    samples = {name: found[0] for name, found in collect(chosen, Progress("interrupts")).items()}
    targets = list(_targets(list(samples.values())))
    note = _NOTE.format(rounds=chosen[0].arguments["rounds"])
    data = {**head, "targets": [target.to_dict() for target in targets], "samples": samples}
    return Report(name="interrupts", text=_text(samples, targets, note, head), data=data)


def _otherwise(sample: Sample) -> int:
    return sum(count for end, count in sample["ends"].items() if end != "interrupted")


def _targets(samples: Sequence[Sample]) -> Iterator[Target]:
    """Yield the promises."""
    otherwise = spread([float(sum(map(_otherwise, samples)))])
    yield Target(claim="programs that ended otherwise", figure=otherwise, limit=0.0)
    slowest = spread([max(sample["slowest_s"] for sample in samples)])
    yield Target(claim="seconds from the last Ctrl-C to the slowest end", figure=slowest, limit=SLOWEST)


def _text(
    samples: Mapping[str, Sample], targets: Sequence[Target], note: str, head: Mapping[str, Any]
) -> str:
    columns = ("loop, run by, Ctrl-C", "programs", "as it should", "otherwise", "slowest end, s")
    rows = [_row(name, sample) for name, sample in samples.items()]
    told = [said for sample in samples.values() for said in sample["told"]]
    promises = table(("all programs", "limit", "measured", ""), [target.row(2) for target in targets])
    parts = ["# Interrupts: Ctrl-C at random instants", note, table(columns, rows), *map(_quoted, told)]
    return "\n\n".join([*parts, "## Promises", promises, describe(head)])


def _row(name: str, sample: Sample) -> list[str]:
    ends: Mapping[str, int] = sample["ends"]
    counts = (sum(ends.values()), ends.get("interrupted", 0), _otherwise(sample))
    return [name, *map(str, counts), f"{sample['slowest_s']:.2f}"]


def _quoted(said: str) -> str:
    return f"```\n{said.strip()}\n```"
