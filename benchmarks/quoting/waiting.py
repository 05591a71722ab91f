"""What calls that wait and then compute do to a loop: a block made of `phases`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import ratios, table
from benchmarks.phases import FEW_FIRST, IN_FLIGHT, LOADS, best_size, each
from benchmarks.quoting.reports import Reports, delay, machine, paragraph

__all__ = ["BLOCKS"]

_TITLES = {FEW_FIRST: "the first, after a quiet time"}


def _phases(reports: Reports) -> str:
    report = reports("phases-py3.13")
    note = f"""
        {IN_FLIGHT} calls in flight; each waits and then computes, as a function does that fetches and parses.
        The fixed size is the one of five with the most calls per second. *Calls* and *p99* compare a
        `Runtime` with it: calls per second, and the 99th percentile of the time from submission to result. A
        call of `json.loads` holds the GIL until it ends, and numpy computes in threads of its own;
        {machine(report)}:"""
    head = ("load", "p99 of the loop, ms: fixed size", "anyio", "hybridrt", "calls", "p99")
    after = """
        A loop that is on time costs calls: each of its wake-ups takes the GIL from one that computes.
        [The report](../benchmarks/results/phases-py3.13.md) has every size, and the executor without a
        `Runtime`."""
    return f"{paragraph(note)}\n\n{table(head, list(_rows(report['samples'])))}\n\n{paragraph(after)}"


def _rows(samples: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    for load in LOADS:
        best = best_size(load, samples)
        if best is None:
            continue
        fixed, ours = samples[best], samples[f"Runtime under {load}"]
        anyio = samples.get(f"anyio.to_thread under {load}")
        gains = (f"{ratios(each(ours, name), each(fixed, name)).median:.2f}" for name in ("calls", "call"))
        size = best.split()[1]
        yield [
            _TITLES.get(load, load),
            f"{_loop(fixed)} (size {size})",
            "" if anyio is None else _loop(anyio),
            f"**{_loop(ours)}**",
            *gains,
        ]


def _loop(taken: Sequence[Any]) -> str:
    return delay(median(each(taken, "loop")))


BLOCKS: Mapping[str, Callable[[Reports], str]] = {"calls that wait and then compute": _phases}
