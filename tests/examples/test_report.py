"""The report: through JSON and onto the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from ragkit.errors import UsageError
from ragkit.heartbeat import Phase
from ragkit.report import Answer, Report, most_threads, read_report, reasons, sizes, write_report
from ragkit.values import Cost, PoolCost, Resize, Skipped, StepCost
from ragkit.view import View, comparison, show_report
from rich.console import Console


def resize(workers: int, reason: str, at: float = 0.0) -> Resize:
    return Resize(at=at, workers=workers, previous=1, reason=reason, queued=2, running=1)


PHASE = Phase(
    name="index", wall=2.0, cpu=3.0, delay_p50=0.001, delay_p99=0.0123, delay_max=0.5, threads_max=9
)
STEP = StepCost(name="embed", calls=4, failed=1, wall=2.0, cpu=0.5, queue_wait=0.2)
POOL = PoolCost(
    policy="demand",
    workers=3,
    max_workers=64,
    decisions=(resize(1, "start"), resize(2, "demand", 1.5)),
    loop_delay=(0.001, 0.002, 0.0777, 10.0),
)
ANSWER = Answer(question="Why?", text="So. [t]", cited={"t": "/doc"}, tools=2, first_word=0.25, seconds=0.5)
REPORT = Report(
    cost=Cost(executor="hybridrt", steps=(STEP,), pool=POOL),
    phases=(PHASE,),
    threads=((0.0, 1), (0.1, 5), (1.0, 3)),
    model="MiniLM",
    answerer="extractive-answerer",
    documents=3,
    fetched=1,
    chunks=20,
    repeats=2,
    skipped=(Skipped("a.txt", "empty"), Skipped("b.bin", "binary"), Skipped("c.txt", "empty")),
    answers=(ANSWER,),
)


def shown(*renderables: object) -> str:
    console = Console(file=StringIO(), width=120)
    for renderable in renderables:
        console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_report_survives_json(tmp_path: Path) -> None:
    write_report(REPORT, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == REPORT


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected to write the report to"):
        write_report(REPORT, tmp_path / "missing" / "report.json")


def test_decisions_that_change_nothing_are_counted_not_repeated() -> None:
    decisions = [
        resize(1, "start"),
        resize(2, "demand"),
        resize(2, "demand"),
        resize(2, "hold"),
        resize(2, "demand"),
    ]
    assert [(size.workers, size.reason, count) for size, count in sizes(decisions)] == [
        (1, "start", 1),
        (2, "demand", 2),
        (2, "hold", 1),
        (2, "demand", 1),
    ]
    assert list(sizes([])) == []


def test_a_peak_of_threads_shows_in_its_part_of_the_run() -> None:
    assert most_threads(REPORT, 4) == [5, 5, 5, 3]
    assert most_threads(replace(REPORT, threads=((0.0, 2),)), 3) == [2, 2, 2]


def test_skipped_documents_are_grouped_by_reason() -> None:
    assert reasons(REPORT.skipped) == [("empty", ["a.txt", "c.txt"]), ("binary", ["b.bin"])]


def test_the_report_shows_steps_delays_sizes_with_reasons_and_what_was_skipped() -> None:
    console = Console(file=StringIO(), width=120)
    show_report(console, REPORT)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    for piece in (
        "3 documents (1 over HTTP), 20 chunks, 2 repeats dropped, 3 skipped",
        "answered by extractive-answerer",
        "4 (1 failed)",
        "0.75",  # beta
        "50.0",  # queue wait per call in ms
        "12.3",  # loop delay p99 in ms
        "max 77.7 ms",
        "policy demand, 3 threads now, at most 64",
        "the most in each tenth of the run: 5 5 5 5 5 5 3 3 3 3",
        "demand",
        "empty: a.txt, c.txt",
    ):
        assert piece in told


def test_two_reports_stand_side_by_side() -> None:
    other = replace(
        REPORT,
        cost=Cost(executor="asyncio default executor", steps=(replace(STEP, wall=7.25),), pool=POOL),
        answers=(replace(ANSWER, text="Different."),),
    )
    told = shown(comparison(other, REPORT))
    assert "asyncio default executor" in told
    assert "7.250" in told
    assert "texts differ" in told
    assert told.index("asyncio default executor") < told.index("hybridrt")


def test_an_answer_is_shown_as_it_comes_and_markup_in_it_is_text() -> None:
    console = Console(file=StringIO(), width=60)
    view = View(console)
    view.question("Why [bold]?")
    view.tool("search", '{"query": "' + "x" * 100 + '"}')
    view.text("So [red]it")
    view.text(" is. [t]")
    view.answered(ANSWER)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "? Why [bold]?" in told
    assert "So [red]it is. [t]" in told
    assert "[t] /doc" in told
    assert all(len(line) <= 60 for line in told.splitlines())


def test_progress_counts_documents_and_chunks() -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True)
    view = View(console)
    with view.indexing():
        view.expect_documents(2)
        view.advance_documents()
        view.expect_chunks(16)
        for _ in range(8):
            view.advance_chunks()
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1/2" in told
    assert "8/16" in told
