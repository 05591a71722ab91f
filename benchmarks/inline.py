"""What does `@offload(pure=True)` add to a function of a few microseconds?

Three parts, each in processes of its own. *Cost*: calls as fast as they go, the plain function and the
way in turns within one process, so what is added is the difference. *Service*: eight tasks that call in
bursts, while echo clients in another process ask the loop for answers. *Sudden*: a function that has
always been short takes half a second from some call on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.children.inline import STALL
from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure
from benchmarks.strips import Panel, given

__all__ = ["added", "candidates", "panels", "run"]

LOOPS = ("asyncio", "uvloop")
WAYS = {
    "direct": "a coroutine that calls it",
    "to_thread": "`asyncio.to_thread`",
    "thread": "`@offload`",
    "pure": "`@offload(pure=True)`",
    "inline": '`@offload(where="inline")`',
}
CROWDS = {"one": "one task", "eight": "eight tasks"}
ADDED = 1 / 20
"""What `pure=True` may add of what `asyncio.to_thread` adds."""
DELAY = 1.2
"""What the clients' p99 may be of the one beside direct calls."""
SLOW_CALLS = 3

_NOTE = """\
The median over {count} fresh processes, then lowest and highest; ratios are formed within one repetition.
*Cost*: microseconds that a call takes longer than the function alone, the median of {blocks} pairs of blocks
of {block} s, one of each; the promises compare what is added as a share of the function's own time in the
block before, because the speed of a shared machine changes from second to second. *Service*: latency in
milliseconds of {rate} requests per second from when each was due, loop and clients on a core of their own,
and thousand calls per second made meanwhile. *Sudden*: {slow} calls of half a second after 300 short ones; a
stall is a beat of the loop that comes {stall} s late."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way in every part on every loop."""
    cost = (
        {"block": 0.02, "blocks": 3, "warmup": 0.01}
        if quick
        else {"block": 0.03, "blocks": 15, "warmup": 0.01}
    )
    found = [_candidate("cost", way, loop, **cost) for loop in LOOPS for way in WAYS]
    service = ("direct", "to_thread", "pure")
    found += [_candidate("service", way, loop, pacing=_pacing(quick)) for loop in LOOPS for way in service]
    return found + [_candidate("sudden", "pure", loop, slow_calls=SLOW_CALLS) for loop in LOOPS]


def _candidate(part: str, way: str, loop: str, **arguments: Any) -> Candidate:
    ours = ("hybridrt",) if way in ("thread", "pure", "inline") else ()
    return Candidate(
        name=_key(part, way, loop),
        job="inline",
        arguments={"part": part, "way": way, "loop": loop, **arguments},
        needs=ours + (("uvloop",) if loop == "uvloop" else ()),
    )


def _key(part: str, way: str, loop: str) -> str:
    return f"{part}: {way} on {loop}"


def _pacing(quick: bool) -> dict[str, float]:
    times = {"warmup": 0.3, "seconds": 1.0} if quick else {"warmup": 0.5, "seconds": 3.0}
    return {"rate": 200, "connections": 8, **times}


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 2 if options.quick else 5
    head, samples = measure("inline", __doc__, options, candidates(quick=options.quick), repetitions)
    targets = list(_targets(samples))
    data = {**head, "targets": [target.to_dict() for target in targets], "samples": samples}
    return Report(name="inline", text=_text(samples, targets, options, head, repetitions), data=data)


def added(samples: Mapping[str, Sequence[Sample]], way: str, loop: str, crowd: str) -> list[float]:
    """Return what the way adds to a call, in microseconds, one figure per repetition."""
    return [median(slower - alone for alone, slower in pairs) for pairs in _pairs(samples, way, loop, crowd)]


def _added_share(samples: Mapping[str, Sequence[Sample]], way: str, loop: str, crowd: str) -> list[float]:
    """Return the same as a share of the function's own time."""
    return [
        median(slower / alone - 1.0 for alone, slower in pairs) for pairs in _pairs(samples, way, loop, crowd)
    ]


def _pairs(
    samples: Mapping[str, Sequence[Sample]], way: str, loop: str, crowd: str
) -> Iterator[list[tuple[float, float]]]:
    """Yield microseconds of a call alone and of one by the way, block by block, for each repetition."""
    for sample in samples.get(_key("cost", way, loop), ()):
        yield list(zip(sample[crowd]["direct_us"], sample[crowd]["way_us"], strict=True))


def _p99(samples: Mapping[str, Sequence[Sample]], way: str, loop: str) -> list[float]:
    return [sample["latency"]["p99"] * 1e3 for sample in samples.get(_key("service", way, loop), ())]


def _targets(samples: Mapping[str, Sequence[Sample]]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for loop in LOOPS:
        for crowd, title in CROWDS.items():
            ours, theirs = (_added_share(samples, way, loop, crowd) for way in ("pure", "to_thread"))
            if ours and theirs:
                claim = f"{loop}, {title}: added by pure=True / by to_thread"
                yield Target(claim=claim, figure=ratios(ours, theirs), limit=ADDED)
        ours, theirs = (_p99(samples, way, loop) for way in ("pure", "direct"))
        if ours and theirs:
            claim = f"{loop}: p99 beside pure=True / beside direct calls"
            yield Target(claim=claim, figure=ratios(ours, theirs), limit=DELAY)
        yield from _sudden_targets(samples.get(_key("sudden", "pure", loop), ()), loop)


def _sudden_targets(taken: Sequence[Sample], loop: str) -> Iterator[Target]:
    if taken:
        yield Target(claim=f"{loop}: stalls by calls of 500 ms", figure=_stalls(taken), limit=1.0)
        told = spread([float(sample["overruns"]) for sample in taken])
        yield Target(claim=f"{loop}: overruns told of", figure=told, limit=1.0, at_least=True)


def _stalls(taken: Sequence[Sample]) -> Spread:
    return spread([float(sum(stall >= STALL for stall in sample["stalls"])) for sample in taken])


def _text(
    samples: Mapping[str, Sequence[Sample]],
    targets: Sequence[Target],
    options: Options,
    head: Mapping[str, Any],
    count: int,
) -> str:
    arguments = candidates(quick=options.quick)[0].arguments
    rate = _pacing(options.quick)["rate"]
    note = _NOTE.format(count=count, slow=SLOW_CALLS, stall=STALL, rate=rate, **arguments)
    parts = ["# Inline: a function of a few microseconds", note]
    for title, rows in (("Cost", _cost_rows(samples)), ("Service", _service_rows(samples))):
        found = list(rows)
        if found:
            parts += [f"## {title}", table(_HEADS[title], found)]
    if targets:
        parts += ["## Promises", table(("figure", "limit", "measured", ""), [t.row(3) for t in targets])]
    return "\n\n".join([*parts, describe(head)])


_HEADS = {
    "Cost": ("added, us per call", *(f"{loop}, {title}" for loop in LOOPS for title in CROWDS.values())),
    "Service": (
        "latency, ms",
        *(f"{loop}, {what}" for loop in LOOPS for what in ("p99", "calls, thousand/s")),
    ),
}


def _cost_rows(samples: Mapping[str, Sequence[Sample]]) -> Iterator[list[str]]:
    for way, title in WAYS.items():
        cells = [added(samples, way, loop, crowd) for loop in LOOPS for crowd in CROWDS]
        if any(cells):
            yield [title, *(spread(values).text(2) if values else "" for values in cells)]


def _service_rows(samples: Mapping[str, Sequence[Sample]]) -> Iterator[list[str]]:
    for way, title in WAYS.items():
        taken = [samples.get(_key("service", way, loop), ()) for loop in LOOPS]
        if any(taken):
            yield [title, *(cell for of in taken for cell in _service_cells(of))]


def _service_cells(taken: Sequence[Sample]) -> tuple[str, str]:
    if not taken:
        return "", ""
    latency = spread([sample["latency"]["p99"] * 1e3 for sample in taken])
    return latency.text(2), spread([sample["calls"] / 1e3 for sample in taken]).text(1)


def panels(data: Mapping[str, Any]) -> list[Panel]:
    """Return the charts of one result."""
    samples, ways = data["samples"], [way for way in WAYS if way != "direct"]
    found = []
    for crowd, title in CROWDS.items():
        added_us = {(WAYS[way], loop): added(samples, way, loop, crowd) for way in ways for loop in LOOPS}
        found.append(Panel(f"Added to a call, {title}", "microseconds", given(added_us)))
    p99 = {(title, loop): _p99(samples, way, loop) for way, title in WAYS.items() for loop in LOOPS}
    title = "What the loop feels beside bursts of calls"
    return [*found, Panel(title, "p99, milliseconds", given(p99), log=False)]
