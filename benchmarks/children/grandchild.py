"""What a child needs to start processes of its own: jobs of this folder, that talk by lines of text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["begin", "line", "started"]


@contextmanager
def started(job: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a job of this folder; it ends with its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.children.{job}", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def begin(*processes: subprocess.Popen[str]) -> None:
    """Wait until each has said that it is ready, and have all begin."""
    for process in processes:
        line(process)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints.

    Raises:
        RuntimeError: It has ended instead.
    """
    assert process.stdout is not None
    printed = process.stdout.readline()
    if not printed:
        raise RuntimeError(f"{process.args!r} ended with code {process.wait()}; see above")
    return printed
