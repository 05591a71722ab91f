"""What ends an experiment with the size, and what does not make the law doubt what it has found."""

from __future__ import annotations

import pytest

from hybridrt.control.knee import DemandState, Trial
from hybridrt.control.window import Window

from .test_demand import POLICY, decide, pressed
from .windows import LIMITS, run_policy


def test_more_threads_are_measured_against_what_their_own_size_did_not_against_a_better_time_before() -> None:
    """After an experiment that wrongly kept fewer threads, the way back must not be barred by it."""
    known = {"alone": 0.02, "alone_at": 32, "exact": True, "knee": 32, "depth": 1, "best": 2000.0}
    reading = {"time": 2.0, "done": 3200, "busy": 64.0, "rate": 1600.0}
    trial = decide(pressed(32), **known, **reading)
    assert trial.trial is Trial.MORE
    assert trial.best == pytest.approx(1600.0, rel=0.05)


@pytest.mark.parametrize(
    ("trial", "rate", "kept"),
    [(Trial.MORE, 300.0, 48), (Trial.MORE, 700.0, 64), (Trial.FEWER, 300.0, 64)],
)
def test_an_experiment_whose_backlog_goes_away_adds_threads_only_if_the_size_before_was_too_small(
    trial: Trial, rate: float, kept: int
) -> None:
    under_way = DemandState(
        workers=64, trial=trial, before=48, trial_at=1.0, clock=9.0, best=600.0, rate=rate, patience=4.0
    )
    calls = round(rate * 0.05)
    idle = Window(seconds=0.05, queued=0, running=9, completed=calls, wall=1.0, cpu=0.0, busy=9.0)
    after = POLICY.decide(LIMITS, under_way, idle)
    assert (after.trial, after.workers) == (Trial.NONE, kept)


@pytest.mark.parametrize(("queued", "size"), [(3, 67), (16, 80), (1000, 96)])
def test_no_more_threads_are_tried_than_calls_are_there_for_them(queued: int, size: int) -> None:
    known = {"alone": 0.05, "alone_at": 64, "knee": 64, "patience": 4.0, "clock": 9.0}
    reading = {"time": 2.0, "done": 2560, "busy": 128.0, "rate": 1280.0, "quick": 0.05}
    trial = decide(pressed(64, queued=queued), workers=64, **known, **reading)
    assert (trial.trial, trial.workers) == (Trial.MORE, size)


@pytest.mark.parametrize(("rate", "kept"), [(600.0, 48), (750.0, 60)])
def test_more_threads_are_judged_by_as_many_as_run_though_no_call_is_left_queued(
    rate: float, kept: int
) -> None:
    """While results are on their way to their callers, a size for all calls leaves nothing queued.

    If it did more, the size comes down to those that run.
    """
    under_way = DemandState(
        workers=80, trial=Trial.MORE, before=48, trial_at=9.0, clock=9.0, best=600.0, rate=600.0, patience=4.0
    )
    calls = round(rate * 0.05)
    all_run = Window(seconds=0.05, queued=0, running=60, completed=calls, wall=1.0, cpu=0.0, busy=60.0)
    states = run_policy(POLICY, LIMITS, under_way, [all_run] * 20)
    assert {(state.trial, state.workers) for state in states[9:]} == {(Trial.NONE, kept)}


@pytest.mark.parametrize(("share", "exact"), [(0.7, True), (0.85, False)])
def test_a_third_of_the_threads_left_off_tells_whether_calls_hold_each_other_up(
    share: float, exact: bool
) -> None:
    """Where throughput falls by as much as threads were left off, nobody had waited for another."""
    under_way = DemandState(
        workers=70, trial=Trial.FEWER, before=100, trial_at=8.0, clock=9.0, best=2000.0, rate=2000.0,
        alone=0.05, alone_at=100, quick=0.05, patience=4.0,
    )  # fmt: skip
    rejected = POLICY.decide(LIMITS, under_way, pressed(70, throughput=2000.0 * share))
    for _ in range(40):
        if not rejected.trial:
            break
        rejected = POLICY.decide(LIMITS, rejected, pressed(70, throughput=2000.0 * share))
    assert (rejected.trial, rejected.exact) == (Trial.NONE, exact)


def test_a_knee_is_not_doubted_while_the_rate_comes_up_after_a_quiet_time() -> None:
    known = DemandState(
        workers=32, knee=32, knee_throughput=640.0, alone=0.05, alone_at=8, exact=True, retry_at=99.0,
        time=2.0, done=1280, busy=64.0, quick=0.05, clock=60.0, patience=4.0,
    )  # fmt: skip
    states = run_policy(POLICY, LIMITS, known, [pressed(32)] * 25)
    assert {(state.workers, state.knee) for state in states} == {(32, 32)}


@pytest.mark.parametrize(("done", "knee", "alone"), [(9, 0, 2.2), (30, 16, 0.01)])
def test_a_knee_is_forgotten_if_the_few_calls_of_fewer_threads_take_no_less_time(
    done: int, knee: int, alone: float
) -> None:
    """Calls that took 10 ms and filled a server now take 2 s: a quarter of the threads does a quarter."""
    under_way = DemandState(
        workers=4, trial=Trial.FEWER, before=16, trial_at=7.0, clock=12.0, best=9.3, rate=9.3, time=4.98,
        done=done, busy=19.8, quick=2.2, alone=0.01, alone_at=4, least=0.01, least_at=4, knee=16, exact=True,
        patience=128.0,
    )  # fmt: skip
    after = POLICY.decide(LIMITS, under_way, pressed(4, throughput=0.0))
    assert (after.trial, after.workers, after.knee, after.alone) == (Trial.NONE, 16, knee, alone)


@pytest.mark.parametrize(("ago", "best"), [(5.0, 3920.0), (3600.0, 2000.0)])
def test_fewer_threads_are_measured_against_a_better_rate_before_only_if_that_is_recent(
    ago: float, best: float
) -> None:
    chain = {"depth": 1, "best": 4000.0, "trial_at": 5000.0 - ago, "clock": 5000.0}
    known = {"alone": 0.005, "alone_at": 32, "exact": True, **chain}
    reading = {"time": 2.0, "done": 4000, "busy": 64.0, "rate": 2000.0}
    trial = decide(pressed(32, throughput=2000.0), **known, **reading)
    assert (trial.trial, trial.best) == (Trial.FEWER, pytest.approx(best))
