"""The shield's law: how long a thread may keep the GIL."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.interval import (
    ASKING,
    ENOUGH,
    GROWTH,
    LOWEST,
    PATIENCE,
    REST,
    WAKING,
    Grip,
    Seen,
    decide,
    grasp,
)
from hybridrt.values import ShieldReason

USUAL, TARGET, TICK = 0.005, 0.002, 0.016
QUIET, NEAR, LATE = 0.0005, 0.0018, 0.0021
"""Delays that keep the target with room to spare, barely, and not at all."""

seen = st.builds(
    Seen,
    seconds=st.floats(0.0, 1.0),
    users=st.integers(0, 8),
    delay=st.none() | st.floats(0.0, 0.1),
    target=st.floats(0.0001, 0.1),
    highest=st.just(USUAL),
    ended=st.integers(0, 1000),
)


def after(grip: Grip, *steps: Seen) -> Grip:
    """Return the grip after steps that end no stretch of computing."""
    for step in steps:
        following = decide(grip, step)
        assert following is not None
        grip = following
    return grip


def look(users: int, delay: float | None = QUIET, seconds: float = TICK, highest: float = USUAL) -> Seen:
    return Seen(seconds=seconds, users=users, delay=delay, target=TARGET, highest=highest)


def crowded(seconds: float, delay: float | None = QUIET, users: int = 2) -> list[Seen]:
    return [look(users, delay)] * round(seconds / TICK)


# ---------------------------------------------------------------------- one call


def test_a_call_that_begins_gets_the_shortest_interval() -> None:
    assert grasp(USUAL) == Grip(interval=LOWEST, reason=ShieldReason.TIGHT)


@pytest.mark.parametrize("delay", [None, QUIET, NEAR])
def test_one_call_keeps_it_for_as_long_as_it_computes(delay: float | None) -> None:
    grip = after(grasp(USUAL), *[look(1, delay)] * 1000)
    assert (grip.interval, grip.reason) == (LOWEST, ShieldReason.TIGHT)


def test_a_late_loop_beside_one_call_is_told_apart() -> None:
    grip = after(grasp(USUAL), look(1, LATE))
    assert (grip.interval, grip.reason) == (LOWEST, ShieldReason.LATE)


# ---------------------------------------------------------------------- several calls


def test_while_several_compute_it_grows_step_by_step_up_to_the_users_own() -> None:
    grip, intervals = grasp(USUAL), []
    for step in crowded(30.0):
        grip = after(grip, step)
        intervals.append(grip.interval)
    assert intervals == sorted(intervals)
    assert intervals[-1] == USUAL
    assert grip.reason is ShieldReason.RELAX
    grown = {later / earlier for earlier, later in pairwise(intervals)}
    assert max(grown - {max(grown)}) <= GROWTH + 1e-9  # but for the first, from alone to several


def test_it_does_not_grow_before_its_time() -> None:
    grip = after(grasp(USUAL), *crowded(1.0))
    early = after(replace(grip, kept=0.0), *crowded(0.9 * PATIENCE))
    assert early.interval == grip.interval
    assert after(early, *crowded(0.2 * PATIENCE)).interval == pytest.approx(grip.interval * GROWTH)


def test_it_holds_where_the_loop_comes_near_its_target() -> None:
    grown = after(grasp(USUAL), *crowded(5.0))
    held = after(grown, *crowded(5.0, NEAR))
    assert (held.interval, held.reason) == (grown.interval, ShieldReason.HOLD)


def test_it_falls_at_once_when_the_loop_misses_its_target() -> None:
    grown = after(grasp(USUAL), *crowded(10.0))
    fallen = after(grown, look(2, LATE))
    assert grown.interval > TARGET / 2
    assert (fallen.interval, fallen.reason) == (TARGET / 8, ShieldReason.LATE)


def test_it_falls_no_further_than_it_can_be_to_blame() -> None:
    """Two threads lose a quarter of their work at 0.1 ms; a loop late for another reason gains nothing."""
    grip = after(grasp(USUAL), *crowded(5.0, 1.0, users=2))
    assert grip.interval == TARGET / 8 > LOWEST


def test_a_moment_with_one_call_is_no_end_of_the_crowd() -> None:
    grown = after(grasp(USUAL), *crowded(10.0))
    assert after(grown, look(1, LATE)).interval == TARGET / 8
    assert after(grown, look(1, None)).interval == WAKING


def test_the_last_one_left_has_the_shortest_interval_soon() -> None:
    grown = after(grasp(USUAL), *crowded(10.0))
    assert after(grown, *[look(1)] * 40).interval == LOWEST


@pytest.mark.parametrize("users", [2, 3, 7])
def test_without_a_measured_loop_it_goes_by_their_number(users: int) -> None:
    grip = after(grasp(USUAL), *crowded(2.0, None, users))
    assert (grip.interval, grip.reason) == (WAKING * (users - 1), ShieldReason.UNMEASURED)


# ---------------------------------------------------------------------- calls that come and go


def busy(seconds: float, delay: float | None, each_second: float) -> list[Seen]:
    """One computing call at a time, and others that end beside it."""
    return [replace(look(1, delay), ended=round(each_second * TICK))] * round(seconds / TICK)


def test_a_few_calls_a_second_leave_it_short() -> None:
    grip = after(grasp(USUAL), *busy(5.0, QUIET, 62.5))
    assert (grip.interval, grip.reason) == (LOWEST, ShieldReason.TIGHT)
    assert grip.churn == pytest.approx(62.5, rel=0.01)


def test_many_calls_a_second_make_it_as_long_as_the_loop_bears() -> None:
    grip = after(grasp(USUAL), *busy(2.0, NEAR, 500.0))
    assert (grip.interval, grip.reason) == (TARGET / 4, ShieldReason.HOLD)
    assert after(grip, *busy(30.0, QUIET, 500.0)).interval == USUAL
    assert after(grip, *busy(1.0, LATE, 500.0)).interval == TARGET / 4


def test_many_calls_a_second_and_no_measured_loop_share_the_target_with_it() -> None:
    grip = after(grasp(USUAL), *busy(2.0, None, 500.0))
    assert (grip.interval, grip.reason) == (TARGET / 2, ShieldReason.UNMEASURED)


def test_those_that_end_while_nothing_computes_count_too() -> None:
    pair = [look(1, None), replace(look(0, None), ended=8)]
    grip = after(grasp(USUAL), *pair * 50, look(1, None))
    assert grip.reason is ShieldReason.UNMEASURED


def test_when_they_are_over_it_is_short_again() -> None:
    grip = after(grasp(USUAL), *busy(10.0, QUIET, 500.0), *busy(2.0, QUIET, 0.0))
    assert grip.interval == LOWEST


# ---------------------------------------------------------------------- rest


def test_calls_back_to_back_do_not_toggle_it() -> None:
    grip = grasp(USUAL)
    for _ in range(100):
        grip = after(grip, look(0, seconds=0.9 * REST), look(1))
    assert grip.interval == LOWEST


def test_after_a_rest_it_is_given_back() -> None:
    grip: Grip | None = grasp(USUAL)
    steps = 0
    while grip is not None:
        grip = decide(grip, look(0))
        steps += 1
    assert (steps - 1) * TICK < REST <= steps * TICK


# ---------------------------------------------------------------------- whatever happens


@given(st.lists(seen, max_size=60), st.floats(1e-6, 0.02))
def test_it_is_never_above_the_users_own_nor_below_the_lowest_for_nothing(
    steps: list[Seen], highest: float
) -> None:
    grip: Grip | None = grasp(highest)
    for step in steps:
        if grip is None:
            grip = grasp(highest)
        assert min(LOWEST, highest) <= grip.interval <= highest
        grip = decide(grip, replace(step, highest=highest))


@given(st.lists(seen, min_size=1, max_size=20), st.integers(0, 3_000))
def test_it_is_never_so_short_that_all_threads_at_once_would_fill_a_core_by_asking(
    steps: list[Seen], threads: int
) -> None:
    least = min(USUAL, ASKING * threads)
    grip: Grip | None = grasp(USUAL, threads)
    assert grip is not None
    assert grip.interval == max(LOWEST, least)
    for step in steps:
        grip = decide(grip, replace(step, threads=threads))
        if grip is None:
            return
        assert least <= grip.interval <= USUAL


@given(st.lists(seen, max_size=60), seen)
def test_a_missed_target_never_makes_it_longer_for_the_same_crowd(steps: list[Seen], last: Seen) -> None:
    grip = grasp(USUAL)
    for step in steps:
        grip = decide(grip, step) or grasp(USUAL)
    late = replace(last, users=max(2, last.users), delay=last.target * 1.01)
    fallen = after(grip, late)
    assert fallen.reason is ShieldReason.LATE
    assert fallen.interval <= min(USUAL, max(ENOUGH, late.target / 4))


@given(st.lists(seen, max_size=60), seen)
def test_less_delay_never_makes_it_shorter(steps: list[Seen], last: Seen) -> None:
    grip = grasp(USUAL)
    for step in steps:
        grip = decide(grip, step) or grasp(USUAL)
    last = replace(last, users=max(1, last.users), delay=last.target)
    assert after(grip, replace(last, delay=0.0)).interval >= after(grip, last).interval
