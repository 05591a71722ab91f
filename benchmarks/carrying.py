"""What does it cost to carry bytes to another interpreter?

One call at a time, from a thread: bytes go there, their length comes back. The wire of our isolates
beside shared memory, which is made for each call or kept, and copied over there, as what a function may
keep has to be, or read where it lies. On Python 3.14 an interpreter with a thread of its own beside
entering one for each call.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from benchmarks.figures import spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

WAYS = {
    "wire": "our wire, to a process",
    "segment": "shared memory made for the call",
    "kept": "shared memory that is kept, copied over there",
    "in_place": "the same, read where it lies",
    "process_pool": "stdlib `ProcessPoolExecutor`",
    "interpreter": "our wire, to a sub-interpreter with its own thread",
    "entering": "a sub-interpreter entered for the call, `GovernedBudget.call`",
}
_INTERPRETERS = ("interpreter", "entering")
SIZES = {"1 kB": 1 << 10, "64 kB": 1 << 16, "1 MB": 1 << 20, "8 MB": 1 << 23}

_NOTE = """\
Microseconds per call, the median of {calls} in each of {count} fresh processes; of those the median, then
lowest and highest."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way with every size."""
    ways = [way for way in WAYS if sys.version_info >= (3, 14) or way not in _INTERPRETERS]
    return [
        Candidate(
            name=_key(way, size),
            job="carrying",
            arguments={"way": way, "size": SIZES[size], "calls": 20 if quick else 200},
            needs=("hybridrt",),
        )
        for way in ways
        for size in SIZES
    ]


def _key(way: str, size: str) -> str:
    return f"{way}, {size}"


def run(options: Options) -> Report:
    """Measure and report; nothing is promised."""
    every = candidates(quick=options.quick)
    repetitions = 1 if options.quick else 5
    head, samples = measure("carrying", __doc__, options, every, repetitions)
    note = _NOTE.format(calls=every[0].arguments["calls"], count=repetitions)
    parts = ["# Carrying: bytes to another interpreter", note, _table(samples), describe(head)]
    return Report(name="carrying", text="\n\n".join(parts), data={**head, "samples": samples})


def _table(samples: Mapping[str, Sequence[Sample]]) -> str:
    rows = []
    for way, title in WAYS.items():
        cells = [[sample["us"] for sample in samples.get(_key(way, size), ())] for size in SIZES]
        if any(cells):
            rows.append([title, *(spread(cell).text(0) if cell else "" for cell in cells)])
    return table(("us per call", *SIZES), rows)
