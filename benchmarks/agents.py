"""How many questions does an agent with four tools answer, and does its loop stay awake?

Each question is two exchanges with a model and, in between, four tools at once: a parse of 1 MB of JSON
that holds the GIL, an embedding, a wait of 50 ms for a document that is then parsed, and a search. The model
and the documents are in another process; 32 questions are always in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["BASES", "QUESTIONS", "candidates", "run"]

QUESTIONS = 32
WAYS = {
    "by hand": "a loop by hand on asyncio's default executor",
    "agent": "`hybridrt.Agent`, the parse is `pure`",
    "langgraph": "LangGraph, default executor",
    "langgraph, runtime": "LangGraph, one line: a `Runtime`",
    "langgraph, pure": "LangGraph, a `Runtime`, the parse is `pure`",
    "langgraph, waiting": "LangGraph alone: tools that wait and compute nothing",
    "fastapi": "FastAPI, `def` endpoints",
    "fastapi, runtime": "FastAPI, one line: a `Runtime`",
    "fastapi, pure": "FastAPI, a `Runtime`, the parse is `pure`",
}
BASES = {
    "agent": "by hand",
    "langgraph, runtime": "langgraph",
    "langgraph, pure": "langgraph",
    "fastapi, runtime": "fastapi",
    "fastapi, pure": "fastapi",
}
"""What each of ours is compared with."""
_GAIN, _DELAY = {"agent": 2.0}, {"agent": 1 / 20}
_GAIN_ELSEWHERE, _DELAY_ELSEWHERE = 1.3, 1 / 10

_COLUMNS = {
    "questions": ("questions/s", 1),
    "question_p50": ("question p50", 0),
    "question_p99": ("question p99", 0),
    "loop_p99": ("loop p99", 1),
    "loop_max": ("loop max", 1),
    "loop_cpu": ("loop CPU", 0),
}
"""Figures with their titles and digits."""

_NOTE = """\
{questions} questions in flight on asyncio. Times in milliseconds; the loop's delay is that of a timer of
10 ms, weighted by time. *Loop CPU* is what the loop's thread computes itself, in percent of a core: the
service's own work, which no pool takes from it. For FastAPI a question is four requests at once, from another
process, and there is no model. The median over {count} fresh processes of {seconds} s after {warmup} s of
warm-up, then lowest and highest. A ratio is formed within one repetition, then summarised."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every way."""
    needs = {
        "by": ("openai",),
        "agent": ("openai",),
        "langgraph": ("langgraph", "openai"),
        "fastapi": ("fastapi", "uvicorn"),
    }
    return [
        Candidate(
            name=way,
            job="agents",
            arguments={"way": way, "loop": "asyncio", "pacing": _pacing(quick=quick)},
            needs=("onnx", "onnxruntime", "aiohttp", *needs[way.replace(",", "").split()[0]]),
        )
        for way in WAYS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    head, samples = measure("agents", __doc__, options, candidates(quick=options.quick), repetitions)
    found = {name: _figures(taken) for name, taken in samples.items()}
    targets = list(_targets(found))
    note = _NOTE.format(count=repetitions, **_pacing(quick=options.quick))
    data = {
        **head,
        "figures": {name: {k: spread(v).to_dict() for k, v in f.items()} for name, f in found.items()},
        "targets": [target.to_dict() for target in targets],
        "samples": samples,
    }
    return Report(name="agents", text=_text(found, targets, note, head), data=data)


def _pacing(*, quick: bool) -> dict[str, float]:
    times = {"warmup": 4.0, "seconds": 4.0} if quick else {"warmup": 10.0, "seconds": 15.0}
    return {"questions": QUESTIONS, **times}


Figures = Mapping[str, Sequence[float]]
"""Values of one candidate by name, one per repetition."""


def _figures(taken: Sequence[Sample]) -> Figures:
    return {
        "questions": [sample["questions"] for sample in taken],
        "question_p50": [sample["question"]["p50"] * 1e3 for sample in taken],
        "question_p99": [sample["question"]["p99"] * 1e3 for sample in taken],
        "loop_p99": [sample["loop_p99"] * 1e3 for sample in taken],
        "loop_max": [sample["loop_max"] * 1e3 for sample in taken],
        "loop_cpu": [sample["loop_cpu"] * 1e2 for sample in taken],
    }


def _targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the promises that the candidates which ran can tell about."""
    for way, base in BASES.items():
        if way not in found or base not in found:
            continue
        ours, theirs = found[way], found[base]
        gain = ratios(ours["questions"], theirs["questions"])
        yield Target(
            claim=f"questions/s, {way} / {base}",
            figure=gain,
            limit=_GAIN.get(way, _GAIN_ELSEWHERE),
            at_least=True,
        )
        delay = ratios(ours["loop_p99"], theirs["loop_p99"])
        yield Target(claim=f"loop p99, {way} / {base}", figure=delay, limit=_DELAY.get(way, _DELAY_ELSEWHERE))


def _text(found: Mapping[str, Figures], targets: Sequence[Target], note: str, head: Mapping[str, Any]) -> str:
    rows = [
        [title, *(spread(found[way][name]).text(digits) for name, (_, digits) in _COLUMNS.items())]
        for way, title in WAYS.items()
        if way in found
    ]
    parts = [
        "# Agents: questions that four tools answer",
        note,
        table(("", *(title for title, _ in _COLUMNS.values())), rows),
    ]
    if targets:
        parts += ["## Promises", table(("ratio", "limit", "measured", ""), [t.row(3) for t in targets])]
    return "\n\n".join([*parts, describe(head)])
