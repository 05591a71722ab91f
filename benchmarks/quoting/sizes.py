"""How close a `Runtime` comes to the best fixed size: blocks made of `loads`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.figures import Spread, table
from benchmarks.loads import figures
from benchmarks.loads.figures import Findings
from benchmarks.loads.plan import LOADS
from benchmarks.quoting.reports import Reports, between, paragraph

__all__ = ["BLOCKS"]

_REPORT = "loads-py3.13"
_SIZES = (32, 256)
_POOLS = {"betapool": "BetaPool", "anyio": "anyio", "paper": '`policy="paper"`'}


def _table(reports: Reports) -> str:
    found = reports.loads(_REPORT)
    paper = {load.name: found[load.name] for load in LOADS if load.headline and load.name in found}
    pools = [pool for pool in _POOLS if any(pool in one["alternatives"] for one in paper.values())]
    (default,) = {one["default_size"] for one in paper.values()}
    sizes = (default, *_SIZES)
    head = ["load", "best size", "hybridrt", "p99", "loop p99, best size", "loop p99, ours"]
    head += [f"{default}, asyncio's", *map(str, _SIZES)]
    head += [_POOLS[pool] for pool in pools]
    rows = [_row(name, one, sizes, pools) for name, one in paper.items()]
    return f"{paragraph(_how(list(paper.values())))}\n\n{table(head, rows)}"


def _how(found: Sequence[Findings]) -> str:
    return f"""
        {len(found)} loads, {" or ".join(map(str, sorted({one["tasks"] for one in found})))} calls in flight,
        {between([one["seconds"] for one in found], 0)} s from a cold start and nothing tuned, in a
        `Runtime`, against the best fixed size that a sweep found for each. Throughput as a share of that
        one's, medians of {between([len(one["pairs"]) for one in found], 0)} pairs of runs; *p99* is that of a
        call, from submission to result, as a multiple of that one's; *loop p99* is the delay of the loop, in
        milliseconds, beside the best fixed size and in the `Runtime`. CPython 3.13:"""


def _row(name: str, found: Findings, sizes: Sequence[int], pools: Sequence[str]) -> list[str]:
    titles = {load.name: load.title for load in LOADS}
    highest = max(point["rate"] for point in found["sweep"].values())
    swept = [f"{found['sweep'][str(size)]['rate'] / highest:.2f}" for size in sizes]
    ours = [
        str(found["best_size"]),
        f"**{_ours(found).median:.2f}**",
        f"{_ours(found, 'total_p99').median:.2f}",
    ]
    delays = figures.loop_delays(found)
    late = [f"{delays[pool] * 1000:.0f}" for pool in ("best", "runtime")]
    return [titles[name], *ours, *late, *swept, *(_share(found, pool) for pool in pools)]


def _ours(found: Findings, what: str = "rate") -> Spread:
    """Return a figure of a `Runtime` as a share of that of the best fixed size: all ours are of that one."""
    share = figures.share_of_best(found, "runtime", what)
    assert share is not None
    return share


def _share(found: Findings, pool: str) -> str:
    share = figures.share_of_best(found, pool)
    if share is None:
        return ""
    return f"({share.median:.2f})" if figures.was_brief(found, pool) else f"{share.median:.2f}"


def _in_words(reports: Reports) -> str:
    found = reports.loads(_REPORT)
    paper = [found[load.name] for load in LOADS if load.headline and load.name in found]
    more = [found[load.name] for load in LOADS if not load.headline and load.name in found]
    return paragraph(f"""
        The average over these {len(paper)} is {figures.average_efficiency(paper, _ours).median:.3f} where
        none counts above 1. The other {len(more)} of [all
        loads](../benchmarks/results/loads-py3.13.md), among them files written with and without
        fsync, come to {between(_ours(one).median for one in more)}. The p99 of a call is at most
        {max(_ours(one, "total_p99").median for one in found.values()):.1f} times that of the best size.
        {_brief(paper)}""")


def _brief(found: Sequence[Findings]) -> str:
    brief = {
        (_POOLS[pool], f"{len(runs)} x {one['alternative_seconds']:g} s")
        for one in found
        for pool, runs in one["alternatives"].items()
        if figures.was_brief(one, pool)
    }
    if not brief:
        return ""
    pools = " and ".join(sorted({pool for pool, _ in brief}))
    lengths = " or ".join(sorted({length for _, length in brief}))
    return f"""A figure in brackets comes from less time than ours had: {pools} ran {lengths}, and BetaPool,
        whose first step comes after two seconds, kept the four threads that it starts with."""


def _in_short(reports: Reports) -> str:
    found = reports.loads(_REPORT)
    paper = [found[load.name] for load in LOADS if load.headline and load.name in found]
    (seconds,) = {one["seconds"] for one in paper}
    return paragraph(f"""
        From a cold start, within {seconds:g} s and with nothing tuned, a `Runtime` comes to
        {between(_ours(one).median for one in paper)} of the throughput of the best fixed size
        on each of {len(paper)} loads, and a sweep had to find that size for each load
        ([table](#how-close-to-the-best-fixed-size)).""")


BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "how close to the best fixed size": _table,
    "how close to the best fixed size, in words": _in_words,
    "how close to the best fixed size, in short": _in_short,
}
