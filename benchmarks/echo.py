"""How long does a loop take to answer while eight computing calls are in flight beside it?

An echo service, and calls of some 250 ms of pure Python, always eight of them submitted. Clients in
another process send at a fixed rate whatever comes back, and latency counts from when a request was
due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.children.work import calibrate
from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

LOOPS = ("asyncio", "uvloop")
WAYS = {
    "idle": "nothing computes",
    "stdlib": "`run_in_executor`, stdlib pool",
    "anyio": "`anyio.to_thread.run_sync`",
    "default_executor": "hybridrt as the loop's default",
    "offload": "hybridrt `@offload`",
    "unshielded": "the same with `shield=False`",
}
_NEEDS = {
    "anyio": ("anyio",),
    **dict.fromkeys(("default_executor", "offload", "unshielded"), ("hybridrt",)),
}
CALLS = 8
CALL_SECONDS = 0.25
_LATENCIES = {"asyncio": 1 / 100, "uvloop": 1 / 60}
"""What our p99 may be of the stdlib pool's."""
_WORK = 0.93
"""What our CPU work per second must be of the stdlib pool's, at least."""

_NOTE = """\
{calls} calls of {units} units of work ({call:.0f} ms alone) in flight; {rate} requests per second over
{connections} connections from another process, each moved within its slot by chance. Latency in
milliseconds from when a request was due; work in thousand units per second. The median over {count}
fresh processes of {seconds} s, then lowest and highest. A ratio is formed within one repetition, then
summarised."""


def candidates(*, quick: bool, units: int) -> list[Candidate]:
    """Return every way on every loop; the idle loop is the floor."""
    return [
        Candidate(
            name=_key(way, loop),
            job="echo",
            arguments={
                "way": "stdlib" if way == "idle" else way,
                "loop": loop,
                "calls": 0 if way == "idle" else CALLS,
                "units": units,
                "pacing": _pacing(quick=quick),
            },
            needs=_NEEDS.get(way, ()) + (("uvloop",) if loop == "uvloop" else ()),
        )
        for loop in LOOPS
        for way in WAYS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    units = calibrate(CALL_SECONDS)
    repetitions = 2 if options.quick else 5
    head, samples = measure(
        "echo", __doc__, options, candidates(quick=options.quick, units=units), repetitions
    )
    found = {name: _figures(taken) for name, taken in samples.items()}
    targets = list(_targets(found))
    pacing = _pacing(quick=options.quick)
    note = _NOTE.format(calls=CALLS, units=units, call=CALL_SECONDS * 1e3, count=repetitions, **pacing)
    data = {
        **head,
        "units": units,
        "figures": {name: {k: spread(v).to_dict() for k, v in f.items()} for name, f in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="echo", text=_text(found, targets, note, head), data=data)


def _key(way: str, loop: str) -> str:
    return f"{way} on {loop}"


def _pacing(*, quick: bool) -> dict[str, float]:
    times = {"warmup": 0.7, "seconds": 1.5} if quick else {"warmup": 1.5, "seconds": 4.5}
    return {"rate": 150, "connections": 8, **times}


Figures = Mapping[str, Sequence[float]]
"""Values of one candidate by name, one per repetition."""


def _figures(taken: Sequence[Sample]) -> Figures:
    quantiles = ("p50", "p99", "p99.9", "max")
    latencies = {name: [sample["latency"][name] * 1e3 for sample in taken] for name in quantiles}
    return latencies | {"work": [sample["work"] / 1e3 for sample in taken]}


def _targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for loop in LOOPS:
        theirs = found.get(_key("stdlib", loop))
        for way in ("default_executor", "offload"):
            ours = found.get(_key(way, loop))
            if ours and theirs:
                claim = f"{loop}: p99, {way} / stdlib"
                yield Target(claim=claim, figure=ratios(ours["p99"], theirs["p99"]), limit=_LATENCIES[loop])
                claim = f"{loop}: time for the same work, {way} / stdlib"
                yield Target(claim=claim, figure=ratios(theirs["work"], ours["work"]), limit=1 / _WORK)


def _text(found: Mapping[str, Figures], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    parts = ["# Echo: the loop beside computing calls", note]
    for loop in LOOPS:
        rows = list(_rows(found, loop))
        if rows:
            columns = ("latency, ms", "p50", "p99", "p99.9", "p99 / stdlib", "work", "work / stdlib")
            parts += [f"## {loop}", table(columns, rows)]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row(4) for t in targets])]
    return "\n\n".join([*parts, describe(head)])


def _rows(found: Mapping[str, Figures], loop: str) -> Iterator[list[str]]:
    base = found.get(_key("stdlib", loop))
    for way, title in WAYS.items():
        figures = found.get(_key(way, loop))
        if figures:
            latencies = [spread(figures[name]).text(2) for name in ("p50", "p99", "p99.9")]
            busy = way != "idle"
            yield [
                title,
                *latencies,
                _ratio(figures, base, "p99", 4),
                spread(figures["work"]).text(1) if busy else "",
                _ratio(figures, base, "work", 3) if busy else "",
            ]


def _ratio(figures: Figures, base: Figures | None, name: str, digits: int) -> str:
    if base is None:
        return ""
    found: Spread = ratios(figures[name], base[name])
    return f"{found.median:.{digits}f}"
