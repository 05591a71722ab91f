"""A policy of the user's own: what is refused, and what becomes of one that fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Limits, Policy, Reason, State, Window
from hybridrt.control.checked import CheckedPolicy
from hybridrt.pool.state import Pool
from tests.control.windows import LIMITS, window
from tests.pool.support import Stage


class Steady(Policy):
    """Always the size it was made with."""

    def __init__(self, size: object = 3) -> None:
        self.size: Any = size

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        if isinstance(self.size, BaseException):
            raise self.size
        return State(workers=self.size, reason=Reason.HOLD)


@dataclass(frozen=True)
class Structural:
    """Has all of a policy and inherits nothing."""

    interval: float = 0.5
    governs: Literal["all", "waiting"] = "waiting"
    needs_moved: bool = False

    def start(self, limits: Limits) -> State:
        return State(workers=2)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        return state

    def at_rest(self, limits: Limits, state: State) -> bool:
        return True


def test_a_policy_that_inherits_needs_to_decide_only() -> None:
    policy = Steady()
    assert (policy.interval, policy.governs, policy.needs_moved) == (0.5, "all", False)
    assert policy.start(LIMITS).workers == LIMITS.lowest
    assert policy.at_rest(LIMITS, State(workers=1))
    assert not policy.at_rest(LIMITS, State(workers=2))


@pytest.mark.parametrize("policy", [Steady(), Structural()], ids=["inherits", "structural"])
def test_an_executor_takes_a_policy(policy: Policy) -> None:
    with AdaptiveThreadPoolExecutor(4, policy=policy) as executor:
        assert executor.submit(abs, -1).result() == 1
        statistics = executor.statistics()
    assert statistics.policy == type(policy).__name__
    assert (statistics.policy_error, statistics.policy_failures) == (None, 0)


class NoInterval(Structural):
    interval = "often"  # type: ignore[assignment]


class NoTime(Structural):
    interval = 0.0


class NoGoverned(Structural):
    governs = "most"  # type: ignore[assignment]


class BadStart(Steady):
    def start(self, limits: Limits) -> State:
        return 5  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "error", "text"),
    [
        (5, TypeError, "got 5 without start, decide, at_rest, interval, governs, needs_moved"),
        (None, TypeError, "got None without"),
        (Steady, TypeError, "got the class Steady; give an instance"),
        (NoInterval(), TypeError, "must be a number > 0, got 'often'"),
        (NoTime(interval=0.0), ValueError, "must be a number > 0, got 0.0"),
        (NoGoverned(), ValueError, "must be 'all' or 'waiting', got 'most'"),
        (BadStart(), TypeError, "start of a policy must return a hybridrt.State, got 5"),
    ],
)
def test_what_is_no_policy_is_refused_at_once(policy: Any, error: type[Exception], text: str) -> None:
    if isinstance(policy, NoInterval):
        object.__setattr__(policy, "interval", "often")
    if isinstance(policy, NoGoverned):
        object.__setattr__(policy, "governs", "most")
    with pytest.raises(error, match=text):
        AdaptiveThreadPoolExecutor(4, policy=policy)


@pytest.mark.parametrize("answer", [None, 2.5, True, LookupError("no idea")])
def test_a_policy_that_fails_leaves_the_size_and_says_so(answer: object) -> None:
    policy = Steady(answer)
    checked, state = CheckedPolicy(policy), State(workers=7)
    assert checked.decide(LIMITS, state, window()) is state
    assert checked.decide(LIMITS, state, window()) is state
    assert checked.failures == 2
    assert isinstance(checked.error, LookupError if isinstance(answer, LookupError) else TypeError)
    policy.size = 4
    assert checked.decide(LIMITS, state, window()).workers == 4
    assert checked.error is None
    assert checked.failures == 2


def test_want_of_memory_is_no_fault_of_the_policy() -> None:
    checked = CheckedPolicy(Steady(MemoryError()))
    with pytest.raises(MemoryError):
        checked.decide(LIMITS, State(workers=7), window())
    assert checked.failures == 0


def test_a_size_beyond_the_limits_is_brought_within_them() -> None:
    narrow = Limits(lowest=2, highest=8)
    for size, given in ((100, 8), (0, 2), (-5, 2), (5, 5)):
        state = CheckedPolicy(Steady(size)).decide(narrow, State(workers=3), window())
        assert (state.workers, state.reason) == (given, Reason.HOLD)


def test_a_policy_that_cannot_tell_whether_it_rests_lets_the_process_sleep() -> None:
    class Restless(Steady):
        def at_rest(self, limits: Limits, state: State) -> bool:
            raise LookupError("no idea")

    checked = CheckedPolicy(Restless())
    assert checked.at_rest(LIMITS, State(workers=3))
    assert checked.failures == 1


def test_a_failure_is_logged_once_and_the_statistics_have_it(caplog: pytest.LogCaptureFixture) -> None:
    policy = Steady(LookupError("no idea"))
    stage = Stage(lanes=False, options={"policy": CheckedPolicy(policy), "max_workers": 8})
    pool: Pool = stage.pool
    with caplog.at_level(logging.ERROR, "hybridrt"):
        for step in range(1, 4):
            pool.sizing.close_window(pool, step * 1_000_000_000 + pool.budget.clock.wall_ns())
            pool.sizing.tell_failure()
    (record,) = caplog.records
    assert record.getMessage() == "the policy Steady failed; the pool keeps its size"
    assert pool.sizing.state.workers == 1
