"""The example of an agent whose tools compute, wait and search, as its own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .conftest import EXAMPLES

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "agent_tools.py"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    )


def test_each_question_is_answered_by_all_tools() -> None:
    done = run("What about the chair?", "And the lamp?")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for thing in ("chair", "lamp"):
        assert re.search(rf"\{{\"thing\":\"{thing}\",\"orders\":1250,\"revenue\":[\d.]+\}}", done.stdout)
        assert f'{{"thing":"{thing}","pieces":{7 * len(thing)}}}' in done.stdout
    assert len(re.findall(r"answered after 2 turns, \d+ tokens", done.stdout)) == 2
    assert len(re.findall(r"(revenue|search_catalogue|stock): done in place", done.stdout)) == 6
    assert len(re.findall(r"stock: done in place loop, [1-4] attempts", done.stdout)) == 2
    assert "the loop was late by" in done.stdout


def test_a_model_that_is_not_there_is_said_in_one_sentence() -> None:
    done = run("--base-url", "http://127.0.0.1:9/v1", "Why?")
    assert done.returncode == 1
    assert done.stderr.startswith("error: expected local at http://127.0.0.1:9/v1/ to answer, got")
    assert "Traceback" not in done.stderr


def test_every_question_that_has_no_answer_is_named() -> None:
    done = run("--base-url", "http://127.0.0.1:9/v1", "Why?", "When?")
    assert done.returncode == 1
    assert "no answer to 'Why?'" in done.stderr
    assert "no answer to 'When?'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("option", "value"), [("--concurrency", "0"), ("--base-url", "127.0.0.1:9/v1")])
def test_an_option_that_makes_no_sense_is_refused(option: str, value: str) -> None:
    done = run(option, value)
    assert done.returncode == 2
    assert f"error: {option} must be " in done.stderr
    assert done.stderr.endswith(f"got {value}\n")


def test_help_keeps_the_lines_of_its_text() -> None:
    assert "\n    uv run --extra agents examples/agent_tools.py\n" in run("--help").stdout
