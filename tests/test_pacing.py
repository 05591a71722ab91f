"""The parts of the benchmarks that serve and pace: schedules, counted work, one short run of each."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks import echo, mixed
from benchmarks.children.pacer import figures, schedule
from benchmarks.children.work import ALIKE, Work, at_one_speed, calibrate, timed_units
from benchmarks.harness import Candidate, spawn

PACING = {"rate": 200, "connections": 2, "warmup": 0.1}


def test_a_schedule_has_one_request_in_each_slot_and_is_the_same_for_all() -> None:
    times = schedule(100.0, 2.0)
    assert [int(at * 100.0) for at in times] == list(range(200))
    assert times == schedule(100.0, 2.0)
    assert len({round(at * 100.0 % 1.0, 6) for at in times}) > 150


def test_figures_are_quantiles() -> None:
    assert figures([float(value) for value in range(1001)]) == {
        "count": 1001,
        "p50": 500.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 1000.0,
    }


def test_work_is_counted_while_it_is_done_by_any_thread() -> None:
    work = Work(3)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    assert work.done() == 15


def test_units_count_at_the_speed_of_their_neighbours() -> None:
    assert len(timed_units(3)) == 3
    assert min(timed_units(3)) > 0
    assert at_one_speed([1.0] * (ALIKE - 1) + [50.0]) == ALIKE
    assert at_one_speed([1.0] * ALIKE + [2.0, 9.0, 2.0]) == ALIKE + 6.0


def test_a_call_has_at_least_one_unit() -> None:
    assert calibrate(1e-9) == 1


def test_the_echo_is_measured_on_both_loops_in_every_way() -> None:
    assert len({candidate.name for candidate in echo.candidates(quick=True, units=1)}) == 2 * len(echo.WAYS)


def test_the_best_static_size_is_the_one_with_the_most_requests() -> None:
    found = {"stdlib": [1.0, 1.0], "stdlib of 32": [9.0, 3.0], "stdlib of 64": [5.0, 5.5], "offload": [99.0]}
    figures = {way: {"requests": values} for way, values in found.items()}
    assert mixed._best_static(figures) == "stdlib of 32"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stdlib", "default_executor", "offload", "unshielded"])
def test_an_echo_run_gives_latencies_and_work(way: str) -> None:
    sample = _run_until(("work",), "echo", way=way, loop="uvloop", calls=2, units=50)
    assert 0 < sample["latency"]["p50"] <= sample["latency"]["max"]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "size"), [("stdlib", 4), ("offload", None), ("pure", None)])
def test_a_mixed_run_gives_requests_and_latencies(way: str, size: int | None) -> None:
    sample = _run_until(
        ("requests", "work"), "mixed", way=way, size=size, loop="asyncio", requests=8, pause=0.005, units=5
    )
    assert 0 < sample["work"] < 1.5 * (1 if way != "pure" else os.cpu_count() or 1)
    assert sample["request"]["p50"] >= 0.005


def _run_until(figures: tuple[str, ...], job: str, **arguments: Any) -> Mapping[str, Any]:
    """Return the first run with figures above 0: on a busy machine nothing ends in a short one."""
    for seconds in (0.2, 2.0, 20.0):
        pacing = {**PACING, "seconds": seconds}
        sample = spawn(Candidate(name=job, job=job, arguments={**arguments, "pacing": pacing}))
        assert sample["latency"]["count"] == PACING["rate"] * seconds
        if all(sample[figure] > 0 for figure in figures):
            return sample
    raise AssertionError(f"one of {figures} stayed at 0 for {seconds:g} s")
