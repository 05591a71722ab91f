"""Sizing the waiting lane by demand: when it grows, when it refuses, when it comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

from .windows import LIMITS, limits, run_policy, window, windows

POLICY = DemandPolicy()


def full(workers: int, *, completed: int = 1, lane_cpu: float = 0.0) -> Window:
    """Return a window at whose end all places are taken and calls wait for one."""
    return window(queued=1, running=workers, completed=completed, lane_cpu=lane_cpu)


def test_it_starts_with_as_many_as_asyncios_default_pool() -> None:
    assert POLICY.start(LIMITS) == State(workers=32, reason=Reason.START)


@pytest.mark.parametrize(("lowest", "highest", "first"), [(1, 8, 8), (64, 256, 64), (1, 1, 1)])
def test_it_starts_within_the_bounds(lowest: int, highest: int, first: int) -> None:
    assert POLICY.start(Limits(lowest=lowest, highest=highest)).workers == first


def test_it_doubles_while_the_lane_is_full_and_queued() -> None:
    state, sizes = POLICY.start(LIMITS), []
    for _ in range(4):
        state = POLICY.decide(LIMITS, state, full(state.workers))
        sizes.append((state.workers, state.reason))
    assert sizes == [(64, Reason.DEMAND), (128, Reason.DEMAND), (256, Reason.DEMAND), (256, Reason.AT_MAX)]


def test_it_doubles_out_of_a_stall_and_says_so() -> None:
    state = POLICY.decide(LIMITS, POLICY.start(LIMITS), full(32, completed=0))
    assert (state.workers, state.reason) == (64, Reason.STALL)


def test_it_does_not_grow_while_places_are_free() -> None:
    state = POLICY.decide(LIMITS, POLICY.start(LIMITS), window(queued=5, running=31))
    assert (state.workers, state.reason) == (32, Reason.HOLD)


@pytest.mark.parametrize(
    ("capacity", "lane_cpu", "grows"),
    [(1.0, 0.84, True), (1.0, 0.85, False), (4.0, 3.3, True), (4.0, 3.4, False)],
)
def test_it_refuses_to_grow_when_the_lane_fills_gil_or_cores(
    capacity: float, lane_cpu: float, grows: bool
) -> None:
    bounds = Limits(lowest=1, highest=256, capacity=capacity)
    state = POLICY.decide(bounds, POLICY.start(bounds), full(32, lane_cpu=lane_cpu))
    expected = (64, Reason.DEMAND) if grows else (32, Reason.SATURATED)
    assert (state.workers, state.reason) == expected


def test_a_peak_is_forgotten_by_halves_after_a_hundred_windows_without_a_queue() -> None:
    states = run_policy(POLICY, LIMITS, State(workers=256), [window()] * 300)
    changes = [
        (number, state.workers) for number, state in enumerate(states, 1) if state.reason is Reason.NO_DEMAND
    ]
    assert changes == [(100, 128), (200, 64), (300, 32)]


def test_a_queue_keeps_the_peak() -> None:
    quiet = [window()] * 99
    states = run_policy(POLICY, LIMITS, State(workers=64), [*quiet, window(queued=1), *quiet])
    assert {state.workers for state in states} == {64}


def test_a_peak_that_is_in_use_is_not_halved() -> None:
    states = run_policy(POLICY, LIMITS, State(workers=64), [window(running=33)] * 150)
    assert {state.workers for state in states} == {64}
    assert POLICY.decide(LIMITS, states[-1], window(running=32)).workers == 32


def test_it_is_at_rest_at_its_first_size_only() -> None:
    assert POLICY.at_rest(LIMITS, POLICY.start(LIMITS))
    assert not POLICY.at_rest(LIMITS, State(workers=64))


def test_it_reports_the_raw_beta_and_keeps_it_over_an_empty_window() -> None:
    state = POLICY.decide(LIMITS, POLICY.start(LIMITS), window(beta=0.75))
    assert state.beta == pytest.approx(0.75)
    assert POLICY.decide(LIMITS, state, window(beta=None)).beta == state.beta


@given(limits(), st.lists(windows, max_size=40))
def test_the_size_stays_within_the_bounds(bounds: Limits, seen: list[Window]) -> None:
    for state in run_policy(POLICY, bounds, POLICY.start(bounds), seen):
        assert bounds.lowest <= state.workers <= bounds.highest


@given(limits(), st.integers(1, 600), st.integers(0, 99), windows)
def test_a_saturated_gil_never_grows_the_pool(bounds: Limits, size: int, streak: int, seen: Window) -> None:
    workers = bounds.clamp(size)
    after = POLICY.decide(bounds, State(workers=workers, streak=streak), seen)
    assert seen.lane_cpu < 0.85 * bounds.capacity or after.workers <= workers


@given(limits(), st.integers(1, 600), st.integers(0, 99), windows)
def test_it_grows_only_for_a_queue_before_a_full_lane(
    bounds: Limits, size: int, streak: int, seen: Window
) -> None:
    workers = max(bounds.clamp(size), bounds.clamp(POLICY.first))
    after = POLICY.decide(bounds, State(workers=workers, streak=streak), seen)
    assert after.workers <= workers or (seen.queued and seen.running >= workers)


@given(limits(), st.lists(windows, max_size=20))
def test_without_calls_every_size_comes_back_to_the_first(bounds: Limits, seen: list[Window]) -> None:
    state = (run_policy(POLICY, bounds, POLICY.start(bounds), seen) or [POLICY.start(bounds)])[-1]
    quiet = run_policy(POLICY, bounds, state, [window(beta=None)] * 600)
    assert POLICY.at_rest(bounds, quiet[-1])


@given(limits(), st.integers(1, 600), st.integers(0, 99), windows)
def test_the_same_input_gives_the_same_output(bounds: Limits, size: int, streak: int, seen: Window) -> None:
    state = State(workers=bounds.clamp(size), streak=streak)
    assert POLICY.decide(bounds, state, seen) == DemandPolicy().decide(bounds, state, seen)


def test_the_wait_for_the_gil_of_computing_calls_never_grows_it() -> None:
    """Computing calls are queued elsewhere: whatever their raw beta, the waiting lane is empty."""
    states = run_policy(POLICY, LIMITS, POLICY.start(LIMITS), [window(beta=0.94)] * 50)
    assert {state.workers for state in states} == {32}
