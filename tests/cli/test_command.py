"""The command line: what it prints, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hybridrt
from hybridrt.cli import main
from hybridrt.trial import measurement
from tests.cli import functions

ROOT = Path(hybridrt.__file__).resolve().parents[1]
HERE = "tests.cli.functions"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measurement, "IDLE_SECONDS", 0.01)
    functions.calls.clear()
    yield
    functions.calls.clear()


@pytest.mark.slow
def test_the_table_of_a_trial_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", f"{HERE}:Holder.double", "--args", "21", "--calls", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{HERE}:Holder.double\n\n")
    assert "\ninline " in printed


@pytest.mark.slow
def test_a_trial_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", f"{HERE}:note", "--args", "1", "n=2", "--calls", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["function"] == f"{HERE}:note"
    assert functions.calls[0] == (1, {"n": 2})


@pytest.mark.slow
def test_an_argument_that_is_called_as_one_of_the_trial_goes_to_the_function() -> None:
    assert main(["trial", f"{HERE}:note", "--args", "1", "calls=7", "--calls", "1", "--json"]) == 0
    assert functions.calls[0] == (1, {"calls": 7})


def test_a_function_that_raises_shows_its_traceback_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", f"{HERE}:fail", "--args", "1"]) == 1
    printed = capsys.readouterr().err
    assert printed.count("Traceback") == printed.count("LookupError: nothing was found") == 1
    assert "/hybridrt/" not in printed
    assert functions.calls == [1]


def test_arguments_that_do_not_fit_are_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", f"{HERE}:fail", "--args", "1", "2"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("TypeError: fail() takes")
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing:f"], "no module 'nothing'"),
        ([f"{HERE}:nothing"], "has no 'nothing'"),
        ([f"{HERE}:note", "--args", "[1"], "neither JSON nor a Python literal"),
        ([f"{HERE}:note", "--calls", "0"], "--calls must be at least 1, got 0"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trial", *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("python -m hybridrt trial: ")
    assert told in printed
    assert printed.count("\n") == 1


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "trial" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["fly"])
    assert left.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_a_trial_in_a_word() -> None:
    command = [sys.executable, "-m", "hybridrt", "trial", f"{HERE}:interrupt_later"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
