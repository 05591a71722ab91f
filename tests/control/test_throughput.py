"""The published pool that goes by bytes: its three phases, its bounds, what it does without counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.throughput import Phase, ThroughputPolicy, ThroughputState
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

LIMITS = Limits(lowest=1, highest=256)
POLICY = ThroughputPolicy()


def moved(rate: float | None) -> Window:
    return Window(seconds=1.5, queued=9, running=4, completed=50, wall=6.0, cpu=0.1, bytes_rate=rate)


def run(rates: list[float], state: State | None = None) -> list[ThroughputState]:
    """Return the states after each interval with such a rate of bytes."""
    states = [POLICY.start(LIMITS) if state is None else state]
    for rate in rates:
        states.append(POLICY.decide(LIMITS, states[-1], moved(rate)))
    return [state for state in states[1:] if isinstance(state, ThroughputState)]


def test_it_scales_while_the_rate_rises_by_more_than_a_tenth_and_settles_then() -> None:
    states = run([100.0, 120.0, 140.0, 150.0])
    assert [state.workers for state in states] == [5, 6, 7, 7]
    assert [state.reason for state in states] == [Reason.SCALING] * 3 + [Reason.SETTLED]


def test_a_settled_pool_explores_after_a_while_or_when_the_rate_has_changed() -> None:
    settled = ThroughputState(workers=9, phase=Phase.SETTLED, rate=100.0)
    for rates in ([100.0] * POLICY.patience, [80.0], [120.0]):
        last = run(rates, settled)[-1]
        assert (last.reason, last.workers) == (Reason.EXPLORING, 8)


def test_it_comes_down_while_the_rate_holds() -> None:
    exploring = ThroughputState(workers=8, phase=Phase.DOWN, rate=100.0, reference=100.0)
    assert [state.workers for state in run([99.0, 98.0, 97.0], exploring)] == [7, 6, 5]


def test_it_goes_back_and_tries_more_when_the_rate_falls() -> None:
    exploring = ThroughputState(workers=8, phase=Phase.DOWN, rate=100.0, reference=100.0)
    (more,) = run([80.0], exploring)
    assert (more.workers, more.phase) == (10, Phase.UP)
    (scaling,) = run([120.0], more)
    assert (scaling.workers, scaling.reason) == (11, Reason.SCALING)
    (settled,) = run([101.0], more)
    assert (settled.workers, settled.reason) == (9, Reason.SETTLED)


def test_all_three_phases_are_seen_when_a_second_kind_of_job_begins() -> None:
    rising = [100.0 * 1.2**number for number in range(6)]
    states = run([*rising, *[rising[-1]] * 8, *[rising[-1] / 6] * 8])
    assert {state.reason for state in states} == {Reason.SCALING, Reason.SETTLED, Reason.EXPLORING}


def test_without_counters_or_calls_the_size_stays() -> None:
    state = ThroughputState(workers=9, phase=Phase.SETTLED, rate=100.0)
    quiet = Window(seconds=1.5, queued=0, running=0, completed=0, wall=0.0, cpu=0.0, bytes_rate=0.0)
    for window in (moved(None), quiet):
        after = POLICY.decide(LIMITS, state, window)
        assert (after.workers, after.reason) == (9, Reason.HOLD)
    assert POLICY.at_rest(LIMITS, state)


@given(st.lists(st.none() | st.floats(0.0, 1e12), max_size=40), st.integers(1, 80), st.integers(0, 100))
def test_the_size_keeps_to_its_bounds(rates: list[float | None], lowest: int, more: int) -> None:
    limits = Limits(lowest=lowest, highest=lowest + more)
    state: State = POLICY.start(limits)
    for rate in rates:
        state = POLICY.decide(limits, state, moved(rate))
        assert limits.lowest <= state.workers <= limits.highest
        assert state.workers <= max(64, lowest)
