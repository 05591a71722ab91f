"""Overdrafts: a lane from which no call has started for too long starts one beyond its limit."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.rebalance import OVERDRAFT_NS
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
    stage.step(10 * MS, times=int(PATIENCE / (10 * MS)))
    assert old in stage.running()
    assert young not in stage.running()


def test_no_call_starts_anyway_while_others_of_its_lane_get_on(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    calls = stage.push_many(20, fn)
    for call in calls[:-1]:
        stage.compute(call)
        stage.step(20 * MS, times=5, prompt=False)
        assert stage.running() == [call]
        stage.end(call)
    assert stage.pool.tally.overdrafts == 0


def test_what_starts_from_other_lanes_does_not_keep_a_lane_from_its_overdraft(stage: Stage) -> None:
    holders = [stage.push(stage.learn(Kind.LONG, "endless"))]
    holders += [stage.push(stage.learn(Kind.FREE, "endless_free")) for _ in range(stage.budget.cores)]
    stage.compute(*holders)
    queued = [stage.push(stage.learn(kind)) for kind in (Kind.LONG, Kind.FREE)]
    short = stage.learn(Kind.SHORT)
    for _ in range(int(0.5 / (5 * MS))):
        call = stage.push(short)
        stage.compute(call)
        stage.step(5 * MS)
        stage.end(call)
    assert stage.running() == [*holders, *queued]
    assert stage.pool.tally.overdrafts == 2


def test_calls_that_are_cancelled_at_the_head_of_a_lane_do_not_count_as_its_progress(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    holder, *impatient, last = stage.push_many(12, fn)
    stage.compute(holder)
    for call in impatient:
        stage.step(0.9 * PATIENCE / len(impatient))
        assert call.cancel()
    stage.step(0.05 * PATIENCE, times=3)
    assert stage.running() == [holder, last]


def test_the_third_computing_call_of_a_function_and_each_after_it_doubles_the_patience(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    stage.push_many(8, fn)
    times = []
    begun = stage.clock.now_ns
    for _ in range(int(20.0 / (10 * MS))):
        stage.step(10 * MS, prompt=False)
        for call in stage.running():
            if not stage.probe_of(call).computes:
                stage.compute(call)
                times.append((stage.clock.now_ns - begun) / 1e9)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    expected = [PATIENCE * factor for factor in (1, 1, 2, 4, 8, 16)]
    assert gaps[: len(expected)] == pytest.approx(expected[: len(gaps)], abs=0.05)
    assert len(gaps) >= 5


def test_a_crowd_of_one_function_does_not_keep_the_call_of_another_behind_it(stage: Stage) -> None:
    crowd = stage.push_many(20, stage.learn(Kind.LONG, "crowd"))
    stage.step(1 * MS)
    other = stage.push(stage.learn(Kind.LONG, "other"))
    times = []
    for _ in range(int(5.7 * PATIENCE / (10 * MS))):
        stage.compute(*stage.running())
        stage.step(10 * MS, prompt=False)
        times.append(len(stage.running()))
    assert other in stage.running()
    assert crowd[3] in stage.running()
    assert len(stage.running()) == 5


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


def test_a_lane_whose_calls_take_as_long_as_the_patience_does_not_stand_still(stage: Stage) -> None:
    for call in (calls := stage.push_many(8, stage.learn(Kind.LONG, usual=PATIENCE)))[:-1]:
        stage.compute(call)
        stage.step(10 * MS, times=int(1.2 * PATIENCE / (10 * MS)))
        assert stage.running() == [call]
        stage.end(call)
    assert stage.running() == [calls[-1]]
    assert stage.pool.tally.overdrafts == 0


def test_calls_that_usually_take_long_are_given_up_to_four_times_that(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG, usual=2.0)
    first, second = stage.push_many(2, fn)
    stage.compute(first)
    stage.step(50 * MS, times=149)
    assert stage.running() == [first]
    stage.step(50 * MS, times=11)
    assert stage.running() == [first, second]


@pytest.mark.parametrize("usual", [0.001, 0.04, 0.49])
def test_how_long_the_running_calls_usually_take_does_not_matter(stage: Stage, usual: float) -> None:
    job = stage.push(stage.learn(Kind.LONG, "job", usual=60.0))
    stage.compute(job)
    stage.step(10 * MS)
    call = stage.push(stage.learn(Kind.LONG, usual=usual))
    stage.step(10 * MS, times=50)
    assert stage.running() == [job, call]


def test_a_lengthy_call_at_the_head_of_a_lane_does_not_keep_a_shorter_one_behind_it(stage: Stage) -> None:
    job = stage.push(stage.learn(Kind.LONG, "job", usual=60.0))
    stage.compute(job)
    lengthy = stage.push(stage.learn(Kind.LONG, "lengthy", usual=2.0))
    call = stage.push(stage.learn(Kind.LONG, usual=0.04))
    stage.step(10 * MS, times=50)
    assert stage.running() == [job, call]
    stage.compute(call)
    stage.step(50 * MS, times=150)
    assert stage.running() == [job, lengthy, call]


@pytest.mark.parametrize("stuck", [False, True])
def test_calls_that_can_run_elsewhere_stay_at_a_gate_while_it_lets_others_in(
    stage: Stage, stuck: bool
) -> None:
    gate = WatchedLimiter(1, "isolates", most=1)
    stage.budget.limiters.append(gate)
    fn = stage.learn(Kind.WAITING, usual=0.1)
    calls = [stage.push(fn, number, limiters=(gate,), spills=True) for number in range(10)]
    submitted = stage.pool.tally.submitted
    for call in calls[:8]:
        stage.step(20 * MS, times=6)
        if not stuck:
            stage.end(call)
    assert [call.done() for call in calls[1:]] == [stuck or number < 8 for number in range(1, 10)]
    assert gate.stands_still == stuck
    assert stage.pool.tally.submitted == (1 if stuck else submitted)


def test_an_overdraft_gives_its_permit_back(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.compute(first)
    stage.step(10 * MS, times=80)
    for call in (first, second):
        stage.end(call)
    assert stage.permits.held == [0, 0, 0, 0]
