"""What a run did and what it cost, as values that survive a trip through JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pydantic import TypeAdapter

from .errors import UsageError
from .heartbeat import Phase
from .values import Cost, Resize, Skipped

__all__ = ["Answer", "Report", "most_threads", "read_report", "reasons", "sizes", "write_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question and what came of it; times in seconds.

    Attributes:
        question: The question.
        text: The answer.
        cited: Titles cited in the answer, with where they are to be had.
        tools: How many tools the model called.
        first_word: From the question to the first piece of the answer; None if there was none.
        seconds: From the question to the end of the answer.
    """

    question: str
    text: str
    cited: dict[str, str]
    tools: int
    first_word: float | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run.

    Attributes:
        cost: What the executor measured.
        phases: What the job's own heartbeat measured, in order.
        threads: Threads alive in the process whenever that changed: seconds since the start, and how many.
        model: The embedding model.
        answerer: Who answered.
        documents: Documents indexed.
        fetched: Documents that came over HTTP.
        chunks: Pieces embedded.
        repeats: Pieces dropped because another document holds the same text.
        skipped: Documents left out.
        answers: In the order of the questions.
    """

    cost: Cost
    phases: tuple[Phase, ...]
    threads: tuple[tuple[float, int], ...]
    model: str
    answerer: str
    documents: int
    fetched: int
    chunks: int
    repeats: int
    skipped: tuple[Skipped, ...]
    answers: tuple[Answer, ...]


_ADAPTER = TypeAdapter(Report)


def write_report(report: Report, path: Path) -> None:
    """Write a report as JSON.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        path.write_bytes(_ADAPTER.dump_json(report, indent=2) + b"\n")
    except OSError as error:
        raise UsageError(
            f"expected to write the report to {path}, got {error.strerror or error}; give --json another path"
        ) from error


def read_report(path: Path) -> Report:
    """Read what `write_report` wrote."""
    return _ADAPTER.validate_json(path.read_bytes())


def sizes(decisions: Sequence[Resize]) -> Iterator[tuple[Resize, int]]:
    """Yield the decisions that changed the size or its reason, with how long each run of them was."""
    for _, run in groupby(decisions, key=lambda decision: (decision.workers, decision.reason)):
        first, *others = run
        yield first, 1 + len(others)


def most_threads(report: Report, slices: int) -> list[int]:
    """Return the most threads alive in each of some equal parts of the run."""
    ends = [at for at, _ in report.threads[1:]] + [max(_duration(report), report.threads[-1][0])]
    width = max(ends[-1] / slices, 1e-9)
    most = [0] * slices
    for (start, count), end in zip(report.threads, ends, strict=True):
        first, last = (min(int(at / width), slices - 1) for at in (start, end))
        most[first : last + 1] = [max(seen, count) for seen in most[first : last + 1]]
    return most


def _duration(report: Report) -> float:
    return sum(phase.wall for phase in report.phases)


def reasons(skipped: Sequence[Skipped]) -> list[tuple[str, list[str]]]:
    """Group skipped documents by reason, the most frequent first."""
    counted = Counter(entry.reason for entry in skipped)
    return [
        (reason, [entry.location for entry in skipped if entry.reason == reason])
        for reason, _ in counted.most_common()
    ]
