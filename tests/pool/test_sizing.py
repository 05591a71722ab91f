"""Windows: what a policy is given, when it is asked, and what becomes of its decision."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

import pytest

from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.control.demand import DemandPolicy
from hybridrt.control.knee import DemandState
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.replay import Recording
from hybridrt.control.veto import find_veto
from hybridrt.control.window import Limits, State, Window
from hybridrt.executor.budget import GovernedBudget, shared
from hybridrt.governor.sizing import CALM, LOG
from hybridrt.pool import state as state_module
from hybridrt.pool.roster import dismisses, may_leave
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.testing import ManualClock
from hybridrt.values import Kind, Reason

from .support import DEADLINE, MS, Meeting, Stage, make_call, make_pool, named, until

SLOW = 60.0
"""Seconds that calls usually take whose lane stands still in these tests, so that no overdraft starts one."""


@dataclass
class Scripted:
    """A policy that decides what the test says, and keeps what it was given."""

    sizes: list[int] = field(default_factory=list)
    interval: float = 0.5
    seen: list[Window] = field(default_factory=list)
    rests: bool = False
    stays: Reason = Reason.KNEE
    streak: int = 0
    governs: Literal["all", "waiting"] = "waiting"
    needs_moved: bool = False

    def start(self, limits: Limits) -> State:
        return State(workers=1)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        self.seen.append(window)
        workers = self.sizes.pop(0) if self.sizes else state.workers
        reason = Reason.DEMAND if workers > state.workers else self.stays
        return State(workers=workers, reason=reason, streak=self.streak)

    def at_rest(self, limits: Limits, state: State) -> bool:
        return self.rests


def paper_stage(max_workers: int = 64) -> Stage:
    return Stage(lanes=False, options={"policy": PaperPolicy(), "max_workers": max_workers})


# ---------------------------------------------------------------------- windows


def test_a_window_is_closed_when_its_interval_is_over_and_not_before() -> None:
    policy = Scripted()
    stage = Stage(options={"policy": policy})
    stage.step(499 * MS)
    assert policy.seen == []
    stage.step(1 * MS)
    stage.step(600 * MS)
    assert [round(window.seconds, 3) for window in policy.seen] == [0.5, 0.6]


def test_a_window_is_longer_while_the_law_has_nothing_to_do_and_ends_when_a_call_queues() -> None:
    policy = Scripted(stays=Reason.HOLD)
    stage = Stage(options={"policy": policy})
    waits = stage.learn(Kind.WAITING, usual=SLOW)
    stage.push(waits)
    stage.step(500 * MS, times=CALM + 1)
    assert [window.seconds for window in policy.seen] == [0.5, CALM * 0.5]
    stage.push(waits)  # the size is one
    stage.step(500 * MS)
    assert [window.queued for window in policy.seen] == [0, 0, 1]
    stage.step(500 * MS)
    assert len(policy.seen) == 4


def test_a_window_is_as_short_as_usual_while_the_law_counts_something() -> None:
    policy = Scripted(stays=Reason.HOLD, streak=1)
    stage = Stage(options={"policy": policy})
    stage.push(stage.learn(Kind.WAITING, usual=SLOW))
    stage.step(500 * MS, times=3)
    assert [window.seconds for window in policy.seen] == [0.5, 0.5, 0.5]


def test_a_window_of_all_calls_keeps_to_its_interval() -> None:
    policy = Scripted(stays=Reason.HOLD)
    stage = Stage(lanes=False, options={"policy": policy})
    stage.push(named("any"))
    stage.step(500 * MS, times=3)
    assert [window.seconds for window in policy.seen] == [0.5, 0.5, 0.5]


def test_the_knee_is_by_what_the_running_calls_demand_on_average() -> None:
    policy = Scripted(sizes=[3])
    stage = Stage(options={"policy": policy})
    stage.step(500 * MS)
    for name, demand, calls in (("light", 0.1, 2), ("heavy", 0.4, 1)):
        fn = stage.learn(Kind.WAITING, name)
        profile = stage.pool.profiles.of(fn)
        profile.corrected, profile.cpu_mean_ns = True, int(demand * 1e6)
        profile.wait_mean_ns = 1_000_000 - profile.cpu_mean_ns
        stage.push_many(calls, fn)
    stage.step(500 * MS)
    assert policy.seen[-1].knee == pytest.approx(3 / 0.6)


def test_while_the_waiting_lane_has_no_call_and_its_size_rests_no_window_is_looked_at() -> None:
    policy = Scripted(rests=True)
    stage = Stage(options={"policy": policy})
    stage.push(stage.learn(Kind.LONG))
    stage.step(500 * MS, times=3)
    assert policy.seen == []
    waiting = stage.push(stage.learn(Kind.WAITING, usual=SLOW))
    stage.step(500 * MS)
    stage.end(waiting)
    stage.step(500 * MS, times=3)
    assert [(window.running, window.completed) for window in policy.seen] == [(1, 0), (0, 1)]


def test_a_lane_that_has_no_call_any_more_has_no_crowd_at_the_gil_either() -> None:
    stage = Stage(options={"policy": Scripted(rests=True)})
    stage.pool.sizing.crowd = 6.0
    stage.step(500 * MS)
    assert stage.pool.sizing.crowd == 0.0


@pytest.mark.parametrize(
    ("gil", "cpu", "capacity", "whole"), [(True, 0.5, 0.5, 1), (False, 0.5, 0.5, 1), (True, 1.5, 1.0, 2)]
)
def test_a_quota_of_part_of_a_core_is_all_that_the_law_counts_on(
    monkeypatch: pytest.MonkeyPatch, gil: bool, cpu: float, capacity: float, whole: int
) -> None:
    monkeypatch.setattr(state_module, "usable_cores", lambda: cpu)
    stage = Stage(gil=gil)
    stage.budget._counts_cores = True
    stage.step(2001 * MS, prompt=True)
    limits = stage.pool.limits
    assert (limits.capacity, limits.cores, stage.budget.cores) == (capacity, cpu, whole)
    window = Window(seconds=0.05, queued=9, running=8, completed=8, wall=0.4, cpu=0.05 * cpu)
    busy = DemandState(workers=8, patience=4.0, load=0.9 * cpu, load_peak=0.9 * cpu)
    assert find_veto(limits, busy, window) is Reason.SATURATED


def test_an_executor_that_is_made_under_such_a_quota_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "cpu", 0.5)
    with AdaptiveThreadPoolExecutor() as executor:
        limits = executor._pool.limits
    assert (limits.capacity, limits.cores) == (0.5, 0.5)


def test_a_window_has_the_calls_that_ended_in_it_and_those_queued_and_running_at_its_end() -> None:
    policy = Scripted()
    stage = Stage(lanes=False, options={"policy": policy})
    ended, *_ = stage.push_many(3, named("waits"))
    stage.clock.advance(0.4)
    stage.end(ended)
    stage.step(100 * MS)
    stage.step(500 * MS)
    first, second = policy.seen
    assert (first.completed, first.queued, first.running) == (1, 1, 1)
    assert first.wall == pytest.approx(0.4)
    assert first.cpu == 0.0
    assert (second.completed, second.wall) == (0, 0.0)


def test_the_cpu_of_the_waiting_lane_is_a_share_of_the_window() -> None:
    policy = Scripted(sizes=[8] * 9)
    stage = Stage(options={"policy": policy})
    waiting = stage.push(stage.learn(Kind.WAITING, usual=SLOW))
    stage.compute(waiting)
    stage.clock.advance(0.25)
    stage.end(waiting)
    long = stage.push(stage.learn(Kind.LONG))
    stage.compute(long)
    stage.clock.advance(0.25)
    stage.end(long)
    stage.step()
    assert policy.seen[0].lane_cpu == pytest.approx(0.25 / 0.5)
    assert policy.seen[0].cpu == pytest.approx(0.25)


def test_under_demand_only_the_waiting_lane_counts_as_queued_and_running() -> None:
    policy = Scripted()
    stage = Stage(options={"policy": policy})
    stage.push_many(3, stage.learn(Kind.WAITING, usual=SLOW))
    stage.push_many(7, stage.learn(Kind.LONG))
    stage.step(500 * MS)
    assert (policy.seen[0].queued, policy.seen[0].running) == (2, 1)


# ---------------------------------------------------------------------- decisions


def test_a_larger_size_starts_what_is_queued_at_once() -> None:
    stage = Stage(options={"policy": Scripted(sizes=[3])})
    calls = stage.push_many(5, stage.learn(Kind.WAITING, usual=SLOW))
    assert stage.running() == calls[:1]
    stage.step(500 * MS)
    assert stage.running() == calls[:3]


def test_a_smaller_size_lets_running_calls_end() -> None:
    stage = Stage(options={"policy": Scripted(sizes=[3, 1])})
    calls = stage.push_many(5, stage.learn(Kind.WAITING, usual=SLOW))
    stage.step(500 * MS, times=2)
    assert stage.running() == calls[:3]
    stage.end(calls[0])
    assert stage.running() == calls[1:3]


def test_a_decision_says_when_from_what_to_what_and_why() -> None:
    stage = Stage(options={"policy": Scripted(sizes=[3])})
    stage.push_many(5, stage.learn(Kind.WAITING, usual=SLOW))
    stage.step(500 * MS)
    first, second = stage.pool.sizing.decisions
    assert (first.at, first.workers, first.previous, first.reason) == (0.0, 1, 1, Reason.START)
    assert second.at == pytest.approx(0.5)
    assert (second.workers, second.previous, second.reason) == (3, 1, Reason.DEMAND)
    assert (second.queued, second.running) == (4, 1)


def test_windows_that_change_neither_size_nor_reason_are_not_noted_again() -> None:
    stage = Stage(options={"policy": Scripted()})
    stage.step(500 * MS, times=50)
    assert [decision.reason for decision in stage.pool.sizing.decisions] == [Reason.START, Reason.KNEE]


def test_the_last_two_hundred_decisions_are_kept() -> None:
    stage = Stage(options={"policy": Scripted(sizes=[number % 7 + 1 for number in range(500)])})
    stage.step(500 * MS, times=500)
    decisions = stage.pool.sizing.decisions
    assert len(decisions) == 200
    assert decisions[-1].at == pytest.approx(250.0)


# ---------------------------------------------------------------------- the paper's policy, in a pool


def test_the_paper_grows_the_pool_by_a_thread_every_third_window_of_waiting_calls() -> None:
    stage = paper_stage()
    fn, sizes = named("waits"), []
    calls = stage.push_many(100, fn)
    for _ in range(9):
        stage.clock.advance(0.4)
        stage.end(stage.running()[0])
        stage.step(100 * MS)
        sizes.append(len(stage.running()))
    assert sizes == [4, 4, 5, 5, 5, 6, 6, 6, 7]
    assert len(stage.pool.roster.workers) == 7
    assert calls[0].done()


def test_the_paper_vetoes_growth_for_calls_that_read_as_computing() -> None:
    stage = paper_stage()
    stage.push_many(100, named("computes"))
    for _ in range(12):
        stage.compute(*stage.running())
        stage.clock.advance(0.4)
        stage.end(stage.running()[0])
        stage.step(100 * MS)
    reasons = {decision.reason for decision in stage.pool.sizing.decisions}
    assert Reason.BETA_VETO in reasons
    assert len(stage.pool.roster.workers) <= 5  # beta starts at one half and needs a few windows to fall


def test_the_paper_retires_a_thread_every_window_without_a_queue() -> None:
    stage = paper_stage()
    for worker_count in range(5, 9):
        stage.pool.sizing.state = State(workers=worker_count, beta=0.9)
        stage.push(named("waits"))
    while running := stage.running():
        stage.end(running[0])
    assert len(stage.pool.roster.workers) == 4
    stage.pool.sizing.state = State(workers=8, beta=0.9)
    stage.push_many(8, named("waits"))
    while running := stage.running():
        stage.end(running[0])
    roster, sizes = stage.pool.roster, []
    for _ in range(5):
        stage.step(500 * MS)
        # Each surplus worker was rung; its thread asks whether to go.
        for worker in tuple(roster.idle):
            if not worker.wakeup.empty():
                worker.wakeup.get()
                if dismisses(stage.pool):
                    may_leave(stage.pool, worker, timed_out=False)
        sizes.append(len(roster.workers))
    assert sizes == [7, 6, 5, 4, 4]


def test_the_paper_knows_no_lanes() -> None:
    stage = paper_stage()
    calls = stage.push_many(4, stage.learn(Kind.LONG))
    assert stage.running() == calls
    assert stage.permits.held == [0, 0, 0, 0]
    assert stage.pool.admission.counts() == {"queue": 0}


# ---------------------------------------------------------------------- the same with real threads


def test_the_paper_on_real_threads_grows_with_waiting_calls_and_retires_threads(meeting: Meeting) -> None:
    clock = ManualClock()
    budget = GovernedBudget(clock)
    budget.governor.parked = False  # the test steps
    pool = make_pool(budget, lanes=False, policy=PaperPolicy())

    def close_window() -> None:
        clock.advance(0.5)
        budget.governor.step(clock.now_ns, 0, prompt=True)

    calls = [make_call(pool, meeting, number) for number in range(30)]
    for call in calls:
        pool.push(call)
    meeting.wait_for(4)
    for size in range(5, 9):
        for _ in range(3):
            close_window()
        meeting.wait_for(size)
        assert len(pool.roster.workers) == size
    assert meeting.inside == 8
    meeting.end()
    assert [call.result(DEADLINE) for call in calls] == list(range(30))
    until(lambda: len(pool.roster.idle) == 8, "all workers park")
    threads = list(pool.roster.threads)
    for _ in range(6):
        close_window()
    until(lambda: sum(thread.is_alive() for thread in threads) == 4, "four of eight threads retire")
    assert pool.sizing.state.workers == 4
    close(pool, closed_error, cancel_queued=True)
    for thread in threads:
        thread.join(DEADLINE)


# ---------------------------------------------------------------------- the log


@pytest.mark.slow
def test_the_log_replays_to_the_sizes_that_were_decided_also_after_it_was_stored() -> None:
    stage = Stage(options={"max_workers": 200})
    fn = stage.learn(Kind.WAITING, usual=SLOW)
    for number in range(700):
        stage.push_many(2 if number // 150 % 2 else 12, fn)
        stage.step(50 * MS)
        for call in stage.running()[:10]:
            stage.end(call)
    log = stage.pool.sizing.log()
    assert len(log.windows) == LOG
    assert len(set(log.sizes)) > 2
    stored = Recording.from_dict(json.loads(json.dumps(log.to_dict())))
    assert stored.sizes == log.sizes
    assert [state.workers for state in stored.replay(DemandPolicy())] == list(log.sizes)


def test_an_executor_that_has_decided_nothing_has_an_empty_log() -> None:
    with AdaptiveThreadPoolExecutor(max_workers=4) as executor:
        log = executor.decision_log()
    assert (log.windows, log.sizes, log.limits.highest) == ((), (), 4)
