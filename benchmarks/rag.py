"""What does hybridrt gain for a job that indexes documents and answers questions about them?

`examples/rag.py` as it stands, on hybridrt and on asyncio's default executor: the same steps, the same loop,
real ONNX embeddings, its own heartbeat as the measure of the loop. `rag.py --compare` shows one such pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.figures import ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["ANSWER", "EXECUTORS", "candidates", "figures", "run"]

EXECUTORS = ("hybridrt", "asyncio")
OURS, THEIRS = EXECUTORS
ANSWER = "seconds from a question to the end of its answer"

_NOTE = """\
{documents} documents in {chunks} pieces, {questions} questions, four at once; the median over {count} fresh
processes, then lowest and highest. Loop delay is weighted by time. The model is read in before; an answer is
extractive, so its time is that of the tools. Ratios are hybridrt / asyncio, formed within one repetition."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return the job on each executor."""
    arguments = ["--limit", "4"] if quick else []
    return [
        Candidate(
            name=executor,
            job="rag",
            arguments={"executor": executor, "arguments": arguments},
            needs=("hybridrt", "onnxruntime", "tokenizers", "rich"),
        )
        for executor in EXECUTORS
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 5
    head, samples = measure("rag", __doc__, options, candidates(quick=options.quick), repetitions)
    found = {name: figures(taken) for name, taken in samples.items()}
    return Report(name="rag", text=_text(found, samples, head), data={**head, "samples": samples})


Figures = Mapping[str, Sequence[float]]
"""Values of one executor by name, one per repetition."""


def figures(taken: Sequence[Sample]) -> Figures:
    """Return seconds of each phase and of an answer, and the loop's delay in milliseconds."""
    found: dict[str, list[float]] = {}
    for sample in taken:
        for phase in sample["phases"]:
            found.setdefault(f"{phase['name']}: seconds", []).append(phase["wall"])
            found.setdefault(f"{phase['name']}: loop p99, ms", []).append(phase["delay_p99"] * 1e3)
            found.setdefault(f"{phase['name']}: longest stall, ms", []).append(phase["delay_max"] * 1e3)
        seconds = [answer["seconds"] for answer in sample["answers"]]
        found.setdefault(ANSWER, []).append(mean(seconds))
    return found


def _text(
    found: Mapping[str, Figures], samples: Mapping[str, Sequence[Sample]], head: Mapping[str, Any]
) -> str:
    first = next(iter(samples.values()))[0]
    note = _NOTE.format(
        documents=first["documents"],
        chunks=first["chunks"],
        questions=len(first["answers"]),
        count=head["repetitions"],
    )
    rows = table(("", *found, "ratio"), list(_rows(found)))
    title = "# RAG: the example on hybridrt and on asyncio's default executor"
    return "\n\n".join([title, note, rows, describe(head)])


def _rows(found: Mapping[str, Figures]) -> Iterator[list[str]]:
    for name in next(iter(found.values())):
        digits = 1 if name.endswith("ms") else 2
        both = found.keys() >= set(EXECUTORS)
        ratio = ratios(found[OURS][name], found[THEIRS][name]).text(2) if both else ""
        yield [name, *(spread(taken[name]).text(digits) for taken in found.values()), ratio]
