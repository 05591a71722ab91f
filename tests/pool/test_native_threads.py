"""Calls that let native threads compute for them are not taken for waiting ones.

Played by hand: the test says who computes, the calls' own threads or those of a library.
"""

from __future__ import annotations

import importlib.util

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Kind
from hybridrt.pool.permits import NONE
from hybridrt.pool.state import Call

from .support import DEADLINE, MS, Stage, named


def step(
    stage: Stage, *computing: Call, native: float = 0.0, seconds: float = 8 * MS, times: int = 1
) -> None:
    """Let the governor look beside calls that compute, and native threads that did for some of the time."""
    governor = stage.budget.governor
    running = stage.running()
    stage.compute(*computing)
    stage.wait(*(call for call in running if call not in computing))
    for _ in range(times):
        stage.clock.advance(seconds)
        own = int(seconds * 1e9) * len(computing)
        stage.native.used_ns = int(native * seconds * 1e9)
        cpu = governor.process_cpu_ns + own + stage.native.used_ns
        governor.step(stage.clock.now_ns, cpu, prompt=True)
        stage.work()


@pytest.mark.parametrize("kind", [Kind.SHORT, Kind.LONG, Kind.UNKNOWN])
def test_a_call_that_stands_still_while_its_native_threads_compute_keeps_its_permit(kind: Kind) -> None:
    stage = Stage()
    first, _ = stage.push_many(2, stage.learn(kind))
    step(stage, first, native=1.0, seconds=2 * MS, times=2)
    step(stage, native=1.0, times=4)
    assert stage.running() == [first]
    assert stage.worker_of(first).permit != NONE


def test_a_call_that_stands_still_as_its_native_threads_do_waits() -> None:
    stage = Stage()
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    step(stage, first, native=1.0, times=3)
    step(stage, native=0.0, times=4)
    assert stage.running() == [first, second]
    assert stage.worker_of(first).permit == NONE


def test_a_call_that_lacks_the_native_threads_of_another_keeps_its_permit() -> None:
    """Both run, as the function leaves the GIL; a lock of the library lets one at a time in."""
    stage = Stage(cores=2)
    fn = stage.learn(Kind.FREE)
    first, second, third = stage.push_many(3, fn)
    assert stage.running() == [first, second]
    step(stage, first, second, native=1.0, seconds=4 * MS, times=4)
    step(stage, first, native=0.0, times=6)
    assert stage.running() == [first, second]
    assert third not in stage.running()


def test_calls_that_all_stand_still_while_no_native_thread_computes_wait() -> None:
    """Such a function waits for a server now, in each of its calls: none of them lacks what another has."""
    stage = Stage(cores=2)
    first, second, third = stage.push_many(3, stage.learn(Kind.FREE))
    step(stage, first, second, native=1.0, seconds=4 * MS, times=4)
    step(stage, native=0.0, times=6)
    assert stage.running() == [first, second, third]
    assert {stage.worker_of(call).permit for call in (first, second)} == {NONE}


def test_without_native_threads_it_would_wait() -> None:
    stage = Stage(cores=2)
    first, second, third = stage.push_many(3, stage.learn(Kind.FREE))
    step(stage, first, times=6)
    assert stage.running() == [first, second, third]


def test_a_call_of_an_unknown_function_that_sleeps_beside_native_threads_waits() -> None:
    """They compute for something else: its thread has hardly used any CPU time."""
    stage = Stage()
    first, *_ = stage.push_many(3, named("sleeps"))
    step(stage, native=1.0, times=4)
    assert stage.worker_of(first).permit == NONE
    assert len(stage.running()) > 1


def test_what_native_threads_do_while_nothing_runs_does_not_count() -> None:
    stage = Stage()
    step(stage, native=1.0, times=60)
    fn = stage.learn(Kind.LONG)
    first, second = stage.push_many(2, fn)
    step(stage, first, native=1.0, times=6)
    assert not stage.pool.profiles.of(fn).native.drives
    step(stage, native=1.0, times=4)
    assert stage.running() == [first, second]


def test_what_they_do_beside_a_call_that_waits_without_end_does_not_count_either() -> None:
    stage = Stage()
    endless = stage.push(stage.learn(Kind.WAITING))
    step(stage, native=1.0, times=16 * 30)
    fn = stage.learn(Kind.LONG)
    first = stage.push(fn)
    step(stage, first, native=1.0, times=6)
    assert not stage.pool.profiles.of(fn).native.drives
    assert endless in stage.running()


def test_a_waiting_call_gives_back_the_permit_that_it_took_to_compute_in_native_threads() -> None:
    stage = Stage()
    call = stage.push(stage.learn(Kind.WAITING))
    step(stage, call, native=1.0, times=4)
    assert stage.worker_of(call).permit != NONE
    step(stage, native=1.0, seconds=20 * MS, times=4)
    assert stage.worker_of(call).permit == NONE


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs numpy")
def test_products_of_matrices_in_a_crowd_are_not_taken_for_waits() -> None:
    import numpy as np

    left = np.ones((600, 600), np.float32)

    def multiply() -> float:
        return float((left @ left)[0, 0])

    with AdaptiveThreadPoolExecutor() as executor:
        futures = [executor.submit(multiply) for _ in range(60)]
        assert {future.result(DEADLINE) for future in futures} == {600.0}
        (row,) = executor.statistics().functions
    assert row.kind is not Kind.WAITING
