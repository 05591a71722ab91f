"""Does a loop stay awake beside work in isolates, and does the work fill the cores?

Eight calls in flight: pure Python of some 25 ms, and JSON of 1.5 MB with a small result. The loop is
asked by echo clients in another process, while the calls run and, for the floor, while the same work
runs in processes that the loop knows nothing of. Throughput is counted before the clients come. Calls
that do nothing show what a hand-over costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.children.isolates import CALLS, LOADS
from benchmarks.figures import Target, ratios, spread, table
from benchmarks.harness import (
    Candidate,
    Options,
    Progress,
    Report,
    Sample,
    collect,
    describe,
    header,
    interleave,
    select,
)
from benchmarks.strips import Panel, given

__all__ = ["call_us", "candidates", "delay_p99", "panels", "run", "times_thread", "work_shares"]

WAYS = {
    "busy": "the cores busy in other processes",
    "to_thread": "`asyncio.to_thread`",
    "thread": "`@offload`",
    "pure": "`@offload(pure=True)`",
    "isolate": '`@offload(pure=True, where="isolate")`',
    "process": 'the same with `isolation="process"`',
    "process_pool": "stdlib `ProcessPoolExecutor`",
    "interpreter_pool": "stdlib `InterpreterPoolExecutor`",
}
INTERPRETERS = sys.version_info >= (3, 14)
DELAY = 2.0
"""What the clients' p99 may be of the floor's."""
CORES = 0.9
"""Calls per second that must be reached of those of one thread times the cores."""
DISPATCH = 1.5
"""What a call that does nothing may cost of one in a thread, from Python 3.14 on."""

_NOTE = """\
{calls} calls in flight, `isolate` is {isolation} on this version. The median over {count} fresh
processes, then lowest and highest; a ratio is formed within one repetition, then summarised. *Delay*:
latency in milliseconds of {rate} requests per second from when each was due, over {seconds} s.
*Throughput*: calls per second, and as a share of what one thread alone does times {cores} cores, in turns
within each process. What the busy processes reach is what the cores have: nothing is carried to them, and
each has its argument once. *Dispatch*: microseconds per call of a function that does nothing; the promises
compare blocks of calls in isolates with blocks of calls in threads of the same process, in turns."""


def candidates(*, quick: bool, cores: int) -> list[Candidate]:
    """Return every way beside both loads, and for dispatch."""
    seconds = 0.3 if quick else 0.6
    found: list[Candidate] = []
    for load in LOADS:
        timing = {"cores": cores, "seconds": seconds, "pacing": _pacing(quick)}
        found += [_candidate("load", way, load, **timing) for way in _able(_BESIDE)]
    block = (
        {"block": 0.03, "blocks": 3, "warmup": 0.02}
        if quick
        else {"block": 0.05, "blocks": 12, "warmup": 0.02}
    )
    return found + [_candidate("dispatch", way, None, cores=cores, **block) for way in _able(_DISPATCHED)]


_BESIDE = ("busy", "to_thread", "thread", "pure", "process_pool", "interpreter_pool")
_DISPATCHED = ("to_thread", "thread", "isolate", "process", "process_pool", "interpreter_pool")


def _able(ways: Sequence[str]) -> list[str]:
    """Leave out what this version of Python lacks, and what is the same there."""
    return [way for way in ways if INTERPRETERS or way not in ("interpreter_pool", "process")]


def _candidate(part: str, way: str, load: str | None, **arguments: Any) -> Candidate:
    ours = ("hybridrt",) if way in ("thread", "pure", "isolate", "process") else ()
    return Candidate(
        name=_key(part, way, load),
        job="isolates",
        arguments={"part": part, "way": way, "load": load, **arguments},
        needs=ours,
    )


def _key(part: str, way: str, load: str | None = None) -> str:
    return f"{part}: {way}" + ("" if load is None else f", {load}")


def _pacing(quick: bool) -> dict[str, float]:
    times = {"warmup": 0.3, "seconds": 1.0} if quick else {"warmup": 0.4, "seconds": 2.0}
    return {"rate": 150, "connections": 8, **times}


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    head = header(__doc__, options, repetitions, [])
    cores: int = head["facts"]["usable_cpus"] or 1
    chosen, absent = select(candidates(quick=options.quick, cores=cores), options.only)
    head["absent"] = absent
    samples = collect(interleave(chosen, repetitions), Progress("isolates"))
    targets = list(_targets(samples, cores))
    note = _NOTE.format(
        calls=CALLS,
        isolation="an interpreter" if INTERPRETERS else "a process",
        count=repetitions,
        cores=cores,
        **_pacing(options.quick),
    )
    data = {**head, "targets": [target.to_dict() for target in targets], "samples": samples}
    return Report(name="isolates", text=_text(samples, targets, note, head, cores), data=data)


Samples = Mapping[str, Sequence[Sample]]


def delay_p99(samples: Samples, way: str, load: str) -> list[float]:
    """Return what the loop feels: milliseconds."""
    return [sample["latency"]["p99"] * 1e3 for sample in samples.get(_key("load", way, load), ())]


def _rates(samples: Samples, way: str, load: str) -> list[float]:
    """Return calls per second."""
    return [median(sample["calls"]) for sample in samples.get(_key("load", way, load), ())]


def work_shares(samples: Samples, way: str, load: str, cores: int) -> list[float]:
    """Return the same as a share of what one thread alone does times the cores."""
    taken = samples.get(_key("load", way, load), ())
    return [_middle_ratio(sample["calls"], sample["alone"]) / cores for sample in taken]


def call_us(samples: Samples, way: str, crowd: str) -> list[float]:
    """Return what a call of a function that does nothing takes."""
    return [median(sample["way"][crowd]) for sample in samples.get(_key("dispatch", way), ())]


def times_thread(samples: Samples, way: str, crowd: str) -> list[float]:
    """Return what a call costs of one in a thread."""
    taken = samples.get(_key("dispatch", way), ())
    return [_middle_ratio(sample["way"][crowd], sample["thread"][crowd]) for sample in taken]


def _middle_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _targets(samples: Samples, cores: int) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for load in LOADS:
        ours, floor = delay_p99(samples, "pure", load), delay_p99(samples, "busy", load)
        if ours and floor:
            claim = f"{load}: p99 beside pure=True / beside busy processes"
            yield Target(claim=claim, figure=ratios(ours, floor), limit=DELAY)
    shares = work_shares(samples, "pure", "python", cores)
    if shares:
        claim = "python: calls/s with pure=True / one thread's times the cores"
        yield Target(claim=claim, figure=spread(shares), limit=CORES, at_least=True)
    for crowd in ("one", "eight"):
        costs = times_thread(samples, "isolate", crowd)
        if INTERPRETERS and costs:
            yield Target(claim=f"dispatch, {crowd}: isolate / thread", figure=spread(costs), limit=DISPATCH)


def _text(samples: Samples, targets: Sequence[Target], note: str, head: Mapping[str, Any], cores: int) -> str:
    parts = ["# Isolates: the loop beside calls in other interpreters or processes", note]
    for load in LOADS:
        found = list(_load_rows(samples, load, cores))
        if found:
            columns = ("", "delay p50", "delay p99", "p99 / busy", "calls/s", "of one thread x cores")
            parts += [f"## {_TITLES[load]}", table(columns, found)]
    found = list(_dispatch_rows(samples))
    if found:
        parts += ["## Dispatch", table(("us per call", "one at a time", "eight at once"), found)]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row(2) for t in targets])]
    return "\n\n".join([*parts, describe(head)])


_TITLES = {"python": "Pure Python, some 25 ms", "json": "JSON of 1.5 MB, a small result"}


def _load_rows(samples: Samples, load: str, cores: int) -> Iterator[list[str]]:
    floor = delay_p99(samples, "busy", load)
    for way, title in WAYS.items():
        taken = samples.get(_key("load", way, load), ())
        p99, shares = delay_p99(samples, way, load), work_shares(samples, way, load, cores)
        if taken:
            yield [
                title,
                spread([sample["latency"]["p50"] * 1e3 for sample in taken]).text(2),
                spread(p99).text(2),
                f"{ratios(p99, floor).median:.2f}" if floor else "",
                spread(_rates(samples, way, load)).text(1),
                spread(shares).text(2),
            ]


def _dispatch_rows(samples: Samples) -> Iterator[list[str]]:
    for way, title in WAYS.items():
        if samples.get(_key("dispatch", way)):
            yield [title, *(spread(call_us(samples, way, crowd)).text(1) for crowd in ("one", "eight"))]


def panels(data: Mapping[str, Any]) -> list[Panel]:
    """Return the charts of one result."""
    samples, cores = data["samples"], data["facts"]["usable_cpus"] or 1
    delays, shares, costs = {}, {}, {}
    for way, title in WAYS.items():
        for load in LOADS:
            delays[title, load] = delay_p99(samples, way, load)
            shares[title, load] = work_shares(samples, way, load, cores)
        for crowd, name in (("one", "one at a time"), ("eight", "eight at once")):
            costs[title, name] = call_us(samples, way, crowd)
    charts = [
        Panel("What the loop feels", "p99, milliseconds", given(delays)),
        Panel(
            "What the cores do", "calls per second, of one thread's times the cores", given(shares), log=False
        ),
        Panel("Dispatch", "microseconds per call", given(costs)),
    ]
    return [chart for chart in charts if chart.dots]
