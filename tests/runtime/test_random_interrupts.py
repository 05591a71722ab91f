"""Ctrl-C at random instants; `python -m benchmarks interrupts` does the same a thousand times."""

from __future__ import annotations

import sys

import pytest

from benchmarks.children.interrupts import measure
from tests.conftest import LOOPS


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("presses", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("how", ["hybridrt.run", "asyncio.run"])
@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_program_under_load_ends_as_it_should(loop: str, how: str, presses: int) -> None:
    found = measure(rounds=4, seed=presses, loop=loop, how=how, presses=presses)
    assert found["ends"] == {"interrupted": 4}, "\n".join(found["told"])
