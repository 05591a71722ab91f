"""A lane that computes without the GIL: what tells it from one that fills the GIL, and what it may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybridrt.control.knee import DemandState, Trial
from hybridrt.control.window import Limits
from hybridrt.values import Reason

from .test_demand import POLICY, QUIET, crowded, decide, pressed
from .windows import run_policy

TWO_CORES = Limits(lowest=1, highest=256, capacity=1.0, cores=2.0)


@pytest.mark.parametrize(
    ("bounds", "peak", "refused"),
    [(TWO_CORES, 1.2, True), (TWO_CORES, 1.3, False), (replace(TWO_CORES, cores=1.0), 1.3, True)],
)
def test_a_lane_that_lately_got_more_cpu_than_one_gil_gives_does_not_crowd_it(
    bounds: Limits, peak: float, refused: bool
) -> None:
    after = decide(crowded(32, knee=5.0, gil_share=1.0), bounds=bounds, load=0.4, load_peak=peak)
    assert (after.reason is Reason.SATURATED) is refused


def test_what_a_peak_of_the_load_says_fades() -> None:
    state = DemandState(workers=32, load=1.6, load_peak=1.6, patience=4.0, peak=32)
    peaks = [after.load_peak for after in run_policy(POLICY, TWO_CORES, state, [QUIET] * 600)]
    assert peaks[0] == pytest.approx(1.6, rel=0.01)
    assert peaks[-1] == pytest.approx(0.8, rel=0.01)  # after 30 s


@pytest.mark.parametrize(
    ("used", "peak", "kept"),
    [
        (1.4, 1.4, 32),  # one core has room, and the GIL is not what they compute with
        (0.8, 0.8, 16),  # it is
        (1.8, 1.8, 16),  # the cores are full
    ],
)
def test_where_calls_compute_without_the_gil_and_a_core_has_room_a_small_gain_will_do(
    used: float, peak: float, kept: int
) -> None:
    """Twice the threads did a fifth more."""
    under_way = DemandState(
        workers=32, trial=Trial.MORE, before=16, trial_at=1.0, clock=3.0, best=200.0, best_used=used,
        load=used, load_peak=peak, time=1.6, done=384, busy=51.2, alone=0.06, alone_at=8, patience=4.0,
    )  # fmt: skip
    after = POLICY.decide(TWO_CORES, under_way, pressed(32, throughput=240.0, cpu=used))
    assert (after.trial, after.workers) == (Trial.NONE, kept)
