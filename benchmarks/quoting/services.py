"""What one line changes for services and agents built on frameworks: a block made of `frameworks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

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


BLOCKS: Mapping[str, Callable[[Reports], str]] = {"what frameworks gain": _frameworks}
