"""What services, agents and a whole job gain: blocks made of `frameworks` and `rag`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import rag
from benchmarks.figures import ratios, table
from benchmarks.frameworks import FRAMEWORKS, REQUESTS, figures, key
from benchmarks.quoting.reports import Reports, machine, paragraph

__all__ = ["BLOCKS"]


def _frameworks(reports: Reports) -> str:
    report = reports("frameworks-py3.13")
    note = f"""
        The same code with one line more. {REQUESTS} requests are in flight; each waits 50 ms for a service
        and parses 100 kB of JSON in a plain function; {machine(report)}. Left the ratio with a `Runtime` to
        without. Right milliseconds without and with one: the 99th percentile of the loop's delay, as echo
        clients in another process see it, and the median of a full garbage collection, which stops all
        threads:"""
    head = ("", "requests/s", "their p99", "p99 of the loop, ms", "collection, ms")
    return f"{paragraph(note)}\n\n" + table(head, list(_rows(report["samples"])))


def _rows(samples: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    for framework, (title, _, _) in FRAMEWORKS.items():
        before, after = (figures(samples[key(framework, way)]) for way in ("default", "hybridrt"))
        changed = [ratios(after[name], before[name]).median for name in ("requests", "request_p99")]
        beside = [[median(each[name]) for each in (before, after)] for name in ("loop_p99", "collection")]
        yield [title, *(f"{ratio:.2f}" for ratio in changed), *(f"{a:.1f}, {b:.1f}" for a, b in beside)]


def _rag(reports: Reports) -> str:
    report = reports("rag-py3.13")
    ours, theirs = (rag.figures(report["samples"][executor]) for executor in rag.EXECUTORS)
    delay = {
        phase: [f"{median(each[f'{phase}: loop p99, ms']):.0f}" for each in (ours, theirs)]
        for phase in ("prepare", "index", "answer")
    }
    seconds, answer = (ratios(ours[name], theirs[name]).median for name in ("index: seconds", rag.ANSWER))
    return paragraph(f"""
        The same job runs on asyncio's default executor, too; `--compare` shows both. The p99 of the loop's
        delay is {delay["prepare"][0]} ms here and {delay["prepare"][1]} there while the model is loaded,
        {delay["index"][0]} and {delay["index"][1]} while documents are indexed, {delay["answer"][0]} and
        {delay["answer"][1]} while questions are answered. It gains no time:
        indexing takes {seconds:.2f} times as long, an answer {answer:.2f} times
        ([report](benchmarks/results/rag-py3.13.md); {machine(report)}).""")


BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "what frameworks gain": _frameworks,
    "what the example gains": _rag,
}
