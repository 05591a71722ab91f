"""Sizing the waiting lane by demand: single decisions, and what holds for any windows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.knee import DemandState, Trial, staff
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

from .windows import LIMITS, limits, run_policy, windows

POLICY = DemandPolicy()
QUIET = Window(seconds=0.05, queued=0, running=0, completed=0, wall=0.0, cpu=0.0)


def pressed(
    workers: int,
    *,
    service: float = 0.05,
    throughput: float | None = None,
    queued: int = 100,
    cpu: float = 0.0,
) -> Window:
    """Return 50 ms in which `workers` calls ran all the time and others waited for a place."""
    rate = workers / service if throughput is None else throughput
    calls = round(rate * 0.05)
    wall = calls * workers / rate if rate else 0.0
    return Window(
        seconds=0.05,
        queued=queued,
        running=workers,
        completed=calls,
        wall=wall,
        cpu=min(wall, cpu * 0.05),
        busy=float(workers),
        lane_cpu=cpu,
    )


def full(workers: int) -> Window:
    """Return a window at whose end all places are taken and nothing has ended yet."""
    return pressed(workers, throughput=0.0)


def decide(window: Window, bounds: Limits = LIMITS, **known: object) -> DemandState:
    """Return the decision on a window at 32 workers, with what is known so far."""
    start = DemandState(workers=32, patience=4.0, began_at=1.0, grown_at=1.0, clock=9.0)
    return POLICY.decide(bounds, replace(start, **known), window)  # type: ignore[arg-type]


def after_all(bounds: Limits, seen: list[Window]) -> State:
    """Return the state after some windows, or the first one."""
    start = POLICY.start(bounds)
    return [start, *run_policy(POLICY, bounds, start, seen)][-1]


# ---------------------------------------------------------------------- start and growth


def test_it_starts_with_six() -> None:
    start = POLICY.start(LIMITS)
    assert (start.workers, start.reason) == (6, Reason.START)


@pytest.mark.parametrize(("lowest", "highest", "first"), [(1, 4, 4), (64, 256, 64), (1, 1, 1)])
def test_it_starts_within_the_bounds(lowest: int, highest: int, first: int) -> None:
    assert POLICY.start(Limits(lowest=lowest, highest=highest)).workers == first


def test_a_cold_pool_doubles_every_window_while_nothing_has_ended() -> None:
    state, sizes = POLICY.start(LIMITS), []
    for _ in range(5):
        state = POLICY.decide(LIMITS, state, full(state.workers))
        sizes.append((state.workers, state.reason))
    assert sizes == [*((size, Reason.STALL) for size in (12, 24, 48, 96, 192))]


def test_it_grows_at_once_to_the_knee_that_the_profiles_tell() -> None:
    after = decide(replace(pressed(32, queued=500), knee=120.0))
    assert (after.workers, after.reason) == (120, Reason.DEMAND)


def test_it_grows_by_no_more_than_the_calls_that_are_queued() -> None:
    assert decide(pressed(32, queued=3)).workers == 35


def test_it_does_not_grow_while_places_are_free() -> None:
    after = decide(Window(seconds=0.05, queued=5, running=31, completed=9, wall=0.4, cpu=0.0, busy=31.0))
    assert (after.workers, after.reason) == (32, Reason.HOLD)


def test_it_does_not_grow_beyond_the_maximum_and_says_so() -> None:
    after = decide(pressed(32), bounds=Limits(lowest=1, highest=32))
    assert (after.workers, after.reason) == (32, Reason.AT_MAX)


def test_a_growth_must_show_what_it_does_before_the_next_one() -> None:
    after = decide(pressed(32), quick=0.1, grown_at=8.99)
    assert (after.workers, after.reason) == (32, Reason.HYSTERESIS)


def test_when_every_call_blocks_it_doubles_although_a_knee_is_known() -> None:
    known = {"alone": 0.02, "alone_at": 8, "exact": True, "knee": 32, "retry_at": 99.0, "done_at": 8.9}
    after = decide(full(32), **known)
    assert (after.workers, after.reason) == (64, Reason.STALL)


# ---------------------------------------------------------------------- vetoes


def test_a_memory_budget_nearly_used_up_vetoes_growth() -> None:
    assert decide(replace(pressed(32), memory=0.89)).workers > 32
    after = decide(replace(pressed(32), memory=0.9))
    assert (after.workers, after.reason) == (32, Reason.MEMORY)


@pytest.mark.parametrize(
    ("bounds", "load", "gil_share", "refused"),
    [
        (Limits(lowest=1, highest=256, capacity=1.0, cores=2.0), 0.84, None, False),
        (Limits(lowest=1, highest=256, capacity=1.0, cores=2.0), 0.86, None, True),
        (Limits(lowest=1, highest=256, capacity=1.0, cores=2.0), 0.86, 0.1, False),
        (Limits(lowest=1, highest=256, capacity=1.0, cores=2.0), 1.75, 0.1, True),
        (Limits(lowest=1, highest=256, capacity=4.0, cores=4.0), 3.3, None, False),
        (Limits(lowest=1, highest=256, capacity=4.0, cores=4.0), 3.5, None, True),
    ],
)
def test_it_refuses_to_grow_when_the_lane_itself_fills_the_gil_or_the_cores(
    bounds: Limits, load: float, gil_share: float | None, refused: bool
) -> None:
    window = replace(pressed(32, cpu=load), gil_share=gil_share)
    after = decide(window, bounds=bounds, load=load)
    assert (after.reason is Reason.SATURATED) is refused
    assert (after.workers > 32) is not refused


def test_calls_that_hardly_block_are_refused_threads_however_long_the_queue() -> None:
    calls = replace(pressed(32, queued=1000, throughput=50.0), wall=1.0, cpu=0.9)
    after = decide(calls, raw=0.1, load=0.5)
    assert (after.workers, after.reason) == (32, Reason.BETA_VETO)


def test_a_certified_ratio_of_nothing_is_no_veto_while_the_lane_uses_no_cpu() -> None:
    """It is a lower bound: many short waits read 0 at a switch interval of 5 ms."""
    assert decide(replace(pressed(32, cpu=0.05), beta_certified=0.0)).workers > 32


def test_a_gil_that_others_keep_busy_does_not_starve_waiting_calls() -> None:
    """Pure waits of 50 ms beside an endless computing call, which has a permit of its own."""
    beside = {
        "gil_share": 1.0,
        "beta_certified": 0.9,
    }
    state = POLICY.start(LIMITS)
    for _ in range(20):
        window = replace(pressed(state.workers, cpu=0.01), **beside)  # type: ignore[arg-type]
        state = POLICY.decide(LIMITS, state, window)
    assert state.workers == 256


# ---------------------------------------------------------------------- trials


def test_at_a_full_disk_half_the_threads_are_tried_and_kept_if_throughput_holds() -> None:
    crowded = {"alone": 0.05, "alone_at": 8, "exact": True, "time": 2.0, "done": 320, "busy": 64.0}
    trial = decide(pressed(32, throughput=160.0), **crowded)
    assert (trial.trial, trial.reason) == (Trial.FEWER, Reason.PROBE)
    assert trial.workers < 20
    states = run_policy(POLICY, LIMITS, trial, [pressed(trial.workers, throughput=160.0)] * 40)
    kept = next(state for state in states if not state.trial)
    assert kept.workers == trial.workers


def test_threads_whose_loss_costs_throughput_come_back_with_those_that_their_time_calls_for() -> None:
    reading = {"alone": 0.02, "alone_at": 32, "time": 2.0, "done": 1280, "busy": 64.0, "rate": 640.0}
    trial = decide(pressed(32), knee=32, knee_throughput=640.0, tried=Trial.MORE, **reading)
    assert trial.trial is Trial.FEWER
    states = run_policy(POLICY, LIMITS, trial, [pressed(trial.workers)] * 40)
    back = next(state for state in states if not state.trial)
    assert (back.workers, back.reason) == (math.ceil(staff(640.0 * 0.05)), Reason.KNEE)


def test_a_knee_is_left_alone_until_it_may_be_doubted() -> None:
    known = {"alone": 0.05, "alone_at": 8, "exact": True, "knee": 32, "knee_throughput": 400.0}
    reading = {"time": 2.0, "done": 800, "busy": 64.0, "retry_at": 20.0, "rate": 400.0}
    after = decide(pressed(32, throughput=400.0), **known, **reading)
    assert (after.workers, after.reason) == (32, Reason.KNEE)


def test_a_throughput_that_has_become_another_ends_a_knee() -> None:
    known = {"alone": 0.05, "alone_at": 8, "exact": True, "knee": 32, "knee_throughput": 400.0}
    reading = {"time": 2.0, "done": 800, "busy": 64.0, "retry_at": 99.0, "rate": 100.0, "pressed": 2.0}
    assert decide(pressed(32, throughput=100.0), **known, **reading).knee != 32


# ---------------------------------------------------------------------- quiet


def test_a_peak_is_held_for_some_seconds_and_then_forgotten() -> None:
    busy = replace(QUIET, running=40, busy=40.0)
    held = DemandState(workers=64, patience=4.0, peak=64)
    states = run_policy(POLICY, LIMITS, held, [busy] * 20 + [QUIET] * 300)
    down = [(round(state.clock), state.workers) for state in states if state.reason is Reason.NO_DEMAND]
    assert down == [(10, 6)]


@pytest.mark.parametrize(("workers", "kept"), [(45, 45), (60, 40)])
def test_the_size_comes_down_to_the_peak_if_it_is_clearly_lower(workers: int, kept: int) -> None:
    """By its square root: so much higher the next peak may be, and the size would go up and down."""
    busy = replace(QUIET, running=40, busy=40.0)
    held = DemandState(workers=workers, patience=4.0, peak=40)
    assert run_policy(POLICY, LIMITS, held, [busy] * 300)[-1].workers == kept


def test_a_knee_below_the_start_is_remembered_over_a_quiet_time() -> None:
    known = DemandState(workers=5, knee=5, alone=0.05, alone_at=5, exact=True, retry_at=60.0, patience=4.0)
    quiet = run_policy(POLICY, LIMITS, known, [QUIET] * 400)[-1]
    assert (quiet.workers, quiet.knee) == (5, 5)
    assert POLICY.at_rest(LIMITS, quiet)


def test_a_knee_above_the_start_is_reached_again_in_one_step() -> None:
    known = DemandState(workers=16, knee=90, alone=0.05, alone_at=90, exact=True, clock=9.0, patience=4.0)
    after = POLICY.decide(LIMITS, known, pressed(16, queued=500))
    assert (after.workers, after.reason) == (90, Reason.DEMAND)


def test_a_state_of_another_policy_is_taken_over_with_its_size() -> None:
    assert POLICY.decide(LIMITS, State(workers=40), QUIET).workers == 40


def test_it_reports_the_corrected_beta_where_there_is_one_and_the_raw_one_elsewhere() -> None:
    raw = replace(pressed(32), wall=1.0, cpu=0.25)
    assert decide(raw).beta == pytest.approx(0.75)
    calls = replace(raw, beta_certified=0.5, wall=1.0, cpu=0.25, completed=20)
    assert decide(calls, alone=0.02, alone_at=4).beta == pytest.approx(0.5)


# ---------------------------------------------------------------------- for any windows

states = st.lists(windows, max_size=30)
any_windows = settings(max_examples=40, deadline=None)


@any_windows
@given(limits(), states)
def test_the_size_stays_within_the_bounds(bounds: Limits, seen: list[Window]) -> None:
    for state in run_policy(POLICY, bounds, POLICY.start(bounds), seen):
        assert bounds.lowest <= state.workers <= bounds.highest


@any_windows
@given(limits(), states)
def test_it_grows_only_for_a_queue_or_to_undo_an_experiment(bounds: Limits, seen: list[Window]) -> None:
    before = POLICY.start(bounds)
    for window, after in zip(seen, run_policy(POLICY, bounds, before, seen), strict=True):
        if after.workers > before.workers:
            assert window.queued or before.trial is Trial.FEWER
            assert after.workers <= max(2 * before.workers, before.workers + window.queued, 2 * before.before)
        before = after


@any_windows
@given(limits(), states, windows)
def test_a_full_gil_never_grows_the_pool(bounds: Limits, seen: list[Window], last: Window) -> None:
    bounds = replace(bounds, cores=bounds.capacity)
    states = run_policy(POLICY, bounds, POLICY.start(bounds), [*seen, *[last] * 20])
    grown = [b.workers > a.workers for a, b in zip(states[-10:], states[-9:], strict=False) if not a.trial]
    assert last.lane_cpu < 0.9 * bounds.capacity or not any(grown)


@any_windows
@given(limits(), states, windows)
def test_a_full_memory_never_grows_the_pool_but_to_undo_an_experiment(
    bounds: Limits, seen: list[Window], last: Window
) -> None:
    before = after_all(bounds, seen)
    after = POLICY.decide(bounds, before, replace(last, memory=0.95))
    assert after.workers <= before.workers or before.trial is Trial.FEWER


@any_windows
@given(limits(), states)
def test_without_calls_every_size_comes_to_rest(bounds: Limits, seen: list[Window]) -> None:
    before = after_all(bounds, seen)
    quiet = run_policy(POLICY, bounds, before, [replace(QUIET, seconds=0.5)] * 100)
    assert POLICY.at_rest(bounds, quiet[-1])
    assert quiet[-1].workers == quiet[-2].workers


@settings(max_examples=10, deadline=None)
@given(limits(), st.integers(1, 16), st.floats(0.0, 0.2))
def test_while_all_calls_block_the_size_doubles_until_all_that_are_queued_run(
    bounds: Limits, service: int, noise: float
) -> None:
    """Nested submissions: all threads wait for calls that are queued behind them."""
    state: State = POLICY.start(bounds)
    state = run_policy(POLICY, bounds, state, [pressed(state.workers, service=service / 100 + noise)] * 10)[
        -1
    ]
    for _ in range(200):
        state = POLICY.decide(bounds, state, full(state.workers))
    assert state.workers == bounds.highest


@any_windows
@given(limits(), states, windows)
def test_the_same_input_gives_the_same_output(bounds: Limits, seen: list[Window], last: Window) -> None:
    before = after_all(bounds, seen)
    assert POLICY.decide(bounds, before, last) == DemandPolicy().decide(bounds, before, last)


@any_windows
@given(states)
def test_what_it_remembers_are_plain_numbers(seen: list[Window]) -> None:
    for state in run_policy(POLICY, LIMITS, POLICY.start(LIMITS), seen):
        assert all(
            isinstance(getattr(state, name), int | float | str | None) for name in state.__dataclass_fields__
        )
        assert all(
            math.isfinite(value)
            for name in state.__dataclass_fields__
            if isinstance(value := getattr(state, name), float)
        )


@any_windows
@given(st.floats(0.1, 1e4))
def test_staffing_is_a_little_above_the_offered_load(erlangs: float) -> None:
    assert erlangs < staff(erlangs) <= erlangs + 2.0 * math.sqrt(erlangs)


# ---------------------------------------------------------------------- what the profiles say


def crowded(workers: int, knee: float, gil_share: float) -> Window:
    """Return a window of calls held back by the size, beside which the GIL was taken so often."""
    return replace(pressed(workers, cpu=0.4), knee=knee, gil_share=gil_share)


def test_calls_beyond_their_knee_that_always_take_the_gil_refuse_growth_whatever_cpu_they_get() -> None:
    """Other processes have the cores, so the lane uses little CPU though it fills the GIL."""
    state = POLICY.decide(LIMITS, POLICY.start(LIMITS), crowded(6, knee=2.0, gil_share=1.0))
    assert (state.workers, state.reason) == (6, Reason.SATURATED)


@pytest.mark.parametrize(
    ("lateness", "workers", "load", "gil_share", "refused"),
    [
        pytest.param(1.1, 32, 0.6, 0.7, True, id="the loop is late"),
        pytest.param(1.0, 32, 0.6, 0.7, False, id="the loop keeps its target"),
        pytest.param(None, 32, 0.6, 0.7, False, id="no loop is measured"),
        pytest.param(9.0, 12, 0.6, 0.7, False, id="fewer calls than fill the GIL"),
        pytest.param(9.0, 32, 0.4, 0.7, False, id="others make the loop late"),
        pytest.param(9.0, 32, 0.6, 0.1, False, id="calls leave the GIL"),
        pytest.param(9.0, 32, 0.6, None, False, id="nothing is known of the GIL"),
    ],
)
def test_a_late_loop_refuses_growth_to_as_many_calls_as_fill_the_gil_whatever_beta_says(
    lateness: float | None, workers: int, load: float, gil_share: float | None, refused: bool
) -> None:
    bounds = replace(LIMITS, cores=2.0)
    window = replace(pressed(workers, cpu=load), knee=10.0, gil_share=gil_share, loop_lateness=lateness)
    gil = -1.0 if gil_share is None else gil_share
    after = decide(window, bounds=bounds, workers=workers, load=load, raw=0.95, certified=0.9, gil=gil)
    assert (after.reason is Reason.LOOP_DELAY) is refused
    assert not refused or after.workers <= workers


def test_too_many_calls_beside_a_late_loop_are_tried_to_be_fewer() -> None:
    """The size found is 10; 32 threads do no more calls than that, and the loop waits behind them."""
    window = replace(pressed(32, cpu=0.6, throughput=200.0), knee=10.0, gil_share=0.7, loop_lateness=3.0)
    reading = {"time": 2.0, "done": 400, "busy": 64.0, "alone": 0.05, "alone_at": 6, "exact": True}
    after = decide(window, bounds=replace(LIMITS, cores=2.0), load=0.6, gil=0.7, **reading)
    assert after.workers < 32
    assert after.reason is Reason.PROBE


def test_a_gil_that_computing_calls_beside_the_lane_keep_busy_holds_back_no_call_that_waits() -> None:
    state = POLICY.decide(LIMITS, POLICY.start(LIMITS), crowded(6, knee=900.0, gil_share=1.0))
    assert state.workers > 6


@given(st.floats(2.0, 60.0), st.integers(1, 40))
def test_demand_alone_does_not_go_far_beyond_the_knee_of_the_profiles(knee: float, steps: int) -> None:
    state: State = POLICY.start(LIMITS)
    for _ in range(steps):
        before, state = state, POLICY.decide(LIMITS, state, crowded(state.workers, knee, 0.1))
        if state.reason is Reason.DEMAND and state.workers > before.workers:
            assert state.workers <= math.ceil(1.25 * staff(knee))


def test_calls_that_compute_are_not_stalled_however_long_none_of_them_ends() -> None:
    state: State = POLICY.start(LIMITS)
    for _ in range(10):
        state = POLICY.decide(LIMITS, state, replace(full(state.workers), lane_cpu=0.5))
        assert state.reason is not Reason.STALL


def test_a_lane_that_gets_more_cpu_than_one_gil_has_is_not_held_back_by_it() -> None:
    """Where nobody can tell of the GIL: four cores, and the lane keeps two and a half of them busy."""
    bounds = replace(LIMITS, cores=4.0)
    window = replace(pressed(16, cpu=2.5), knee=10.0)
    state: State = POLICY.start(bounds)
    for _ in range(20):
        state = POLICY.decide(bounds, state, window)
        assert state.reason is not Reason.SATURATED
