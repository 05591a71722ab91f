"""What a loop feels and what a call costs.

The blocks are made of `echo`, `mixed`, `cost`, `dispatch` and `measuring`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import dispatch, echo
from benchmarks.figures import ratios, table
from benchmarks.quoting.reports import Reports, between, machine, paragraph

__all__ = ["BLOCKS"]


def _echo(reports: Reports) -> str:
    report = reports("echo-py3.13")
    shown = [way for way in echo.WAYS if way != "unshielded"]
    head = [
        "latency of a request, ms",
        *(f"{what}, {loop}" for loop in echo.LOOPS for what in ("p50", "p99")),
    ]
    note = f"""
        An echo service on the loop beside {echo.CALLS} pure-Python calls of
        {echo.CALL_SECONDS * 1e3:.0f} ms each, always {echo.CALLS} in flight; requests come at a fixed rate
        from another process. In milliseconds, {machine(report)}; *work* is that of the calls, as a share of
        what they do in the stdlib's pool:"""
    return f"{paragraph(note)}\n\n" + table([*head, "work"], [_echo_row(report, way) for way in shown])


def _echo_row(report: Mapping[str, Any], way: str) -> list[str]:
    ours = way in ("default_executor", "offload")
    cells = []
    for loop in echo.LOOPS:
        figures = report["figures"][f"{way} on {loop}"]
        p50, p99 = figures["p50"]["median"], figures["p99"]["median"]
        cells += [_short(p50), f"**{_short(p99)}**" if ours else _short(p99)]
    work = (_work(report["samples"], way, loop) for loop in echo.LOOPS)
    return [echo.WAYS[way], *cells, "" if way == "idle" else between(work)]


def _work(samples: Mapping[str, Sequence[Any]], way: str, loop: str) -> float:
    ours, theirs = ([sample["work"] for sample in samples[f"{name} on {loop}"]] for name in (way, "stdlib"))
    return ratios(ours, theirs).median


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _mixed(reports: Reports) -> str:
    report = reports("mixed-py3.13")
    best = report["best_static"]
    ratio = {target["claim"]: 1 / target["figure"]["median"] for target in report["targets"]}
    of_best = {way: ratio[f"requests, {best} / {way}"] for way in ("default_executor", "offload", "pure")}
    of_default = {way: ratio[f"requests, default size / {way}"] for way in of_best}
    loop = {way: figures["loop_p99"]["median"] for way, figures in report["figures"].items()}
    threads = ("default_executor", "offload")
    return paragraph(f"""
        It has a price. A service of which each request waits 50 ms and then computes for 5 ms answers
        {between(of_best[way] for way in threads)} of the requests that it does on the best of
        {sum(way.startswith("stdlib of") for way in loop)} fixed sizes, and
        {between((of_default[way] for way in threads), 1)} times those on asyncio's default size; the p99 of
        its loop is {between((loop[way] for way in threads), 1)} ms instead of {loop[best]:.0f}. If what
        computes is declared `pure` and may leave for another process, it answers {of_best["pure"]:.1f} times
        those on the best size and {of_default["pure"]:.1f} times those on the default, and the p99 of its
        loop is {loop["pure"]:.1f} ms ([report](../benchmarks/results/mixed-py3.13.md)). {_cost(reports)}""")


def _cost(reports: Reports) -> str:
    percent = {name: found["median"] for name, found in reports("cost-py3.13")["percent"].items()}
    idle = [found for name, found in percent.items() if name.startswith("idle")]
    loaded = [found for name, found in percent.items() if " on " not in name]
    return f"""The governor takes {between(loaded, 1)} % of a core under load, and an idle runtime
        {between(idle)} % ([report](../benchmarks/results/cost-py3.13.md))."""


_MODES = {"standing": "256", "single, one core": "one"}


def _dispatch(reports: Reports) -> str:
    report = reports("dispatch-py3.13")
    head = [
        "us per call (ratio)",
        *(f"{name}, {loop}" for name in _MODES.values() for loop in dispatch.LOOPS),
    ]
    note = f"""
        Microseconds per call, {machine(report)}; the ratio to the standard library's pool is formed run by
        run. 256 tasks stand and call; *one* calls and waits, again and again:"""
    added = (one["median"] for one in reports("measuring-py3.13")["difference"]["wall_us"].values())
    ways = _ways(report)
    free = (
        _ratio(report, "single", way, loop) for way in dispatch.OURS if way in ways for loop in dispatch.LOOPS
    )
    after = f"""
        Measuring every call is included; it adds {between(added, 1)} us. *One* has all threads on one core,
        because where the kernel puts two of them changes what waking one costs by several times; unpinned
        the ratios are {between(free)}."""
    rows = [[dispatch.WAYS[way], *_dispatch_cells(report, way)] for way in ways]
    return f"{paragraph(note)}\n\n{table(head, rows)}\n\n{paragraph(after)}"


def _ways(report: Mapping[str, Any]) -> list[str]:
    """Return the ways that the report has; one may have been added since."""
    return [way for way in dispatch.WAYS if f"{way} on {dispatch.LOOPS[0]}" in report["samples"]]


def _dispatch_cells(report: Mapping[str, Any], way: str) -> Iterator[str]:
    for mode in _MODES:
        for loop in dispatch.LOOPS:
            us = report["wall_us"][mode][f"{way} on {loop}"]["median"]
            shown = f"{us:.2f}" if us < 1 else f"{us:.1f}"
            compared = way not in ("run_in_executor", "inline")
            yield f"{shown} ({_ratio(report, mode, way, loop):.2f})" if compared else shown


def _ratio(report: Mapping[str, Any], mode: str, way: str, loop: str) -> float:
    ours, theirs = (
        [median(sample["modes"][mode]["wall_us"]) for sample in report["samples"][f"{name} on {loop}"]]
        for name in (way, "run_in_executor")
    )
    return ratios(ours, theirs).median


def _dispatch_in_short(reports: Reports) -> str:
    report = reports("dispatch-py3.13")
    found = report["wall_us"]["standing"]
    us = {way: [found[f"{way} on {loop}"]["median"] for loop in dispatch.LOOPS] for way in _ways(report)}
    ours = [each for way in dispatch.OURS for each in us.get(way, ())]
    return paragraph(f"""
        To hand a call over costs {between(ours, 1)} us with 256 in flight,
        where the standard library's pool takes {between(us["run_in_executor"], 1)}
        ([table](#what-a-call-costs)).""")


BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "what the loop feels": _echo,
    "the price": _mixed,
    "what a call costs": _dispatch,
    "what a call costs, in short": _dispatch_in_short,
}
