"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.executor.budget import GovernedBudget, shared
from hybridrt.pool.shutdown import close
from hybridrt.pool.state import Pool

from .support import Meeting, Stage, make_pool

Make = Callable[..., AdaptiveThreadPoolExecutor]
MakePool = Callable[..., Pool]


@pytest.fixture
def stage() -> Stage:
    """A pool played by hand, under a GIL, with two cores."""
    return Stage()


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    """A meeting that is over when the test ends, however it ends."""
    meeting = Meeting()
    yield meeting
    meeting.end()


@pytest.fixture
def make(meeting: Meeting) -> Iterator[Make]:
    """Makes executors that are shut down after the test, the meeting being over."""
    made: list[AdaptiveThreadPoolExecutor] = []

    def build(*args: Any, **options: Any) -> AdaptiveThreadPoolExecutor:
        made.append(AdaptiveThreadPoolExecutor(*args, **options))
        return made[-1]

    yield build
    meeting.end()
    for executor in made:
        executor.shutdown(wait=True, cancel_futures=True)
    assert shared.permits.held == [0, 0, 0, 0], "expected every permit back, NONE, SHORT, LONG, FREE"
    assert not shared.permits.lifted


@pytest.fixture
def private(meeting: Meeting) -> Iterator[GovernedBudget]:
    """An interpreter's budget of the test's own, with real clocks and threads."""
    budget = GovernedBudget()
    yield budget
    meeting.end()
    for pool in list(budget.pools):
        close(pool, RuntimeError, cancel_queued=True)
        for thread in list(pool.roster.threads):
            thread.join()
    budget.governor.stop()


@pytest.fixture
def make_private(private: GovernedBudget) -> MakePool:
    """Makes pools with real threads under the private budget."""

    def build(**options: Any) -> Pool:
        return make_pool(private, **options)

    return build
