"""What the places of a call cost: blocks made of `isolates`, `inline`, `placement` and `lost_workers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import inline
from benchmarks.children.isolates import CALLS
from benchmarks.figures import table
from benchmarks.harness import Sample
from benchmarks.inline import added
from benchmarks.isolates import call_us, delay_p99, times_thread, work_shares
from benchmarks.placement import Row
from benchmarks.quoting.reports import Reports, between, delay, machine, paragraph

__all__ = ["BLOCKS"]

Samples = Mapping[str, Sequence[Sample]]

_WAYS = {
    "busy": "all cores busy in other processes",
    "to_thread": "`asyncio.to_thread`",
    "thread": "hybridrt `@offload`",
    "pure": "hybridrt `@offload(pure=True)`",
    "process_pool": "stdlib `ProcessPoolExecutor`",
}


def _isolates(reports: Reports) -> str:
    report = reports("isolates-py3.11")
    note = f"""
        {CALLS} calls in flight, echo requests at a fixed rate from another process; {machine(report)}. *Work*
        is calls per second as a share of one thread's times the cores; the cores of a shared machine are not
        always alike, so it can pass 1:"""
    head = ("", "p99 of the loop, ms, beside Python", "work", "beside `json.loads` of 1.5 MB", "work")
    return f"{paragraph(note)}\n\n" + table(head, [_row(report, way) for way in _WAYS])


def _row(report: Mapping[str, Any], way: str) -> list[str]:
    cells = (cell for load in ("python", "json") for cell in _delay_and_work(report, way, load))
    return [_WAYS[way], *cells]


def _delay_and_work(report: Mapping[str, Any], way: str, load: str) -> tuple[str, str]:
    return delay(median(delay_p99(report["samples"], way, load))), f"{_work(report, way, load):.2f}"


def _work(report: Mapping[str, Any], way: str, load: str) -> float:
    return median(work_shares(report["samples"], way, load, report["facts"]["usable_cpus"]))


def _dispatch(reports: Reports) -> str:
    new, old = reports("isolates-py3.14"), reports("isolates-py3.11")
    delay = {load: median(delay_p99(new["samples"], "pure", load)) for load in ("python", "json")}
    work = {(way, load): _work(new, way, load) for way in ("pure", "busy") for load in delay}
    one = _medians(new["samples"], "one")
    crowd, crowd_old = _medians(new["samples"], "eight"), _medians(old["samples"], "eight")
    pools = (crowd["process_pool"], crowd["interpreter_pool"], crowd_old["process_pool"])
    return paragraph(f"""
        On Python 3.14, where isolates are [sub-interpreters](../benchmarks/results/isolates-py3.14.md),
        `pure=True` reads {delay["python"]:.1f} ms beside Python and {delay["json"]:.1f} ms beside JSON; its
        work is {work["pure", "python"]:.2f} and {work["pure", "json"]:.2f}, where all cores busy in other
        processes reach {work["busy", "python"]:.2f} and {work["busy", "json"]:.2f}. A call that does nothing
        takes {one["isolate"]:.0f} us in an isolate, {_times(new):.2f} times as long as in a thread, where the
        standard library's pools of interpreters and processes take {one["interpreter_pool"]:.0f} and
        {one["process_pool"]:.0f}; on 3.11 {_medians(old["samples"], "one")["isolate"]:.0f} us,
        {_times(old):.2f} times as long. With eight callers it is {crowd["isolate"]:.0f} us a call on 3.14 and
        {crowd_old["isolate"]:.0f} on 3.11, where threads take {crowd["thread"]:.0f} and
        {crowd_old["thread"]:.0f}, `asyncio.to_thread` {crowd["to_thread"]:.0f} and
        {crowd_old["to_thread"]:.0f}, and those pools {between(pools, 0)}.""")


def _medians(samples: Samples, crowd: str) -> dict[str, float]:
    ways = ("to_thread", "thread", "isolate", "process_pool", "interpreter_pool")
    return {way: median(us) for way in ways if (us := call_us(samples, way, crowd))}


def _times(report: Mapping[str, Any]) -> float:
    return median(times_thread(report["samples"], "isolate", "one"))


def _choice(reports: Reports) -> str:
    samples = reports("inline-py3.13")["samples"]
    ours, one, eight = (
        between(
            [median(added(samples, way, loop, crowd)) for loop in inline.LOOPS for crowd in crowds], digits
        )
        for way, crowds, digits in (
            ("pure", inline.CROWDS, 1),
            ("to_thread", ["one"], 0),
            ("to_thread", ["eight"], 0),
        )
    )
    rows = reports("placement-py3.13")["rows"]
    near = sum(Row(**row).is_near for row in rows)
    killed = reports("lost_workers-py3.13")["samples"]
    ends = Counter[str]()
    for sample in killed:
        ends.update(sample["ends"])
    left = sum(len(sample[kind]) for sample in killed for kind in ("threads", "processes", "shared", "files"))
    return paragraph(f"""
        To a function of a few microseconds `pure=True` adds {ours} us, where `asyncio.to_thread` adds {one}
        ({eight} with eight callers). Left alone, it chose the cheapest place, or one within a tenth of it,
        for {near} of [{len(rows)} functions](../benchmarks/results/placement-py3.13.md). Of
        {ends.total():,} calls whose worker processes were
        [killed at random](../benchmarks/results/lost_workers-py3.13.md) {ends["WorkerLostError"]} failed with
        `WorkerLostError`, {ends.total() - ends["WorkerLostError"] - ends["returned"]} ended otherwise, and
        {left} threads, processes, files and pieces of shared memory were left behind.""")


def _in_short(reports: Reports) -> str:
    report = reports("isolates-py3.11")
    delay = {
        way: median(delay_p99(report["samples"], way, "json")) for way in ("to_thread", "thread", "pure")
    }
    return paragraph(f"""
        Beside `json.loads` of 1.5 MB the p99 of a loop is {delay["to_thread"]:.0f} ms with
        `asyncio.to_thread`, {delay["thread"]:.0f} with `@offload` and {delay["pure"]:.1f} with
        `@offload(pure=True)` ([table](#what-isolates-do)).""")


BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "what isolates do": _isolates,
    "what a call to an isolate costs": _dispatch,
    "what the choice of a place does": _choice,
    "what isolates do, in short": _in_short,
}
