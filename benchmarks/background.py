"""What does `Runtime.background` cost a request beyond `create_task`?

The request pays for the spawn and, on the same loop, for the bookkeeping at the end of the task. Both ways
spawn the same coroutine, in turns within one process: what is compared is measured block against block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.figures import Target, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

LIMITS = {"p50": 2.4, "p99": 6.8}
"""Microseconds that a spawn may cost beyond `create_task`."""
_NOTE = """\
Microseconds of one spawn as its caller sees it: the median over {count} fresh processes, then lowest and
highest. *Beyond* is the difference of the two ways within one process. *Whole* is the time per task of a
block of {block} tasks, from the first spawn until the last has ended and was counted."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return one candidate for each loop; each measures both ways in turns."""
    size = {"blocks": 20, "block": 100} if quick else {"blocks": 400, "block": 250}
    return [
        Candidate(name=loop, job="background", arguments={"loop": loop, **size}, needs=("hybridrt",))
        for loop in ("asyncio", "uvloop")
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 9
    head, samples = measure("background", __doc__, options, every, repetitions)
    targets = list(_targets(samples))
    data = {**head, "samples": samples, "targets": [target.to_dict() for target in targets]}
    parts = [
        "# Background tasks: what a spawn costs",
        _NOTE.format(count=repetitions, block=every[0].arguments["block"]),
        table(("loop", "", "`create_task`", "`background`", "beyond"), list(_rows(samples))),
        "## Promises",
        table(("promise", "limit", "measured", ""), [target.row() for target in targets]),
    ]
    return Report(name="background", text="\n\n".join([*parts, describe(head)]), data=data)


def _rows(samples: Mapping[str, Sequence[Sample]]) -> Iterator[tuple[str, ...]]:
    for loop, taken in samples.items():
        for what in ("p50", "p99", "whole"):
            ways = [[one[way][what] for one in taken] for way in ("create_task", "background")]
            beyond = [ours - theirs for theirs, ours in zip(*ways, strict=True)]
            yield loop, what, *(spread(each).text(2) for each in (*ways, beyond))


def _targets(samples: Mapping[str, Sequence[Sample]]) -> Iterator[Target]:
    for loop, taken in samples.items():
        for what, limit in LIMITS.items():
            beyond = [one["background"][what] - one["create_task"][what] for one in taken]
            yield Target(claim=f"beyond `create_task`, {what}, {loop}", figure=spread(beyond), limit=limit)
