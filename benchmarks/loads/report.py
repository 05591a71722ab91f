"""The findings of all loads as tables and promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import Target, spread, table
from benchmarks.harness import Report, describe, origin
from benchmarks.loads import figures
from benchmarks.loads.figures import Findings, was_brief
from benchmarks.loads.plan import LOADS, Timing

__all__ = ["make"]

_NOTE = """\
A closed loop: standing tasks on asyncio's loop, one call in flight each, many more than the best pool
has threads. `best` is the static size with the highest throughput in a sweep that begins with {sizes}
(of those within 2 %, the one with the lowest p99 of a call's run time). Ours and the best static pool
then run in turn, {pairs} times, from a cold start that counts, each for the seconds of the first column,
usually {seconds:g}. The loads of the paper come first. Efficiency is throughput over that of the best static
pool, in a pair; then the median over the pairs, lowest and highest. A load with phases counts with their
geometric mean."""

_OTHERS_NOTE = """\
Throughput as a share of the best static pool's. Static sizes are points of the sweep (steady state,
{sweep:g} s, or two to eight times that where all calls in flight take long, over the best point there).
BetaPool, anyio and `paper`, which is ours with `policy="paper"`, run in turn with ours, from a cold start,
for as long and as often."""

_BRIEF_NOTE = """\
A figure in brackets is older: from one run of {seconds:g} s, in which BetaPool, whose first step comes after
two, keeps the four threads that it starts with. It is compared with the median of the best size."""

_LOOP_NOTE = """\
p99 of the loop's delay in milliseconds: lateness of a 10 ms timer, weighted by time, median of the runs.
`runtime` is ours within a `Runtime`. Static sizes are points of the sweep, where that was noted. It may be
5 ms, or a tenth of that of the best static pool beside it."""

_REASONS_NOTE = """\
Why ours had the size it had: share of its decisions by reason, over all runs. `beta_veto`, `saturated` and
`loop_delay` refuse growth although calls are queued (`help(hybridrt.Reason)` has all of them)."""

_ORIGIN_NOTE = """\
Loads may be measured one by one. When each was, with which code, and how often and how long BetaPool, anyio
and `paper` ran; where the commit was not noted, the loads of a line may come from several runs."""

_DETAIL_NOTE = """\
Medians over the pairs, ours then the best static pool's: calls per second; milliseconds from
submission to result and in the thread; calls that run at once at the end; threads at most; CPU seconds
per second; p99 of the loop's delay in milliseconds. Then calls of ours started without a permit, and the
most CPU seconds per second that other processes took in a run (for `rag` the vector store is one of
them): a disturbed load is to be run again."""


def make(head: Mapping[str, Any], timing: Timing, found: Mapping[str, Findings]) -> Report:
    """Return the report on the loads that there are findings of, in the order of the plan."""
    ordered = {load.name: found[load.name] for load in LOADS if load.name in found}
    targets = list(_targets(ordered))
    names = ", ".join(map(str, timing.sizes))
    parts = [
        "# Loads: an untuned pool against the best static size",
        _NOTE.format(sizes=names, pairs=timing.pairs, seconds=timing.seconds),
        _efficiency_table(ordered),
        "## Others",
        _OTHERS_NOTE.format(sweep=timing.sweep),
        _others_table(ordered),
        *_brief_notes(ordered),
        "## The loop",
        _LOOP_NOTE,
        _loop_table(ordered),
        "## What decided",
        _REASONS_NOTE,
        _reasons_table(ordered),
        "## Detail",
        _DETAIL_NOTE,
        _detail_table(ordered),
        "## Promises",
        table(("figure", "limit", "measured", ""), [target.row() for target in targets]),
        "## Put together from",
        _ORIGIN_NOTE,
        _origins(ordered),
        describe(head, "The run that wrote this report"),
    ]
    data = {**head, "targets": [target.to_dict() for target in targets], "loads": _summaries(ordered)}
    return Report(name="loads", text="\n\n".join(parts), data=data)


def _targets(found: Mapping[str, Findings]) -> Iterator[Target]:
    paper = [found[load.name] for load in LOADS if load.headline and load.name in found]
    for which, of in (("the paper's loads", paper), ("all loads", list(found.values()))):
        if of:
            yield Target(
                claim=f"efficiency, average of the medians of {which}, each at most 1",
                figure=figures.average_efficiency(of),
                limit=0.97,
                at_least=True,
            )
    for name, findings in found.items():
        efficiency = figures.efficiency(findings)
        yield Target(claim=f"{name}: efficiency", figure=efficiency, limit=0.92, at_least=True)
        if share := figures.share_of_best(findings, "runtime"):
            yield Target(claim=f"{name}: efficiency, Runtime", figure=share, limit=0.92, at_least=True)
    for name, findings in found.items():
        yield Target(claim=f"{name}: p99 of a call / best", figure=figures.p99_ratio(findings), limit=1.3)
        if share := figures.share_of_best(findings, "runtime", "total_p99"):
            yield Target(claim=f"{name}: p99 of a call / best, Runtime", figure=share, limit=1.3)
    for name, findings in found.items():
        for pool, title in (("ours", "bare executor"), ("runtime", "Runtime")):
            if late := figures.loop_over_limit(findings, pool):
                claim = f"{name}: loop p99 over its limit, {title}"
                yield Target(claim=claim, figure=late, limit=1.0)
    for name, findings in found.items():
        if ramp := figures.ramps(findings):
            yield Target(claim=f"{name}: cold to 90 %, seconds", figure=ramp, limit=1.5)
    yield from _capacity_targets(found)


def _capacity_targets(found: Mapping[str, Findings]) -> Iterator[Target]:
    if computing := found.get("compute"):
        running = spread([figures.at_once(pair["ours"]) for pair in computing["pairs"]])
        yield Target(claim="compute: calls that run at once", figure=running, limit=1.1)
    if hashing := found.get("hash"):
        share = figures.share_of_cores(hashing)
        yield Target(claim="hash: throughput / (cores x one thread)", figure=share, limit=0.95, at_least=True)


def _efficiency_table(found: Mapping[str, Findings]) -> str:
    titles = {load.name: load.title for load in LOADS}
    rows = [
        [
            f"{name}: {titles[name]}",
            f"{findings['seconds']:g}",
            str(findings["tasks"]),
            str(findings["best_size"]),
            figures.efficiency(findings).text(3),
            figures.p99_ratio(findings).text(2),
            figures.p99_ratio(findings, "run").text(2),
            ramp.text(1) if (ramp := figures.ramps(findings)) else "",
        ]
        for name, findings in found.items()
    ]
    head = ("load", "s", "in flight", "best", "efficiency", "p99 / best", "p99 in thread", "cold to 90 %, s")
    return table(head, rows)


def _others_table(found: Mapping[str, Findings]) -> str:
    sizes = sorted({f["default_size"] for f in found.values()} | {32, 256})
    default = {f["default_size"] for f in found.values()}
    pools = _pools(found)
    head = ["load", *(f"static {n}{', default' if n in default else ''}" for n in sizes), *pools, "ours"]
    rows = [[name, *_others_cells(findings, sizes, pools)] for name, findings in found.items()]
    return table(head, rows)


def _others_cells(findings: Findings, sizes: Sequence[int], pools: Sequence[str]) -> Iterator[str]:
    points, highest = findings["sweep"], max(point["rate"] for point in findings["sweep"].values())
    for size in sizes:
        point = points.get(str(size))
        yield f"{point['rate'] / highest:.2f}" if point else ""
    for pool in pools:
        share = figures.share_of_best(findings, pool)
        cell = f"{share.median:.2f}" if share else ""
        yield f"({cell})" if share and figures.was_brief(findings, pool) else cell
    yield f"{figures.efficiency(findings).median:.2f}"


def _loop_table(found: Mapping[str, Findings]) -> str:
    delays = {name: figures.loop_delays(findings) for name, findings in found.items()}
    sizes = sorted({f["default_size"] for f in found.values()} | {32, 256})
    wanted = ["best", *(f"static {size}" for size in sizes), *_pools(found), "ours"]
    columns = [name for name in wanted if any(name in of for of in delays.values())]
    rows = [
        [load, *(f"{of[name] * 1000:.1f}" if name in of else "" for name in columns)]
        for load, of in delays.items()
    ]
    return table(["load", *columns], rows)


def _reasons_table(found: Mapping[str, Findings]) -> str:
    shares = {name: figures.reason_shares(findings) for name, findings in found.items()}
    columns = list(dict.fromkeys(reason for of in shares.values() for reason in of))
    rows = [
        [load, *(f"{of[name]:.2f}" if name in of else "" for name in columns)] for load, of in shares.items()
    ]
    return table(["load", *columns], rows)


def _pools(found: Mapping[str, Findings]) -> list[str]:
    return list(dict.fromkeys(pool for f in found.values() for pool in f["alternatives"]))


def _brief_notes(found: Mapping[str, Findings]) -> list[str]:
    seconds = {f["alternative_seconds"] for f in found.values() for p in f["alternatives"] if was_brief(f, p)}
    return [_BRIEF_NOTE.format(seconds=each) for each in sorted(seconds)]


def _origins(found: Mapping[str, Findings]) -> str:
    runs: dict[str, list[str]] = {}
    for name, findings in found.items():
        runs.setdefault(_origin(findings), []).append(name)
    return "\n".join(f"- {run}: {', '.join(names)}" for run, names in runs.items())


def _origin(findings: Findings) -> str:
    often = {pool: len(runs) for pool, runs in findings["alternatives"].items()}
    others = (f"{pool} {count} x {findings['alternative_seconds']:g} s" for pool, count in often.items())
    return ", ".join([findings["facts"]["date"], origin(findings["facts"]), *others])


def _detail_table(found: Mapping[str, Findings]) -> str:
    times = ("p50", "p99", "p99 in thread")
    head = ("load", "calls/s", *times, "at once", "threads", "CPU", "loop", "overdrafts", "others")
    return table(head, [[name, *_detail_cells(findings)] for name, findings in found.items()])


def _detail_cells(findings: Findings) -> Iterator[str]:
    yield _two(*figures.paired(findings, "rate"), 0)
    for what in ("total_p50", "total_p99", "run_p99"):
        yield _two(*figures.paired(findings, what), 1, 1000)
    ours, best = ([figures.at_once(pair[side]) for pair in findings["pairs"]] for side in ("ours", "best"))
    yield _two(ours, best, 1)
    for what, digits, factor in (("threads_peak", 0, 1.0), ("cpu", 2, 1.0), ("loop_delay_p99", 1, 1000)):
        ours, best = ([pair[side][what] or 0.0 for pair in findings["pairs"]] for side in ("ours", "best"))
        yield _two(ours, best, digits, factor)
    yield f"{median(pair['ours']['statistics']['overdrafts'] for pair in findings['pairs']):.0f}"
    yield f"{max(pair[side]['cpu_others'] for pair in findings['pairs'] for side in pair):.2f}"


def _two(ours: Sequence[float], best: Sequence[float], digits: int, factor: float = 1.0) -> str:
    return f"{median(ours) * factor:.{digits}f}, {median(best) * factor:.{digits}f}"


def _summaries(found: Mapping[str, Findings]) -> dict[str, Any]:
    return {
        name: {
            "best_size": findings["best_size"],
            "efficiency": figures.efficiency(findings).to_dict(),
            "p99_ratio": figures.p99_ratio(findings).to_dict(),
            "run_p99_ratio": figures.p99_ratio(findings, "run").to_dict(),
            "cold_to_90_s": ramp.to_dict() if (ramp := figures.ramps(findings)) else None,
        }
        for name, findings in found.items()
    }
