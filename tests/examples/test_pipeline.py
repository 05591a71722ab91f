"""The example of a pipe: it finds what is there, skips what is broken, and keeps its deadline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import EXAMPLES


def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "pipeline.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two modules, one of which is broken, and one below it."""
    (tmp_path / "dates.py").write_text('"""Dates."""\ndef parse():\n    """Parse a date of any form."""\n')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "net.py").write_text('class Wire:\n    """Opens a connection."""\n')
    return tmp_path


@pytest.mark.slow
def test_it_finds_the_passage_and_skips_a_broken_file(folder: Path) -> None:
    done = run("--folder", folder, "--statistics", "a date")
    assert done.stdout.splitlines()[0] == f"{folder / 'dates.py'}:2 parse"
    assert "3 passages indexed" in done.stderr
    assert "1 files skipped" in done.stderr
    assert "bottleneck" in done.stderr


@pytest.mark.slow
def test_it_ends_at_its_deadline_and_says_what_to_do(folder: Path) -> None:
    done = run("--folder", folder, "--seconds", "0", "connection", code=1)
    assert "the deadline of 0.0 s is over; give more --seconds" in done.stderr


@pytest.mark.slow
def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "--folder must be a folder" in run("--folder", tmp_path / "none", "x", code=2).stderr
