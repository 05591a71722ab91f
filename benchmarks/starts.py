"""Within what time does a call of each kind start beside calls that do not end?

The neighbours begin, and stay. Then a call of each kind is made, one after the other, and what counts is the
time from submission to its start, as the function itself tells it. `docs/when-a-call-starts.md` states the
bounds, and the tests check each by a clock of their own. Here are real threads, and the standard library's
pool, which starts everything at once until its threads are all taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.figures import Target, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

SHORT = "short calls"
BESIDE: dict[str, list[str]] = {
    "a thousand short calls a second": [SHORT],
    "endless computing": ["endless computing"],
    "endless computing, short calls": ["endless computing", SHORT],
    "endless waiting": ["endless waiting"],
    "endless GIL-free": ["endless GIL-free"],
    "endless GIL-free, short calls": ["endless GIL-free", SHORT],
    "a long known job": ["a long known job"],
    "a long known job, short calls": ["a long known job", SHORT],
    "long isolate calls": ["long isolate calls"],
    "spinning on another's result": ["spinning on a result"],
    "all of them": [
        "endless computing", "endless waiting", "endless GIL-free", "a long known job", "long isolate calls",
        "spinning on a result",
    ],
}  # fmt: skip
"""By the name of a row, the neighbours of the child; those with short calls are the table's with them."""
POOLS = {"stdlib": "stdlib pool", "hybridrt": "hybridrt"}
KINDS = ("unknown", "short", "long", "waiting", "GIL-free", "pure", "isolate", "limit", "lane", "names")
LIMIT, BOTH_LIMIT = 0.5, 1.0
"""Seconds that the docs promise; for an isolate and a place among waiting calls, beside all neighbours."""

_NOTE = """\
Seconds from submission to start, the longest of {calls} calls in {count} fresh processes; *never*: one had no
result within 3 s. Short calls: a thousand a second. *Long* computes for 40 ms; *limit* is such a call with
`limit=1`, *lane* a short one with a lane; *pure* is a pure function that runs in isolates by choice;
*isolate* is the same with `where="isolate"`: if all are taken, one more process is started, which takes its
time and has no promise. *Names* is `loop.getaddrinfo`, from submission to result. Endless computing are 4
calls, endless waiting 40, GIL-free and isolate calls as many as there are cores. The stdlib's pool has its
default size, {threads} threads here."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every pool beside every neighbour; the standard library's has no isolates."""
    return [
        Candidate(
            name=f"{pool} beside {beside}",
            job="starts",
            arguments={"pool": pool, "beside": kinds, "times": 1 if quick else 2},
            needs=("hybridrt",),
        )
        for beside, kinds in BESIDE.items()
        for pool in POOLS
        if pool == "hybridrt" or kinds != ["long isolate calls"]
    ]


def run(options: Options) -> Report:
    """Measure and report."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 2
    head, samples = measure("starts", __doc__, options, every, repetitions)
    found = {name: _longest(taken) for name, taken in samples.items()}
    targets = list(_targets(found))
    threads = min(32, (head["facts"]["cpus"] or 1) + 4)
    note = _NOTE.format(calls=repetitions * every[0].arguments["times"], count=repetitions, threads=threads)
    data = {
        **head,
        "longest": found,
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    parts = ["# Starts: how long a call waits beside calls that do not end", note, _table(found)]
    parts += ["## Promises", table(("promise", "limit", "measured", ""), [t.row() for t in targets])]
    return Report(name="starts", text="\n\n".join([*parts, describe(head)]), data=data)


def _longest(taken: Sequence[Sample]) -> dict[str, float | None]:
    """Return by kind the longest wait for a start; None if a call never started."""
    found: dict[str, float | None] = {}
    for kind in taken[0]["seconds"]:
        seconds = [each for sample in taken for each in sample["seconds"][kind]]
        found[kind] = None if None in seconds else max(seconds)
    return found


def _targets(found: Mapping[str, Mapping[str, float | None]]) -> Iterator[Target]:
    for beside in BESIDE:
        longest = found.get(f"hybridrt beside {beside}")
        if longest is None:
            continue
        own = [seconds for kind, seconds in longest.items() if kind not in ("pure", "isolate")]
        yield _target(f"the longest wait beside {beside}", own, LIMIT)
        limit = BOTH_LIMIT if beside == "all of them" else LIMIT
        yield _target(f"that of a pure function beside {beside}", [longest["pure"]], limit)


def _target(claim: str, seconds: Sequence[float | None], limit: float) -> Target:
    longest = max(float("inf") if each is None else each for each in seconds)
    return Target(claim=claim, figure=spread([longest]), limit=limit)


def _table(found: Mapping[str, Mapping[str, float | None]]) -> str:
    rows = [
        (beside, title, *(_cell(found[name], kind) for kind in KINDS))
        for beside in BESIDE
        for pool, title in POOLS.items()
        if (name := f"{pool} beside {beside}") in found
    ]
    return table(("beside", "pool", *KINDS), rows)


def _cell(longest: Mapping[str, float | None], kind: str) -> str:
    if kind not in longest:
        return "-"
    seconds = longest[kind]
    return "never" if seconds is None else f"{seconds:.3f}"
