"""Which running calls the governor takes for waiting ones, by what their threads do between its looks.

Played by hand: the test moves the clock, says who computes, and lets the governor step.
"""

from __future__ import annotations

import pytest

from hybridrt.observe.functions import SETTLED
from hybridrt.pool.permits import LONG, NONE, SHORT
from hybridrt.pool.phases import leave
from hybridrt.pool.state import Call
from hybridrt.values import Kind

from .support import MS, Stage


def compute_a_little(stage: Stage, call: Call, share: float, *, prompt: bool = True, times: int = 1) -> None:
    """Let a call compute for a part of the time from look to look."""
    for _ in range(times):
        stage.compute(call)
        stage.clock.advance(share * 4 * MS)
        stage.wait(call)
        stage.step((1.0 - share) * 4 * MS, prompt=prompt)


def test_a_call_that_waits_again_and_again_for_a_moment_hands_its_permit_to_the_next(stage: Stage) -> None:
    """As one that polls each millisecond, or asks a database a thousand times."""
    first, second = stage.push_many(2, stage.learn(Kind.SHORT))
    compute_a_little(stage, first, 0.1, times=8)
    assert stage.worker_of(first).permit == NONE
    assert stage.running() == [first, second]


@pytest.mark.parametrize(("share", "prompt"), [(0.3, True), (0.1, False)])
def test_one_that_computes_for_more_of_the_time_or_may_lack_the_gil_keeps_it(
    stage: Stage, share: float, prompt: bool
) -> None:
    first, _ = stage.push_many(2, stage.learn(Kind.SHORT))
    compute_a_little(stage, first, share, prompt=prompt, times=10)
    assert stage.worker_of(first).permit == SHORT
    assert stage.running() == [first]


def test_a_call_that_gets_a_core_while_it_is_judged_keeps_its_permit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps by then, because it wants the GIL, which the governor has."""
    first, _ = stage.push_many(2, stage.learn(Kind.LONG))
    probe = stage.probe_of(first)

    def gets_a_core() -> bool:
        probe._cpu_ns += 5_000
        return False

    monkeypatch.setattr(probe, "is_runnable", gets_a_core)
    stage.step(4 * MS, times=8)
    assert stage.worker_of(first).permit == LONG
    assert stage.running() == [first]


def test_a_call_that_gets_a_core_only_while_the_governor_has_the_gil_keeps_its_permit(stage: Stage) -> None:
    """It asks for the GIL, which takes some microseconds, and sleeps; when it is free there is no core."""
    first, _ = stage.push_many(2, stage.learn(Kind.LONG))
    for _ in range(3):
        stage.probe_of(first)._cpu_ns += 10_000
        stage.step(4 * MS)
    assert stage.worker_of(first).permit == LONG
    stage.step(4 * MS)  # a call that waits uses no CPU time at all
    assert stage.worker_of(first).permit == NONE


def test_where_threads_have_no_clock_a_call_in_a_process_that_computes_keeps_its_permit(stage: Stage) -> None:
    """Steps of the governor come more often than looks at a call that is known to take its time."""
    fn = stage.learn(Kind.LONG, usual=0.05)
    stage.pool.profiles.of(fn).settled = SETTLED
    first, _ = stage.push_many(2, fn)
    stage.probe_of(first).has_clock = False
    for _ in range(20):
        stage.clock.advance(2 * MS)
        stage.budget.governor.step(stage.clock.now_ns, stage.clock.now_ns, prompt=False)
    assert stage.worker_of(first).permit == LONG
    assert stage.running() == [first]


def test_what_a_call_computed_before_it_said_that_it_waits_brings_it_no_permit(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.SHORT))
    worker = stage.worker_of(first)
    stage.compute(first)
    stage.step(4 * MS)
    stage.clock.advance(3 * MS)
    stage.wait(first)
    leave(worker, first, stage.probe_of(first).cpu_ns())
    assert stage.running() == [first, second]
    for _ in range(12):
        stage.step(1 * MS)
        assert worker.permit == NONE
    stage.compute(first)  # one that computes all the same takes a permit
    stage.step(4 * MS, times=4)
    assert worker.permit != NONE
