"""CPython's own tests of thread pools, run on our executor; see `cpython_suite`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hybridrt
from hybridrt.values import PolicyName

from .cpython_suite import FOLDER, PACKAGE, PARTS

POLICIES: tuple[PolicyName, ...] = ("demand", "paper")
"""`throughput` has the queue of `paper`."""
SECONDS = 240
"""What one part may take; the longest sleeps for 12 s."""
AT_ONCE = 4
"""Parts run beside each other: they sleep most of the time, and some tests have deadlines."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 60),
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None and FOLDER not in os.environ,
        reason=f"this interpreter ships without {PACKAGE}; {FOLDER} may name a folder that holds it",
    ),
]

Came = dict[str, Any]


@pytest.fixture(scope="module")
def parts() -> Iterator[dict[tuple[str, str], Future[Came]]]:
    """All parts under all policies, begun together."""
    executor = ThreadPoolExecutor(AT_ONCE)
    yield {(part, policy): executor.submit(_run, part, policy) for part in PARTS for policy in POLICIES}
    executor.shutdown(cancel_futures=True)


def _run(part: str, policy: str) -> Came:
    places = (Path(hybridrt.__file__).resolve().parents[1], Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.stdlib.cpython_suite", part, policy],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, places), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    came: Came = json.loads(done.stdout)
    return {**came, "log": done.stderr}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_of_cpython_hold(
    part: str, policy: str, parts: dict[tuple[str, str], Future[Came]]
) -> None:
    came = parts[part, policy].result()
    assert not came["failed"], "\n\n".join(f"{name}\n{text}" for name, text in came["failed"].items())
    assert not came["leaked"], f"expected no thread to outlive its test\n{came['log']}"
    assert came["ran"] > 0
