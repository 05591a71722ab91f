"""The published controller, Algorithm 1 of arXiv 2601.10582: its constants and its rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.paper import PaperPolicy
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

from .windows import LIMITS, limits, run_policy, window, windows

POLICY = PaperPolicy()
LOADED = window(queued=5, beta=0.9)
IDLE = window(queued=0, beta=0.9)


def at(workers: int, *, beta: float = 0.9, streak: int = 0) -> State:
    return State(workers=workers, beta=beta, streak=streak)


def test_it_decides_twice_a_second() -> None:
    assert POLICY.interval == 0.5


def test_it_starts_with_four_threads_and_a_beta_of_one_half() -> None:
    start = POLICY.start(LIMITS)
    assert (start.workers, start.beta, start.streak, start.reason) == (4, 0.5, 0, Reason.START)


def test_a_sample_counts_a_fifth_and_the_past_four_fifths() -> None:
    state = POLICY.decide(LIMITS, at(8, beta=0.5), window(beta=1.0))
    assert state.beta == pytest.approx(0.2 * 1.0 + 0.8 * 0.5)
    state = POLICY.decide(LIMITS, state, window(beta=0.0))
    assert state.beta == pytest.approx(0.8 * 0.6)


def test_the_sample_is_weighted_by_time_not_by_call() -> None:
    """A blocked second and ten computing milliseconds are nearly all blocked."""
    both = Window(seconds=0.5, queued=1, running=4, completed=11, wall=1.01, cpu=0.01)
    state = POLICY.decide(LIMITS, at(8, beta=0.0), both)
    assert state.beta == pytest.approx(0.2 * (1.0 - 0.01 / 1.01))


def test_growth_comes_with_every_third_loaded_window() -> None:
    states = run_policy(POLICY, LIMITS, POLICY.start(LIMITS), [LOADED] * 7)
    assert [state.workers for state in states] == [4, 4, 5, 5, 5, 6, 6]
    assert [state.reason for state in states[:3]] == [Reason.HYSTERESIS, Reason.HYSTERESIS, Reason.DEMAND]


def test_an_empty_queue_starts_the_count_anew() -> None:
    states = run_policy(POLICY, LIMITS, at(8), [LOADED, LOADED, IDLE, LOADED, LOADED, LOADED])
    assert [state.workers for state in states] == [8, 8, 7, 7, 7, 8]


def test_a_veto_starts_the_count_anew() -> None:
    computing = window(queued=5, beta=0.0)
    states = run_policy(POLICY, LIMITS, at(8, beta=0.36), [LOADED, computing, computing, LOADED])
    assert [state.reason for state in states] == [
        Reason.HYSTERESIS,
        Reason.HYSTERESIS,
        Reason.BETA_VETO,
        Reason.HYSTERESIS,
    ]
    assert states[-1].streak == 1


def test_a_beta_at_the_threshold_is_a_veto_however_long_the_queue() -> None:
    exactly = POLICY.decide(LIMITS, at(8, beta=0.3, streak=2), window(queued=1000, beta=None))
    assert (exactly.workers, exactly.reason, exactly.streak) == (8, Reason.BETA_VETO, 0)
    above = POLICY.decide(LIMITS, at(8, beta=0.31, streak=2), window(queued=1000, beta=None))
    assert (above.workers, above.reason) == (9, Reason.DEMAND)


def test_an_empty_queue_takes_one_thread_a_window_down_to_four() -> None:
    states = run_policy(POLICY, LIMITS, at(7), [IDLE] * 5)
    assert [state.workers for state in states] == [6, 5, 4, 4, 4]
    assert [state.reason for state in states] == [Reason.NO_DEMAND] * 3 + [Reason.AT_MIN] * 2


def test_growth_ends_at_sixty_four() -> None:
    state = POLICY.decide(LIMITS, at(64, streak=2), LOADED)
    assert (state.workers, state.reason) == (64, Reason.AT_MAX)


def test_a_window_in_which_no_call_ended_leaves_beta_as_it_is() -> None:
    assert POLICY.decide(LIMITS, at(8, beta=0.7), window(queued=1, beta=None)).beta == 0.7


@pytest.mark.parametrize(
    ("bounds", "first", "last"),
    [
        (Limits(lowest=1, highest=256), 4, 64),
        (Limits(lowest=1, highest=2), 2, 2),
        (Limits(lowest=1, highest=16), 4, 16),
        (Limits(lowest=10, highest=256), 10, 64),
        (Limits(lowest=100, highest=256), 100, 100),
    ],
)
def test_the_bounds_of_the_executor_count_as_well(bounds: Limits, first: int, last: int) -> None:
    assert POLICY.start(bounds).workers == first
    assert run_policy(POLICY, bounds, at(first), [LOADED] * 200)[-1].workers == last
    assert run_policy(POLICY, bounds, at(last), [IDLE] * 200)[-1].workers == first


def test_it_is_at_rest_at_its_lower_bound_only() -> None:
    assert POLICY.at_rest(LIMITS, at(4))
    assert not POLICY.at_rest(LIMITS, at(5))


@given(limits(), st.lists(windows, max_size=40))
def test_the_size_stays_within_the_bounds_and_moves_by_one(bounds: Limits, seen: list[Window]) -> None:
    state = POLICY.start(bounds)
    for after in run_policy(POLICY, bounds, state, seen):
        assert bounds.lowest <= after.workers <= bounds.highest
        assert abs(after.workers - state.workers) <= 1
        state = after


@given(st.lists(windows, min_size=1, max_size=40))
def test_beta_is_a_share(seen: list[Window]) -> None:
    for state in run_policy(POLICY, LIMITS, POLICY.start(LIMITS), seen):
        assert state.beta is not None
        assert 0.0 <= state.beta <= 1.0


@given(st.integers(4, 64), st.floats(0.0, 0.3), st.integers(0, 2), windows)
def test_beta_at_or_below_the_threshold_never_grows_the_pool(
    workers: int, beta: float, streak: int, seen: Window
) -> None:
    after = POLICY.decide(LIMITS, at(workers, beta=beta, streak=streak), seen)
    assert after.beta is not None
    assert after.beta > 0.3 or after.workers <= workers


@given(st.lists(windows, max_size=40))
def test_between_two_steps_up_lie_three_loaded_windows(seen: list[Window]) -> None:
    states = run_policy(POLICY, LIMITS, POLICY.start(LIMITS), seen)
    grown = [number for number, state in enumerate(states) if state.reason is Reason.DEMAND]
    assert all(later - earlier >= 3 for earlier, later in pairwise(grown))
    assert all(seen[number - back].queued for number in grown for back in range(3))


@given(limits(), st.integers(1, 600), st.floats(0.0, 1.0), st.integers(0, 2), windows)
def test_the_same_input_gives_the_same_output(
    bounds: Limits, workers: int, beta: float, streak: int, seen: Window
) -> None:
    state = at(workers, beta=beta, streak=streak)
    assert POLICY.decide(bounds, state, seen) == PaperPolicy().decide(bounds, state, seen)


def test_pure_computing_on_many_threads_deceives_it_as_published() -> None:
    """k computing threads read beta = 1 - 1/k, and the published veto cannot fire."""
    state = POLICY.start(LIMITS)
    for _ in range(600):
        state = POLICY.decide(LIMITS, state, window(queued=9, beta=1.0 - 1.0 / state.workers))
    assert state.workers == 64
