"""The command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from ragkit.options import DEFAULT_QUESTIONS, parse_options


def test_without_arguments_the_default_questions_are_asked() -> None:
    options = parse_options([])
    assert options.questions == DEFAULT_QUESTIONS
    assert options.documents == ()
    assert options.executor == "hybridrt"


def test_questions_may_be_repeated_and_replace_the_default_ones() -> None:
    assert parse_options(["-q", "one?", "--question", " two? "]).questions == ("one?", "two?")


def test_an_interactive_session_asks_nothing_by_itself() -> None:
    assert parse_options(["-i"]).questions == ()


def test_the_endpoint_comes_from_the_environment_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://one/v1")
    assert parse_options([]).base_url == "http://one/v1"
    assert parse_options(["--base-url", "http://two/v1"]).base_url == "http://two/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    assert parse_options([]).base_url is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["folder"], "expected --question or --interactive beside documents of your own"),
        (["-q", "  "], "expected a question after --question, got nothing"),
        (["--limit", "0"], "expected a whole number above 0, got '0'"),
        (["--limit", "-3"], "got '-3'"),
        (["--comp"], "unrecognized arguments: --comp"),
        (["--compare", "-i"], "expected --compare or --interactive, got both"),
        (["--json", str(Path("no", "such", "folder", "x.json"))], "expected --json in a folder that exists"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"])
    shown = capsys.readouterr().out
    assert "rag.py --compare" in shown
    assert "extractive answerer" in shown


def test_several_questions_are_answered_at_once_unless_told_otherwise() -> None:
    assert parse_options([]).concurrency == 4
    assert parse_options(["--concurrency", "1"]).concurrency == 1
