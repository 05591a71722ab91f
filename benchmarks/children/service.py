"""Child: starts the model server, the service and those who ask it, and gathers what they saw."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.children.protocol import serve
from benchmarks.children.service_tools import make_database

__all__ = ["measure"]


def measure(way: str, seconds: float, chats: int, rate: float) -> Mapping[str, Any]:
    """Return when chats ended, and how long /health took, both from a cold start.

    Args:
        way: How the service calls its tools.
        seconds: For how long it is asked.
        chats: Chats at once.
        rate: Requests of /health a second.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "notes.db")
        make_database(Path(database))
        with _started("service_model") as model:
            url = f"http://127.0.0.1:{json.loads(_line(model))['port']}"
            with _started("service_app", way=way, model=url, database=database) as service:
                asked = f"http://127.0.0.1:{json.loads(_line(service))['port']}"
                return _ask(asked, seconds, chats, rate)


def _ask(url: str, seconds: float, chats: int, rate: float) -> Mapping[str, Any]:
    with (
        _started("service_load", kind="chats", url=url, seconds=seconds, amount=chats) as asking,
        _started("service_load", kind="health", url=url, seconds=seconds, amount=rate) as watching,
    ):
        for process in (watching, asking):
            _line(process)
        for process in (watching, asking):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return {"chats": json.loads(_line(asking)), "health": json.loads(_line(watching))}


@contextmanager
def _started(job: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
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


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with code {process.wait()}; see above")
    return line


if __name__ == "__main__":
    serve(measure)
