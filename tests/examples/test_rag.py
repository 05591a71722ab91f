"""The whole program, as its own process, on real documents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ragkit.report import Report, read_report

from .conftest import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("encoder")]  # the fixture has built the ONNX file

COMMAND = [sys.executable, str(EXAMPLES / "rag.py")]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "COLUMNS": "120"}


def rag(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env=environment(),
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some good documents among bad ones."""
    place = tmp_path / "docs"
    (place / "sub").mkdir(parents=True)
    (place / "owls.md").write_text("# Owls\n\nOwls hunt mice at night, because they see well in the dark.\n")
    foxes = "<h1>Foxes</h1><p>Foxes live in dens that they dig in spring.</p>"
    (place / "sub" / "foxes.html").write_text(foxes)
    (place / "empty.txt").write_bytes(b"")
    (place / "binary.txt").write_bytes(bytes(range(256)))
    (place / "picture.png").write_bytes(b"\x89PNG")
    return place


def test_the_language_reference_is_indexed_and_answers_with_citations(tmp_path: Path) -> None:
    done = rag(
        "--limit", "4", "-q", "What are assert statements convenient for?", "--json", tmp_path / "report.json"
    )
    report: Report = read_report(tmp_path / "report.json")
    assert (report.documents, report.answerer) == (4, "extractive-answerer")
    (answer,) = report.answers
    assert answer.cited
    assert answer.tools >= 3
    assert answer.text.split()[0] in done.stdout
    calls = {step.name: step.calls for step in report.cost.steps}
    assert (calls["keyword_search"], calls["vector_search"]) == (1, 1)
    assert sum(step.calls for step in report.cost.steps if step.name.partition(" ")[0] == "parse") == 4
    assert [phase.name for phase in report.phases] == ["prepare", "index", "answer"]


class Pages(BaseHTTPRequestHandler):
    """One page about whales, and nothing else."""

    def do_GET(self) -> None:
        found = self.path == "/whales.txt"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"Whales sleep near the surface of the sea." if found else b"Nothing here.")

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """Give the address of a web server in a thread."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_documents_that_cannot_be_used_are_named_and_the_job_goes_on(
    folder: Path, tmp_path: Path, site: str
) -> None:
    addresses = (f"{site}/whales.txt", f"{site}/gone.html", "http://127.0.0.1:9/")
    questions = ("-q", "Where do foxes live?", "-q", "Where do whales sleep?")
    done = rag(folder, tmp_path / "missing", *addresses, *questions, "--json", tmp_path / "report.json")
    report = read_report(tmp_path / "report.json")
    assert (report.documents, report.fetched) == (3, 1)
    assert [answer.text for answer in report.answers] == [
        "Foxes live in dens that they dig in spring. [sub/foxes.html: Foxes]",
        "Whales sleep near the surface of the sea. [whales.txt]",
    ]
    told = {skipped.reason for skipped in report.skipped}
    assert {"empty", "binary, not text", "the server said 404 Not Found"} <= told
    assert len(report.skipped) == 6
    assert "Skipped 6" in done.stdout


def test_answers_come_in_the_order_of_the_questions_however_many_are_answered_at_once(
    folder: Path, tmp_path: Path
) -> None:
    questions = ("When do owls hunt?", "Where do foxes live?", "When do owls hunt mice?")
    asked = [word for question in questions for word in ("-q", question)]
    told: list[list[str]] = []
    for concurrency in ("1", "3"):
        rag(folder, *asked, "--concurrency", concurrency, "--json", tmp_path / "report.json")
        report = read_report(tmp_path / "report.json")
        assert [answer.question for answer in report.answers] == list(questions)
        told.append([answer.text for answer in report.answers])
    assert told[0] == told[1]


def test_the_model_is_built_in_another_process_where_it_is_not_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rag(folder, "-q", "When do owls hunt?", "--json", tmp_path / "report.json")
    steps = {step.name: step.calls for step in read_report(tmp_path / "report.json").cost.steps}
    assert (steps["find_onnx"], steps["build_onnx [process]"]) == (1, 1)
    assert list((tmp_path / "cache" / "hybridrt" / "rag").glob("*.onnx"))


def test_both_executors_give_the_same_answers_side_by_side(folder: Path, tmp_path: Path) -> None:
    done = rag(folder, "-q", "When do owls hunt?", "--compare", "--json", tmp_path / "both.json")
    assert "asyncio default executor" in done.stdout
    assert "same text" in done.stdout
    assert (tmp_path / "both.json").read_text().startswith('{\n"asyncio": {')


def test_questions_may_come_from_standard_input(folder: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(folder), "--interactive"],
        input="When do owls hunt?\n\nWhere do foxes live?",
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
        env=environment(),
    )
    assert "Owls hunt mice at night" in done.stdout
    assert "Foxes live in dens" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--base-url", "http://127.0.0.1:9/v1"],
            "expected an OpenAI-compatible server at http://127.0.0.1:9/v1",
        ),
        (["--model", "missing"], "no such folder"),
        (
            ["gone.txt", "-q", "Why?"],
            "expected at least one document with text, got none (gone.txt: no such",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(arguments: list[str], told: str) -> None:
    done = rag(*arguments, code=1)
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_leaves_cleanly_and_takes_the_answerer_along(folder: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, str(folder), "--interactive"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "\n"  # the prompt begins: the answerer is up
        process.send_signal(signal.SIGINT)
        # The answerer shares our end of standard error: it closes when both processes are gone.
        assert process.stderr.read().strip() == "stopped"
    assert process.returncode == 130
