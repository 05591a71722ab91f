"""Child: runs the calls in a session of their own, and looks for what is left of it afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.children.protocol import serve

__all__ = ["measure"]

_SHARED = Path("/dev/shm")
"""Where Linux keeps shared memory and named semaphores."""
_PATIENCE = 5.0
"""Seconds that processes have to notice that their parent is gone."""


def measure(**arguments: Any) -> Mapping[str, Any]:
    """Return what `losing` found, and the processes, shared memory and files that outlived it."""
    with tempfile.TemporaryDirectory() as folder:
        shared = _shared()
        job = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.children.losing", json.dumps(arguments)],
            env=os.environ | {"TMPDIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert job.stdout is not None
        printed = job.stdout.readline()
        if job.wait():
            raise RuntimeError(f"the calls ended with code {job.returncode}; see above")
        processes = _left_of(job.pid)
        files = os.listdir(folder)
    return {
        **json.loads(printed),
        "processes": processes,
        "shared": sorted(_shared() - shared),
        "files": files,
    }


def _shared() -> set[str]:
    return set(os.listdir(_SHARED)) if _SHARED.is_dir() else set()


def _left_of(session: int) -> list[str]:
    """Return the processes of a session that do not end by themselves."""
    deadline = time.monotonic() + _PATIENCE
    while (left := _alive(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _alive(session: int) -> list[str]:
    found = []
    for process in psutil.process_iter(["pid", "name", "status"]):
        try:
            inside = os.getsid(process.info["pid"]) == session
        except OSError:  # it has just ended, or is not ours to ask
            continue
        if inside and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["name"])
    return found


if __name__ == "__main__":
    serve(measure)
