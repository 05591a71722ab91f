"""How many requests that wait and then compute does a service answer, and does its loop stay awake?

Every request waits for 50 ms and then computes for 5 ms, each in a thread; a hundred are always in flight.
Declared `pure`, what computes may go to other processes instead. Beside them the same loop serves echo
clients of another process, who send at a fixed rate whatever comes back: their latency shows what the loop
suffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.children.work import ALIKE, calibrate
from benchmarks.figures import Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

REQUESTS = 100
WAIT_SECONDS = 0.05
WORK_SECONDS = 0.005
SIZES = (32, 64, 128)
WAYS = {
    "stdlib": "stdlib pool, asyncio's default size",
    **{f"stdlib of {size}": f"stdlib pool of {size}" for size in SIZES},
    "anyio": "`anyio.to_thread.run_sync`, 40 tokens",
    "betapool": "BetaPool",
    "default_executor": "hybridrt as the loop's default",
    "offload": "hybridrt `@offload`",
    "patient": "the same, `loop_delay_target=0.01`",
    "pure": "hybridrt `@offload(pure=True)`",
}
_OURS = ("default_executor", "offload", "patient", "pure")
_NEEDS = {
    "anyio": ("anyio",),
    "betapool": ("betapool",),
    **dict.fromkeys(_OURS, ("hybridrt",)),
}
_THROUGHPUT, _DELAY, _GAIN = 0.95, 1 / 15, 2.5
"""Against the best static size: requests at least, latency of the loop at most; and against asyncio's
default size: requests at least."""

_NOTE = """\
{requests} requests in flight on asyncio, each a wait of {wait:.0f} ms and then {units} units of work
({work:.0f} ms alone); {rate} echo requests per second over {connections} connections from another
process. Times in milliseconds; those of the loop count from when an echo request was due. The median over
{count} fresh processes of {seconds} s, then lowest and highest.

How many requests are answered follows the speed of the machine's cores, which on a shared one can be another
from second to second. *Work* tells it apart: the share of its time for which the units would have kept one
core busy at the speed of the moment, each timed by its thread's CPU clock ({alike} in a row count as long as
the middle one of them), of calls that have ended. It is no measure by itself, because a unit takes longer
while more is going on beside it. One GIL allows 1; calls that are declared `pure` may compute in other
processes, for which there are {cores} cores. The best static size is the one with the most requests. A ratio
is formed within one repetition, then summarised."""


def candidates(*, quick: bool, units: int) -> list[Candidate]:
    """Return every way."""
    return [
        Candidate(
            name=way,
            job="mixed",
            arguments={
                "way": way.partition(" of ")[0],
                "size": int(way.partition(" of ")[2] or 0) or None,
                "loop": "asyncio",
                "requests": REQUESTS,
                "pause": WAIT_SECONDS,
                "units": units,
                "pacing": _pacing(quick=quick),
            },
            needs=_NEEDS.get(way, ()),
        )
        for way in WAYS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    units = calibrate(WORK_SECONDS)
    repetitions = 2 if options.quick else 5
    head, samples = measure(
        "mixed", __doc__, options, candidates(quick=options.quick, units=units), repetitions
    )
    found = {name: _figures(taken) for name, taken in samples.items()}
    targets = list(_targets(found))
    note = _NOTE.format(
        requests=REQUESTS,
        wait=WAIT_SECONDS * 1e3,
        work=WORK_SECONDS * 1e3,
        units=units,
        count=repetitions,
        alike=ALIKE,
        cores=head["facts"]["usable_cpus"],
        **_pacing(quick=options.quick),
    )
    data = {
        **head,
        "units": units,
        "best_static": _best_static(found),
        "figures": {name: {k: spread(v).to_dict() for k, v in f.items()} for name, f in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="mixed", text=_text(found, targets, note, head), data=data)


def _pacing(*, quick: bool) -> dict[str, float]:
    times = {"warmup": 1.5, "seconds": 1.5} if quick else {"warmup": 2.0, "seconds": 5.0}
    return {"rate": 100, "connections": 4, **times}


Figures = Mapping[str, Sequence[float]]
"""Values of one candidate by name, one per repetition."""


def _figures(taken: Sequence[Sample]) -> Figures:
    return {
        "requests": [sample["requests"] for sample in taken],
        "work": [sample["work"] for sample in taken],
        "request_p50": [sample["request"]["p50"] * 1e3 for sample in taken],
        "request_p99": [sample["request"]["p99"] * 1e3 for sample in taken],
        "loop_p50": [sample["latency"]["p50"] * 1e3 for sample in taken],
        "loop_p99": [sample["latency"]["p99"] * 1e3 for sample in taken],
    }


def _best_static(found: Mapping[str, Figures]) -> str | None:
    static = [way for way in found if way.startswith("stdlib")]
    return max(static, key=lambda way: median(found[way]["requests"]), default=None)


def _targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    best = _best_static(found)
    for way in _OURS:
        if best is None or way not in found:
            continue
        ours, static = found[way], found[best]
        slower = ratios(static["requests"], ours["requests"])
        yield Target(claim=f"requests, {best} / {way}", figure=slower, limit=1 / _THROUGHPUT)
        delay = ratios(ours["loop_p99"], static["loop_p99"])
        yield Target(claim=f"loop p99, {way} / {best}", figure=delay, limit=_DELAY)
        if "stdlib" in found:
            slower = ratios(found["stdlib"]["requests"], ours["requests"])
            yield Target(claim=f"requests, default size / {way}", figure=slower, limit=1 / _GAIN)


def _text(found: Mapping[str, Figures], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    columns = ("", "requests/s", "work", "request p50", "request p99", "loop p50", "loop p99")
    digits = {"requests": 1, "work": 2, "request_p50": 1, "request_p99": 1, "loop_p50": 1, "loop_p99": 1}
    rows = [
        [title, *(spread(found[way][name]).text(places) for name, places in digits.items())]
        for way, title in WAYS.items()
        if way in found
    ]
    parts = ["# Mixed: requests that wait and then compute", note, table(columns, rows)]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row(4) for t in targets])]
    return "\n\n".join([*parts, describe(head)])
