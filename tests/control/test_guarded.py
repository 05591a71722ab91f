"""A policy of the user's own: checked when it comes, kept within the limits, asked no more when it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybridrt.control.guarded import GuardedPolicy, check_policy
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

LIMITS = Limits(lowest=2, highest=10)
BUSY = Window(seconds=1.0, queued=3, running=2, completed=5, wall=1.0, cpu=0.5)
QUIET = Window(seconds=1.0, queued=0, running=0, completed=0, wall=0.0, cpu=0.0)


class Steps:
    """Returns or raises what it was given, in turn."""

    interval = 0.5

    def __init__(self, *steps: Any) -> None:
        self.steps, self.asked = list(steps), 0

    def start(self, limits: Limits) -> State:
        return State(workers=1)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        self.asked += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return replace(state, workers=step) if isinstance(step, int) else step


def test_its_size_is_kept_within_the_limits() -> None:
    law = GuardedPolicy(Steps(99, 0))
    first = law.start(LIMITS)
    assert first.workers == 2
    assert law.decide(LIMITS, first, BUSY).workers == 10
    assert law.decide(LIMITS, first, BUSY).workers == 2


@pytest.mark.parametrize("wrong", [ValueError("no idea"), None, 3.5, State(workers="four")])  # type: ignore[arg-type]
def test_one_that_fails_leaves_the_size_and_is_asked_no_more(wrong: Any) -> None:
    policy = Steps(7, wrong)
    law = GuardedPolicy(policy)
    state = law.decide(LIMITS, law.start(LIMITS), BUSY)
    for _ in range(3):
        state = law.decide(LIMITS, state, BUSY)
        assert (state.workers, state.reason) == (7, Reason.POLICY_ERROR)
    assert policy.asked == 2
    assert law.error is not None
    assert law.at_rest(LIMITS, state)


def test_it_rests_when_a_window_without_calls_left_its_size() -> None:
    law = GuardedPolicy(Steps(7, 5, 5, 5))
    state = law.start(LIMITS)
    rests = []
    for window in (BUSY, QUIET, QUIET, BUSY):
        state = law.decide(LIMITS, state, window)
        rests.append(law.at_rest(LIMITS, state))
    assert rests == [False, False, True, False]


@pytest.mark.parametrize(
    ("attributes", "error", "says"),
    [
        ({"interval": None}, TypeError, "in seconds and must be a number, got None"),
        ({"interval": 0.0}, ValueError, "must be above 0, got 0.0"),
        ({"interval": float("inf")}, ValueError, "must be above 0, got inf"),
        ({"governs": "some"}, ValueError, '"waiting" or "all", got \'some\''),
    ],
)
def test_a_policy_with_wrong_attributes_is_refused(
    attributes: dict[str, Any], error: type[Exception], says: str
) -> None:
    policy = Steps()
    for name, value in attributes.items():
        setattr(policy, name, value)
    with pytest.raises(error, match=says):
        check_policy(policy)


def test_what_is_no_policy_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(TypeError, match="which has no interval, no start, no decide"):
        check_policy(object())
    with pytest.raises(TypeError, match="got the class"):
        check_policy(Steps)
