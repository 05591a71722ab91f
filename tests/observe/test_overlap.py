"""Trials of running short calls at once: when they begin, what decides, and what a profile makes of it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.functions import LONG_NS, Profile
from hybridrt.observe.overlap import GAIN, OverlapTrial
from hybridrt.values import Kind

US = 1_000
MS = 1_000_000
WALL, CPU = 200 * US, 80 * US


def run_alone(trial: OverlapTrial, calls: int, *, wall: int = WALL, cpu: int = CPU, total: int = 0) -> int:
    """Show windows of calls that run one at a time, until a trial begins; return the calls so far."""
    for number in range(16, calls + 1, 16):
        trial.alone(total + number, 16, wall, cpu)
        if trial.running:
            return total + number
    return total + calls


def run_together(trial: OverlapTrial, each: float, total: int = 0) -> int:
    """Show windows of the trial in which a call ends every `each` nanoseconds; return the calls so far."""
    while trial.running:
        total += 16
        trial.together(total, 16, int(16 * each))
    return total


def test_no_trial_begins_for_calls_that_compute() -> None:
    trial = OverlapTrial()
    run_alone(trial, 100_000, wall=WALL, cpu=WALL - 10 * US)
    assert not trial.running


def test_a_trial_begins_when_enough_calls_had_unexplained_waits() -> None:
    trial = OverlapTrial()
    assert run_alone(trial, 10_000) == 256
    assert trial.running


def test_a_window_without_them_starts_the_count_anew() -> None:
    trial = OverlapTrial()
    run_alone(trial, 240)
    trial.alone(256, 16, WALL, WALL)
    assert run_alone(trial, 10_000, total=256) == 512


def test_no_trial_begins_for_calls_that_only_lacked_a_core() -> None:
    """Other processes keep both cores busy: of 5 ms a call computes for one, and is ready for the others."""
    profile, kinds = Profile("key", "module:name"), set()
    for number in range(1, 2_000):
        profile.record(5 * MS, 900 * US, 0, 4_100 * US, 0, ended_ns=number * 5 * MS)
        kinds.add(profile.kind)
    assert kinds == {Kind.SHORT}


def test_more_throughput_proves_the_wait() -> None:
    trial = OverlapTrial()
    total = run_alone(trial, 10_000)
    run_together(trial, WALL / 2, total)
    assert trial.wait_ns == WALL - CPU


def test_the_same_throughput_proves_nothing_and_the_next_trial_waits_longer_each_time() -> None:
    trial = OverlapTrial()
    begun = [run_alone(trial, 10_000)]
    for _ in range(3):
        total = run_together(trial, WALL, begun[-1])
        assert not trial.wait_ns
        begun.append(run_alone(trial, 10_000_000, total=total))
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses[0] > 4_000
    assert pauses[1] > 1.9 * pauses[0]
    assert pauses[2] > 1.9 * pauses[1]


def test_the_calls_whose_threads_start_do_not_count() -> None:
    trial = OverlapTrial()
    total = run_alone(trial, 10_000)
    for _ in range(4):
        trial.together(total, 16, 16 * 100 * WALL)
    run_together(trial, WALL / 2, total)
    assert trial.wait_ns


def test_another_function_under_the_name_is_tried_anew() -> None:
    trial = OverlapTrial()
    run_together(trial, WALL / 2, run_alone(trial, 10_000))
    assert trial.holds(1_000, WALL, 1.5 * CPU)
    assert not all(trial.holds(1_000, 2 * WALL, 3 * CPU) for _ in range(8))
    assert run_alone(trial, 10_000, total=1_000) < 1_400


def test_a_function_that_waits_for_less_than_half_as_long_is_tried_anew() -> None:
    trial = OverlapTrial()
    run_together(trial, WALL / 2, run_alone(trial, 10_000))
    assert trial.holds(1_000, WALL - 0.4 * (WALL - CPU), CPU)
    assert not all(trial.holds(1_000, WALL - 0.6 * (WALL - CPU), CPU) for _ in range(8))
    assert not trial.wait_ns


def test_one_odd_window_does_not_end_what_a_trial_has_shown() -> None:
    trial = OverlapTrial()
    run_together(trial, WALL / 2, run_alone(trial, 10_000))
    for _ in range(16):
        assert trial.holds(1_000, 2 * WALL, 3 * CPU)
        assert trial.holds(1_000, WALL, CPU)


def test_a_success_counts_for_more_calls_each_time() -> None:
    trial, total, held = OverlapTrial(), 0, []
    for _ in range(3):
        begin = total = run_together(trial, WALL / 2, run_alone(trial, 10_000, total=total))
        while trial.holds(total, WALL, CPU):
            total += 16
        held.append(total - begin)
    assert held[0] > 4_000
    assert held[1] > 1.9 * held[0]
    assert held[2] > 1.9 * held[1]


def test_calls_that_end_after_a_trial_and_began_at_once_do_not_count() -> None:
    trial = OverlapTrial()
    total = run_together(trial, WALL, run_alone(trial, 10_000))
    for _ in range(4):
        trial.alone(total, 16, 1_000 * WALL, CPU)
    run_together(trial, WALL, run_alone(trial, 10_000, total=total))
    assert not trial.wait_ns


@given(st.integers(50 * US, 10 * MS), st.floats(0.05, 0.9), st.floats(0.2, 3.0))
def test_it_stays_at_once_only_where_that_does_more(wall: int, share: float, each: float) -> None:
    trial = OverlapTrial()
    total = run_alone(trial, 1_000, wall=wall, cpu=int(wall * share))
    if trial.running:
        run_together(trial, wall * each, total)
        if abs(each * GAIN - 1.0) > 0.01:
            assert bool(trial.wait_ns) == (each * GAIN < 1.0)


# ---------------------------------------------------------------------- what a profile makes of it


class Lane:
    """Short calls whose waits are hidden behind the GIL's: nothing of them is certain."""

    def __init__(self) -> None:
        self.profile = Profile("key", "name")
        self.now = MS

    def run(self, calls: int, *, gain: float, cpu: int = CPU, wall: int = WALL) -> Counter[Kind]:
        """Make calls: one at a time, or as many more a second as `gain` says where they may overlap.

        Returns:
            How many calls were made while it was of which kind.
        """
        kinds: Counter[Kind] = Counter()
        for _ in range(calls):
            kinds[self.profile.kind] += 1
            at_once = self.profile.kind is Kind.WAITING
            self.now += int(wall / gain) if at_once else wall
            self.profile.record(wall, cpu, 0, 0, wall - cpu, self.now)
        return kinds

    def compute(self, calls: int, callers: int, cpu: int = 3 * CPU // 2) -> Counter[Kind]:
        """Make calls that only compute, so that each takes `callers` times as long where they may overlap."""
        kinds: Counter[Kind] = Counter()
        for _ in range(calls):
            kinds[self.profile.kind] += 1
            wall = cpu * (callers if self.profile.kind is Kind.WAITING else 1)
            self.now += cpu
            self.profile.record(wall, cpu, 0, 0, wall - cpu, self.now)
        return kinds


@pytest.mark.parametrize(("gain", "kind"), [(1.5, Kind.WAITING), (1.0, Kind.SHORT), (0.8, Kind.SHORT)])
def test_short_calls_run_at_once_for_good_where_that_pays(gain: float, kind: Kind) -> None:
    lane = Lane()
    lane.run(2_000, gain=gain)
    assert lane.profile.kind is kind


def test_what_a_trial_proved_is_the_wait_that_the_policy_sees() -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5)
    assert lane.profile.wait_mean_ns == WALL - CPU


def test_calls_that_become_long_are_tried_no_more() -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5)
    lane.run(2_000, gain=1.5, cpu=2 * LONG_NS, wall=2 * LONG_NS)
    assert lane.profile.kind is Kind.LONG


@pytest.mark.parametrize("callers", [1, 8, 32])
def test_calls_that_compute_by_now_run_one_at_a_time_again(callers: int) -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5)
    lane.compute(20_000, callers)
    kinds = lane.compute(20_000, callers)
    assert kinds[Kind.SHORT] > kinds[Kind.WAITING]
    assert lane.profile.kind is Kind.SHORT


def test_calls_that_go_on_waiting_run_at_once_but_for_a_trial_now_and_then() -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5)
    kinds = lane.run(100_000, gain=1.5)
    assert 0 < kinds[Kind.SHORT] < 0.03 * kinds[Kind.WAITING]


def test_calls_in_batches_are_never_tried() -> None:
    profile = Profile("key", "name")
    for _ in range(1_000):
        profile.record_batch(16, 16 * 40 * US, 16 * 10 * US, 0, 30 * US)
    assert profile.overlap is None


def test_a_first_call_that_lacked_a_core_for_longer_than_it_took_does_not_hide_the_waits_of_the_next() -> (
    None
):
    """Its core was taken from it between two readings; the others ran in batches, which are not asked."""
    profile, now = Profile("key", "name"), MS
    profile.record(519 * US, 108 * US, 0, 587 * US, 250 * US, now)
    while profile.calls < 300:
        now += 16 * 250 * US
        profile.record_batch(16, 16 * 250 * US, 16 * 75 * US, 0, 100 * US, now)
    assert profile.kind is Kind.WAITING
    assert profile.overlap is not None
    assert profile.overlap.running


def test_calls_of_more_than_a_millisecond_are_never_tried() -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5, cpu=2 * MS, wall=5 * MS)
    assert (lane.profile.kind, lane.profile.overlap) == (Kind.SHORT, None)


def test_where_the_waiting_lane_has_grown_for_others_they_run_one_at_a_time_again() -> None:
    lane = Lane()
    lane.run(2_000, gain=1.5)
    for _ in range(64):
        lane.profile.record(WALL, CPU, 0, 0, WALL - CPU, 0)
    assert lane.profile.kind is Kind.SHORT
    lane.run(200, gain=1.5)
    assert lane.profile.kind is Kind.WAITING
