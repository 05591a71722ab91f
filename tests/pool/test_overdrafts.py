"""Overdrafts: a call that has waited for a permit for too long starts without one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hybridrt.pool.governor import OVERDRAFT_NS
from hybridrt.values import Kind

from .support import MS, Stage, named

PATIENCE = OVERDRAFT_NS / 1e9


def endless(stage: Stage, count: int) -> None:
    """Submit calls that compute without end, each of a function of its own, and let them be seen."""
    for number in range(count):
        call = stage.push(named(f"endless_{number}"))
        stage.step(1 * MS)
        if call in stage.running():
            stage.compute(call)
            stage.step(10 * MS, times=4)


def test_a_call_that_waited_for_a_permit_for_half_a_second_starts_anyway(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.compute(first)
    stage.step(10 * MS, times=int(PATIENCE / (10 * MS)) - 2)
    assert stage.running() == [first]
    assert stage.pool.tally.overdrafts == 0
    stage.step(10 * MS, times=4)
    assert stage.running() == [first, second]
    assert stage.pool.tally.overdrafts == 1


def test_several_endless_functions_nobody_knew_do_not_keep_the_next_one_out(stage: Stage) -> None:
    endless(stage, 3)
    started = len(stage.running())
    last = stage.push(named("short_but_unknown"))
    assert last not in stage.running()
    stage.step(10 * MS, times=400)
    assert last in stage.running()
    assert stage.pool.tally.overdrafts >= 1
    assert len(stage.running()) > started


def test_the_oldest_call_is_the_one_that_starts_anyway(stage: Stage) -> None:
    holder = stage.push(stage.learn(Kind.LONG))
    stage.compute(holder)
    old = stage.push(stage.learn(Kind.LONG, "old"))
    stage.step(100 * MS)
    young = stage.push(stage.learn(Kind.LONG, "young"))
    stage.step(10 * MS, times=45)
    assert old in stage.running()
    assert young not in stage.running()


def test_no_call_starts_anyway_while_others_get_on(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    calls = stage.push_many(20, fn)
    for call in calls[:-1]:
        stage.compute(call)
        stage.step(20 * MS, times=5, prompt=False)
        assert stage.running() == [call]
        stage.end(call)
    assert stage.pool.tally.overdrafts == 0


def test_each_overdraft_that_still_runs_doubles_the_patience(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    calls = stage.push_many(8, fn)
    times = []
    begun = stage.clock.now_ns
    for _ in range(int(20.0 / (10 * MS))):
        stage.step(10 * MS, prompt=False)
        for call in stage.running():
            if not stage.probe_of(call).computes:
                stage.compute(call)
                times.append((stage.clock.now_ns - begun) / 1e9)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) < len(calls)
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx(PATIENCE, abs=0.05)
    assert gaps[-1] >= 4 * PATIENCE


def test_a_pool_that_is_full_does_not_keep_the_overdraft_from_another(stage: Stage) -> None:
    """Its oldest call could not start even with a permit."""
    full = stage.add_pool(max_workers=2)
    blockers = [stage.push(stage.learn(Kind.LONG, pool=full), pool=full)]
    blockers.append(stage.push(stage.learn(Kind.SHORT, pool=full), pool=full))
    stage.compute(*blockers)
    stuck = stage.push(stage.learn(Kind.LONG, "stuck", pool=full), pool=full)
    stage.step(10 * MS)
    waiting = stage.push(stage.learn(Kind.LONG))
    stage.step(10 * MS, times=200)
    assert stuck not in stage.running()
    assert waiting in stage.running()


def test_calls_that_usually_take_long_are_given_four_times_their_length(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    stage.pool.profiles.of(fn).record(2_000_000_000, 2_000_000_000, 0)
    first, second = stage.push_many(2, fn)
    stage.compute(first)
    stage.step(100 * MS, times=78)
    assert stage.running() == [first]
    stage.step(100 * MS, times=4)
    assert stage.running() == [first, second]


def test_an_overdraft_gives_its_permit_back(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.compute(first)
    stage.step(10 * MS, times=80)
    for call in (first, second):
        stage.end(call)
    assert stage.permits.held == [0, 0, 0, 0]
