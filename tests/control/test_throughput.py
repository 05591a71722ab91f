"""The pool that follows bytes: its phases, its bounds, and what it does with a disk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.throughput import Phase, ThroughputPolicy, ThroughputState
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

from .windows import LIMITS, limits, run_policy, windows

POLICY = ThroughputPolicy()
MB = 1e6


def moving(rate: float | None) -> Window:
    """Return a window of 1.5 s in which calls moved so many bytes a second."""
    return Window(seconds=1.5, queued=9, running=1, completed=5, wall=1.0, cpu=0.1, moved=rate)


IDLE = replace(moving(0.0), queued=0, running=0, completed=0)


def states(*rates: float | None, start: State | None = None) -> list[tuple[int, Reason]]:
    begun = POLICY.start(LIMITS) if start is None else start
    after = run_policy(POLICY, LIMITS, begun, [moving(rate) for rate in rates])
    return [(state.workers, state.reason) for state in after]


def at(workers: int, phase: Phase, rate: float, stayed: int = 0) -> ThroughputState:
    return ThroughputState(workers=workers, phase=phase, rate=rate, stayed=stayed)


def test_it_has_the_constants_of_the_document() -> None:
    assert (POLICY.interval, POLICY.stability) == (1.5, 0.9)


def test_it_scales_while_the_rate_rises_and_then_settles() -> None:
    assert states(100, 200, 300, 310) == [
        (2, Reason.SCALING),
        (4, Reason.SCALING),
        (8, Reason.SCALING),
        (8, Reason.SETTLED),
    ]


@pytest.mark.parametrize(("rate", "size"), [(111.0, 8), (112.0, 16)])
def test_less_than_a_tenth_more_is_no_rise(rate: float, size: int) -> None:
    ((workers, _),) = states(rate, start=at(8, Phase.SCALING, 100.0))
    assert workers == size


def test_a_settled_pool_explores_after_some_time_fewer_first() -> None:
    came = states(*[100.0] * 8, start=at(8, Phase.SETTLED, 100.0))
    assert came[:5] == [(8, Reason.SETTLED)] * 5
    assert came[5:] == [(7, Reason.EXPLORING), (6, Reason.EXPLORING), (5, Reason.EXPLORING)]


@pytest.mark.parametrize("rate", [50.0, 200.0])
def test_a_settled_pool_explores_at_once_when_the_rate_changes(rate: float) -> None:
    assert states(rate, start=at(8, Phase.SETTLED, 100.0)) == [(7, Reason.EXPLORING)]


def test_if_fewer_do_less_they_come_back_and_one_more_is_tried() -> None:
    assert states(80.0, 81.0, start=at(7, Phase.FEWER, 100.0)) == [
        (9, Reason.EXPLORING),
        (8, Reason.SETTLED),
    ]


def test_a_pool_in_which_each_thread_counts_does_not_come_down_one_by_one() -> None:
    """One of 64 is never a tenth of the rate, but seven are, and then all of them come back."""
    state: ThroughputState = at(64, Phase.SETTLED, 64.0)
    sizes = []
    for _ in range(200):
        state = POLICY.decide(LIMITS, state, moving(float(state.workers)))
        sizes.append(state.workers)
    assert (min(sizes), sizes.count(64) >= 80) == (57, True)


def test_after_exploring_as_many_come_back_as_the_rate_takes() -> None:
    """A disk that 40 threads fill, under 64."""
    state: ThroughputState = at(64, Phase.SETTLED, 40.0, stayed=5)
    sizes = []
    while state.phase is not Phase.MORE:
        state = POLICY.decide(LIMITS, state, moving(float(min(40, state.workers))))
        sizes.append(state.workers)
    assert sizes == [*range(63, 34, -1), 41]


def test_if_one_more_does_more_it_scales_again() -> None:
    assert states(120.0, start=at(9, Phase.MORE, 100.0)) == [(18, Reason.SCALING)]


def test_it_comes_down_to_one_and_settles_there() -> None:
    assert states(100.0, 100.0, start=at(2, Phase.FEWER, 100.0)) == [
        (1, Reason.EXPLORING),
        (1, Reason.AT_MIN),
    ]


def test_it_stops_at_its_upper_bound() -> None:
    assert states(200.0, 400.0, start=at(40, Phase.SCALING, 100.0)) == [
        (64, Reason.SCALING),
        (64, Reason.AT_MAX),
    ]


def test_without_calls_it_begins_anew_and_rests() -> None:
    state = POLICY.decide(LIMITS, at(8, Phase.SETTLED, 100.0), IDLE)
    assert (state.workers, state.reason, state.phase) == (1, Reason.NO_DEMAND, Phase.SCALING)
    assert POLICY.at_rest(LIMITS, state)
    assert not POLICY.at_rest(LIMITS, at(8, Phase.SETTLED, 100.0))


def test_without_the_counter_the_size_stays() -> None:
    state = at(8, Phase.SETTLED, 100.0)
    assert POLICY.decide(LIMITS, state, moving(None)) == replace(state, reason=Reason.HOLD)


def test_a_load_of_two_phases_shows_all_three_states() -> None:
    """A disk that carries 8 threads at 125 MB/s each, and later, with syncs, 2 of them at 75."""
    state: ThroughputState = POLICY.start(LIMITS)
    seen: dict[str, set[Reason]] = {"first": set(), "second": set()}
    for number in range(60):
        name, knee, each = ("first", 8, 125 * MB) if number < 30 else ("second", 2, 75 * MB)
        state = POLICY.decide(LIMITS, state, moving(each * min(knee, state.workers)))
        seen[name].add(state.reason)
        if number == 29:
            assert 7 <= state.workers <= 9
    assert seen["first"] >= {Reason.SCALING, Reason.SETTLED, Reason.EXPLORING}
    assert seen["second"] >= {Reason.SETTLED, Reason.EXPLORING}
    assert state.workers == 2


@given(limits(), st.lists(windows, max_size=60))
def test_the_size_stays_within_the_bounds(bounds: Limits, seen: list[Window]) -> None:
    for state in run_policy(POLICY, bounds, POLICY.start(bounds), seen):
        assert bounds.lowest <= state.workers <= bounds.highest
        assert state.workers <= max(64, bounds.lowest)


@given(limits(), st.lists(windows, max_size=40))
def test_every_step_down_is_by_one_or_to_the_start(bounds: Limits, seen: list[Window]) -> None:
    before = POLICY.start(bounds)
    for window in seen:
        after = POLICY.decide(bounds, before, window)
        if after.workers < before.workers:
            assert before.workers - after.workers == 1 or after.reason is Reason.NO_DEMAND
        before = after
