"""What becomes of 10,000 calls whose worker processes are killed at random?

After one result in two hundred the worker that gave it is killed with SIGKILL, a moment later: in the
middle of its next call, if it has one. Every call must end, with its result or with `WorkerLostError`;
afterwards calls must work as before, and nothing may be left of all this when the program has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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

__all__ = ["candidates", "run", "unexpected"]

KILL_SHARE = 0.005
_FINE = ("returned", "WorkerLostError")

_NOTE = """\
{calls:,} calls of a quarter of a millisecond, 32 at once, in a fresh process and session per repetition;
{count} repetitions with chance of their own. *Left behind* counts threads some seconds after the
runtime's close; processes of the session, shared memory and named semaphores, and temporary files after
the program's end."""


def candidates(*, quick: bool, repetition: int = 0) -> list[Candidate]:
    """Return the one storm, with the chance of a repetition."""
    calls = 1_000 if quick else 10_000
    arguments = {"calls": calls, "kill_share": KILL_SHARE, "seed": repetition}
    return [Candidate(name="storm", job="lost_workers", arguments=arguments, needs=("hybridrt",))]


def run(options: Options) -> Report:
    """Measure and report."""
    repetitions = 1 if options.quick else 3
    schedule: list[Candidate] = []
    absent: list[str] = []
    for repetition in range(repetitions):
        chosen, absent = select(candidates(quick=options.quick, repetition=repetition), options.only)
        schedule += chosen
    head = header(__doc__, options, repetitions, absent)
    samples = collect(schedule, Progress("lost_workers"))["storm"]
    targets = list(_targets(samples))
    note = _NOTE.format(calls=schedule[0].arguments["calls"], count=repetitions)
    data = {**head, "targets": [target.to_dict() for target in targets], "samples": samples}
    return Report(name="lost_workers", text=_text(samples, targets, note, head), data=data)


def unexpected(ends: Mapping[str, int]) -> int:
    """Return how many calls ended neither with their result nor with `WorkerLostError`."""
    return sum(count for end, count in ends.items() if end not in _FINE)


def _missing(sample: Sample) -> int:
    return sum(count for end, count in sample["after"].items() if end != "returned")


def _left(sample: Sample) -> int:
    return sum(len(sample[what]) for what in ("threads", "processes", "shared", "files"))


def _targets(samples: Sequence[Sample]) -> Iterator[Target]:
    """Yield the promises; the worst repetition counts, so each sample stands for itself."""
    yield _none("calls that ended otherwise", samples, lambda sample: unexpected(sample["ends"]))
    yield _none("of 100 calls afterwards, failed", samples, _missing)
    yield _none("left behind", samples, _left)
    kills = spread([min(float(sample["kills"]) for sample in samples)])
    yield Target(claim="workers killed, so that it means something", figure=kills, limit=1.0, at_least=True)


def _none(claim: str, samples: Sequence[Sample], count: Callable[[Sample], int]) -> Target:
    return Target(claim=claim, figure=spread([float(max(map(count, samples)))]), limit=0.0)


def _text(samples: Sequence[Sample], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    columns = ("repetition", "kills", "workers", "returned", "lost", "otherwise", "calls/s", "left behind")
    rows = [_row(number, sample) for number, sample in enumerate(samples, start=1)]
    left = [
        name for sample in samples for what in ("threads", "processes", "shared") for name in sample[what]
    ]
    named = [f"Left behind: {', '.join(f'{count} x {name}' for name, count in Counter(left).items())}."]
    promises = table(("worst repetition", "limit", "measured", ""), [target.row(0) for target in targets])
    parts = ["# Lost workers: calls whose processes are killed", note, table(columns, rows)]
    return "\n\n".join([*parts, *(named if left else []), "## Promises", promises, describe(head)])


def _row(number: int, sample: Sample) -> list[str]:
    ends: Counter[str] = Counter(sample["ends"])
    counts = (sample["kills"], sample["workers"], ends["returned"], ends["WorkerLostError"], unexpected(ends))
    rate = f"{ends.total() / sample['seconds']:.0f}"
    return [str(number), *(f"{count:,}" for count in counts), rate, str(_left(sample))]
