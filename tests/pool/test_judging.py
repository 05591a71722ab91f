"""Which running calls the governor takes for waiting ones, by what their threads do between its looks.

Played by hand: the test moves the clock, says who computes, and lets the governor step.
"""

from __future__ import annotations

import pytest

from hybridrt.pool.permits import NONE, SHORT
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
