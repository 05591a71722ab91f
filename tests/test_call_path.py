"""A call passes few files: how many is a promise to those who read the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .call_path import KINDS, Way

FILES_AND_HOPS = {"thread": (9, 19), "inline": (4, 4), "run_in_executor": (12, 19)}


def test_a_way_counts_files_once_and_hops_every_time() -> None:
    way = Way((("a.py", "one"), ("b.py", "two"), ("b.py", "three"), ("a.py", "four")))
    assert (way.files, way.hops) == ({"a.py", "b.py"}, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_passes_few_files(kind: str) -> None:
    """The usual way of five: on a busy machine a call may meet a lock that is taken, or a late loop."""
    program = (
        "import asyncio; from statistics import median_low; from tests.call_path import trace; "
        f"ways = [asyncio.run(trace({kind!r})) for _ in range(5)]; "
        "print(median_low(len(way.files) for way in ways), median_low(way.hops for way in ways))"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=50, check=True
    )
    files, hops = map(int, done.stdout.split())
    most_files, most_hops = FILES_AND_HOPS[kind]
    assert files <= most_files
    assert hops <= most_hops
