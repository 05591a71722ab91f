"""The example of a pipe: it finds what is there, skips what is broken, and keeps its deadline."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pipeline
import pytest

import hybridrt
from tests.loop.support import turns

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
def test_it_says_so_if_nothing_is_found(folder: Path) -> None:
    assert "no passage has a word of 'zebra'" in run("--folder", folder, "zebra", code=1).stderr


@pytest.mark.slow
def test_it_ends_at_its_deadline_and_says_what_to_do(folder: Path) -> None:
    done = run("--folder", folder, "--seconds", "0", "connection", code=1)
    assert "the deadline of 0.0 s is over; give more --seconds" in done.stderr


class SlowBase:
    """Stands in for the database, in the middle of a write until the gate opens."""

    def __init__(self) -> None:
        self.writes, self.gate = threading.Event(), threading.Event()
        self.done: list[str] = []

    def executemany(self, *_: object) -> None:
        self.writes.set()
        self.gate.wait(20.0)
        self.done.append("written")

    def close(self) -> None:
        self.done.append("closed")


async def test_the_index_is_closed_after_a_write_that_was_abandoned() -> None:
    index, base = pipeline.Index(), SlowBase()
    index.close.sync()
    index._base = base  # type: ignore[assignment]
    async with hybridrt.Runtime():
        adding = asyncio.ensure_future(index.add(pipeline.Passage("path", 1, "name", "text")))
        await asyncio.to_thread(base.writes.wait, 20.0)
        adding.cancel()
        closing = asyncio.ensure_future(index.close())
        await turns(50)
        assert base.done == []
        base.gate.set()
        await closing
    assert base.done == ["written", "closed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (('"',), "expected words to look for"),
        (("--seconds", "-1", "x"), "--seconds must be 0 or more"),
        (("--most", "0", "x"), "--most must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in run(*arguments, code=2).stderr


@pytest.mark.slow
def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "--folder must be a folder" in run("--folder", tmp_path / "none", "x", code=2).stderr
