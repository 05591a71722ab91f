"""CPython's own tests of thread pools, run on our executor; see `cpython_suite`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hybridrt

from .cpython_suite import FOLDER, PACKAGE

PARTS = ("test_thread_pool", "test_shutdown", "test_init", "test_wait", "test_as_completed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None and FOLDER not in os.environ,
        reason=f"this interpreter ships without {PACKAGE}; {FOLDER} may name a folder that holds it",
    ),
]


def _parts() -> tuple[str, ...]:
    """3.11 has all in one module, whatever part is asked for."""
    return PARTS if sys.version_info >= (3, 12) else ("all",)


@pytest.mark.parametrize("policy", ["demand", "paper"])
@pytest.mark.parametrize("part", _parts())
def test_the_tests_of_cpython_hold(part: str, policy: str) -> None:
    places = [str(Path(__file__).resolve().parents[2]), str(Path(hybridrt.__file__).resolve().parents[1])]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.stdlib.cpython_suite", part, policy],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*reversed(places), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    assert came["failed"] == {}, "\n\n".join(f"{name}\n{text}" for name, text in came["failed"].items())
    assert not came["leaked"], f"expected no thread to outlive its test\n{done.stderr}"
    assert came["ran"] > 0
