"""What short items cost in a pipe, and what batches gain: a block made of `streams`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.figures import ratios, table
from benchmarks.quoting.reports import Reports, between, machine, paragraph
from benchmarks.streams import KINDS, LOOPS, best_queue, per_item

__all__ = ["BLOCKS"]

_WAYS = {
    "pipe": "**`hybridrt.pipe`**",
    "best queue": "the best of 12 queues by hand",
    "aiostream": "aiostream",
    "spdl": "SPDL",
}


def _streams(reports: Reports) -> str:
    report = reports("streams-py3.13")
    samples = report["samples"]
    note = f"""
        100,000 items of 50 us through one function, microseconds per item; the queues hand over 1 to 256
        items at a time to 1, 2 or 4 threads, and the best is chosen with hindsight; {machine(report)}:"""
    head = ("", *(f"{what}, {loop}" for what in KINDS.values() for loop in LOOPS))
    columns = [samples[f"items: {kind} on {loop}"] for kind in KINDS for loop in LOOPS]
    rows = [[title, *(_per_item(taken, way) for taken in columns)] for way, title in _WAYS.items()]
    batches = [samples[f"batches on {loop}"] for loop in LOOPS]
    gains = [_gain(taken, "sentences_per_s", "batch", "each") for taken in batches]
    alone = [_gain(taken, "alone_ms", "batch", "each") for taken in batches]
    after = f"""
        With `@offload(batch=N)` 64 callers of one sentence each get {between(gains, 1)} times the MiniLM
        embeddings per second of one call each, and a lone caller waits {between(alone)} times as long as for
        a plain call ([report](../benchmarks/results/streams-py3.13.md))."""
    return f"{paragraph(note)}\n\n{table(head, rows)}\n\n{paragraph(after)}"


def _per_item(taken: Sequence[Any], way: str) -> str:
    return f"{median(per_item(taken, best_queue(taken) if way == 'best queue' else way)):.0f}"


def _gain(taken: Sequence[Any], figure: str, over: str, under: str) -> float:
    ways = [{way: median(sample[figure][way]) for way in (over, under)} for sample in taken]
    return ratios([way[over] for way in ways], [way[under] for way in ways]).median


BLOCKS: Mapping[str, Callable[[Reports], str]] = {"pipes and batches": _streams}
