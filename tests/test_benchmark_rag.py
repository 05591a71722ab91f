"""What `benchmarks rag` makes of its samples."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness import Candidate
from benchmarks.rag import candidates, figures


def sample(wall: float, p99: float) -> dict[str, Any]:
    phase = {"name": "index", "wall": wall, "delay_p99": p99, "delay_max": 2 * p99}
    return {"phases": [phase], "answers": [{"seconds": 1.0}, {"seconds": 2.0}]}


def test_each_phase_has_its_time_and_the_delay_of_the_loop() -> None:
    found = figures([sample(3.0, 0.004), sample(4.0, 0.006)])
    assert found == {
        "index: seconds": [3.0, 4.0],
        "index: loop p99, ms": pytest.approx([4.0, 6.0]),
        "index: longest stall, ms": pytest.approx([8.0, 12.0]),
        "seconds from a question to the end of its answer": [1.5, 1.5],
    }


@pytest.mark.parametrize(("quick", "arguments"), [(False, []), (True, ["--limit", "4"])])
def test_both_executors_do_the_same_job(quick: bool, arguments: list[str]) -> None:
    jobs: list[Candidate] = candidates(quick=quick)
    assert [job.arguments for job in jobs] == [
        {"executor": name, "arguments": arguments} for name in ("hybridrt", "asyncio")
    ]
