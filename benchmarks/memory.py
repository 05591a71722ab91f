"""How much memory does an idle pool take, and what do a million calls leave behind?

Idle: a process that runs an empty loop, against the same with a pool that was opened, used, and left
alone for longer than its threads stay. Growth: what is alive after every 100,000 calls; the slope
is taken once the first calls have filled what is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import linear_regression
from typing import Any

from benchmarks.figures import Spread, Target, differences, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

LIMITS = {"private": 2.0, "blocks": 0.01}
"""What a call may leave behind, in bytes and in allocated blocks.

The smallest object that a call could leave has 16 bytes and is a block, so a leak in every eighth
call shows in the bytes and one in every hundredth in the blocks. Below that, bytes move because the
allocator scatters (the stdlib's pool shows by how much), and blocks because the ring of the last 200
decisions fills and the list of samples grows.
"""

_IDLE = {
    "bare": "an empty loop",
    "run_in_executor": "stdlib pool, asyncio's default",
    "anyio": "`anyio.to_thread`",
    "default_executor": "hybridrt as the loop's default",
    "offload": "hybridrt `Runtime`",
}
_GROWTH = {
    "submit, stdlib": "`submit`, stdlib pool",
    "run_in_executor": "`run_in_executor`, stdlib pool",
    "submit": "`submit`, hybridrt",
    "default_executor": "hybridrt as the loop's default",
    "offload": "hybridrt `@offload`",
}
_OURS = ("submit", "default_executor", "offload")
_MOMENTS = {"open": "opened", "used": "after calls", "rested": "left alone"}
_SETTLED = 2
"""Samples at the start that the slope leaves out."""

_IDLE_NOTE = """\
KiB of memory that only this process holds and wrote, beyond that of an empty asyncio loop: the median
over {count} fresh processes, then lowest and highest; then the threads. `after calls` follows
{calls:,} calls from {standing} standing tasks, `left alone` another {rest:.0f} s. What a candidate
imports is a part of its price."""

_GROWTH_NOTE = """\
What one of {calls:,} calls leaves behind, after the first {settled:,}: the slope of the private memory,
and of the number of allocated blocks (a leak of one object per call would read at least 16 bytes and
1.0). The last column counts the objects that the garbage collector knows, at {settled:,} calls and at
the end."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every idle pool and every way that is watched while it grows."""
    return [
        *(_candidate("idle", way, _idle(quick=quick)) for way in _IDLE),
        *(_candidate("growth", way, _growth(quick=quick)) for way in _GROWTH),
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 3
    head, samples = measure("memory", __doc__, options, candidates(quick=options.quick), repetitions)
    beyond, slopes = _beyond_bare(samples), dict(_slopes(samples, _growth(quick=options.quick)["every"]))
    # A slope over a few thousand calls says nothing.
    targets = [] if options.quick else list(_targets(slopes))
    data = {
        **head,
        "idle_kib": {way: {m: s.to_dict() for m, s in of.items()} for way, of in beyond.items()},
        "growth_per_call": {way: {kind: s.to_dict() for kind, s in of.items()} for way, of in slopes.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    parts = ["# Memory: an idle pool, and a million calls"]
    parts += _idle_text(beyond, samples, _idle(quick=options.quick), repetitions)
    parts += _growth_text(slopes, samples, _growth(quick=options.quick))
    if targets:
        rows = [target.row(4) for target in targets]
        parts += ["## Promises", table(("left behind per call", "limit", "measured", ""), rows)]
    return Report(name="memory", text="\n\n".join([*parts, describe(head)]), data=data)


def _idle(*, quick: bool) -> dict[str, Any]:
    return {"calls": 2_000, "rest": 0.1} if quick else {"calls": 20_000, "rest": 12.0}


def _growth(*, quick: bool) -> dict[str, Any]:
    return {"calls": 5_000, "every": 1_000} if quick else {"calls": 1_000_000, "every": 100_000}


def _candidate(job: str, way: str, arguments: Mapping[str, Any]) -> Candidate:
    needs = {"anyio": ("anyio",)} | dict.fromkeys(_OURS, ("hybridrt",))
    return Candidate(
        name=f"{job}: {way}",
        job="memory",
        arguments={"job": job, "way": way, **arguments},
        needs=needs.get(way, ()),
    )


def _beyond_bare(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Spread]]:
    """Return KiB beyond the empty loop, by way and moment; nothing if that was not measured."""
    bare = [sample["open"]["private"] / 1024 for sample in samples.get("idle: bare", ())]
    measured = {way: samples[f"idle: {way}"] for way in _IDLE if f"idle: {way}" in samples}
    return {
        way: {
            moment: differences([sample[moment]["private"] / 1024 for sample in taken], bare)
            for moment in _MOMENTS
        }
        for way, taken in measured.items()
        if bare and way != "bare"
    }


def _slopes(samples: Mapping[str, Sequence[Sample]], every: int) -> Iterator[tuple[str, dict[str, Spread]]]:
    for way in _GROWTH:
        if taken := samples.get(f"growth: {way}"):
            yield way, {kind: spread([_slope(s["samples"], kind, every) for s in taken]) for kind in LIMITS}


def _slope(points: Sequence[Sample], kind: str, every: int) -> float:
    """Return the growth per call, once what is bounded has had time to fill."""
    settled = [point[kind] for point in points[_SETTLED - 1 :]]
    return linear_regression([number * every for number in range(len(settled))], settled).slope


def _targets(slopes: Mapping[str, Mapping[str, Spread]]) -> Iterator[Target]:
    for way in _OURS:
        for kind, limit in LIMITS.items():
            if way in slopes:
                yield Target(claim=f"{way}: {kind}", figure=slopes[way][kind], limit=limit)


def _idle_text(
    beyond: Mapping[str, Mapping[str, Spread]],
    samples: Mapping[str, Sequence[Sample]],
    timing: Mapping[str, Any],
    repetitions: int,
) -> list[str]:
    if not beyond:
        return []
    bare = spread([sample["open"]["private"] / 1024 for sample in samples["idle: bare"]])
    rows = [("an empty loop, in all", bare.text(0), "", "")]
    rows += [(_IDLE[way], *_idle_cells(of, samples[f"idle: {way}"])) for way, of in beyond.items()]
    note = _IDLE_NOTE.format(count=repetitions, standing=256, **timing)
    return ["## Idle", note, table(("KiB, threads", *_MOMENTS.values()), rows)]


def _idle_cells(of: Mapping[str, Spread], taken: Sequence[Sample]) -> tuple[str, str, str]:
    threads = {m: round(spread([sample[m]["threads"] for sample in taken]).median) for m in _MOMENTS}
    first, second, third = (f"{of[m].text(0)}, {threads[m]} thr" for m in _MOMENTS)
    return first, second, third


def _growth_text(
    slopes: Mapping[str, Mapping[str, Spread]],
    samples: Mapping[str, Sequence[Sample]],
    timing: Mapping[str, Any],
) -> list[str]:
    if not slopes:
        return []
    rows = [
        (_GROWTH[way], of["private"].text(2), of["blocks"].text(5), _objects(samples[f"growth: {way}"]))
        for way, of in slopes.items()
    ]
    note = _GROWTH_NOTE.format(calls=timing["calls"], settled=_SETTLED * timing["every"])
    return ["## Growth", note, table(("per call", "bytes", "blocks", "live objects"), rows)]


def _objects(taken: Sequence[Sample]) -> str:
    first, last = (
        round(spread([sample["samples"][at]["objects"] for sample in taken]).median)
        for at in (_SETTLED - 1, -1)
    )
    return f"{first:,} to {last:,}"
