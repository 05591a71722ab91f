"""Shutting down with calls on their way through lanes, gates and permits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Kind
from hybridrt.errors import RuntimeClosedError
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.roster import dismisses, may_leave, when_empty
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.state import ASSIGNED, CANCELLED

from .conftest import Make
from .support import DEADLINE, Meeting, Stage, compute, named, until


class ShuttingDown:
    """A thread that shuts an executor down and says when it has come back."""

    def __init__(self, executor: AdaptiveThreadPoolExecutor) -> None:
        self._executor = executor
        self.back = threading.Event()
        self.thread = threading.Thread(target=self._run, name="shutting-down")
        self.thread.start()

    def _run(self) -> None:
        self._executor.shutdown(wait=True)
        self.back.set()


def test_shutdown_waits_for_calls_on_threads_that_were_hired_after_it_began(
    make: Make, meeting: Meeting
) -> None:
    """An unknown function starts in cohorts: the shutdown finds one thread and twenty calls."""
    executor = make()
    first_gate = Meeting()
    try:
        first = executor.submit(lambda: first_gate())
        first_gate.wait_for(1)
        others = [executor.submit(meeting, number) for number in range(20)]
        worker = next(iter(executor._threads))
        shutting = ShuttingDown(executor)
        meeting.wait_for(20)
    finally:
        first_gate.end()
    first.result(DEADLINE)
    worker.join(DEADLINE)
    assert not shutting.back.wait(0.05)
    assert not any(future.done() for future in others)
    meeting.end()
    shutting.thread.join(DEADLINE)
    assert [future.result(0) for future in others] == list(range(20))


def test_shutdown_waits_for_calls_that_have_no_worker_yet(make: Make) -> None:
    """Another executor holds all permits, so none was hired."""
    stop = threading.Event()

    def long() -> None:
        while not stop.is_set():
            compute(0.001)

    def short() -> None:
        while not stop.is_set():
            compute(0.0005)

    holder, executor = make(), make()
    holders: list[Future[Any]] = [holder.submit(long)]
    until(lambda: {row.kind for row in running_kinds(holder)} == {Kind.LONG}, "the first call is long")
    holders.append(holder.submit(short))
    until(lambda: len(holder.statistics().running) == 2, "both run")
    waiting = executor.submit(compute, 0.001)
    shutting = ShuttingDown(executor)
    came_back_early = shutting.back.wait(0.05) and not waiting.done()
    stop.set()
    shutting.thread.join(DEADLINE)
    assert not came_back_early
    assert waiting.result(0) == 0.001
    for future in holders:
        future.result(DEADLINE)


def running_kinds(executor: AdaptiveThreadPoolExecutor) -> list[Any]:
    """Return the profiles of the functions that run."""
    return [worker.call.profile for worker in tuple(executor._pool.roster.workers) if worker.call is not None]


def test_a_worker_that_shuts_its_own_executor_down_and_waits_is_told_that_it_cannot(make: Make) -> None:
    executor = make()
    error = executor.submit(executor.shutdown).exception(DEADLINE)
    assert isinstance(error, RuntimeError)
    assert "cannot join current thread" in str(error)
    executor.shutdown()


def test_whoever_waits_for_an_empty_pool_hears_of_a_cancel_of_its_last_call(stage: Stage) -> None:
    other = stage.add_pool()
    holders = [stage.push(stage.learn(Kind.LONG)), stage.push(stage.learn(Kind.SHORT))]
    queued = stage.push(stage.learn(Kind.LONG, pool=other), pool=other)
    told: list[str] = []
    close(other, closed_error, cancel_queued=False)
    when_empty(other, lambda: told.append("empty"))
    assert told == []
    assert queued.cancel()
    assert told == ["empty"]
    for call in holders:
        stage.end(call)


def test_a_closed_pool_refuses_calls_with_the_error_of_its_owner(stage: Stage) -> None:
    close(stage.pool, closed_error, cancel_queued=False)
    with pytest.raises(RuntimeClosedError, match="the runtime is closed"):
        stage.push(named("late"))
    close(stage.pool, lambda: ValueError("second"), cancel_queued=False)
    with pytest.raises(RuntimeClosedError):
        stage.push(named("later"))
    assert stage.pool.tally.submitted == 0


def test_closing_cancels_calls_wherever_they_are_queued() -> None:
    stage = Stage(options={"queue_max": 4})
    holders = [stage.push(stage.learn(Kind.LONG)), stage.push(stage.learn(Kind.SHORT))]
    limiter = Limiter(1, "limiter")
    inside = stage.push(stage.learn(Kind.WAITING), limiters=(limiter,))
    queued = [
        stage.push(stage.learn(Kind.WAITING), limiters=(limiter,)),
        stage.push(stage.learn(Kind.LONG)),
        stage.push(stage.learn(Kind.SHORT)),
        stage.push(named("unknown")),
        stage.push(stage.learn(Kind.WAITING), patient=True),
        stage.push(stage.learn(Kind.LONG), patient=True),
    ]
    dropped = close(stage.pool, closed_error, cancel_queued=True)
    assert set(dropped) == set(queued)
    assert all(call.cancelled() and call.state == CANCELLED for call in queued)
    assert all(call.fn is None and call.args == () for call in queued)
    assert (stage.pool.queued, len(stage.pool.backlog), len(stage.pool.at_limiters)) == (0, 0, 0)
    assert stage.pool.tally.cancelled == 6
    for call in [*holders, inside]:
        stage.end(call)
    assert (limiter.active, list(limiter.waiting)) == (0, [])
    assert stage.permits.held == [0, 0, 0, 0]


def test_closing_without_cancelling_runs_what_is_queued_and_lets_the_workers_go(stage: Stage) -> None:
    calls = stage.push_many(3, stage.learn(Kind.LONG))
    close(stage.pool, closed_error, cancel_queued=False)
    for call in calls:
        assert stage.running() == [call]
        stage.end(call)
    (worker,) = stage.pool.roster.workers
    assert not worker.wakeup.empty()  # rung to leave
    assert dismisses(stage.pool)
    assert may_leave(stage.pool, worker, timed_out=False)


def test_a_call_cancelled_by_a_close_lets_the_next_through_its_gate_in_another_pool(stage: Stage) -> None:
    """It had passed one gate and was queued behind the second."""
    other = stage.add_pool()
    first_gate, second_gate = Limiter(1, "first"), Limiter(1, "second")
    waiting = stage.learn(Kind.WAITING)
    holder = stage.push(waiting, limiters=(second_gate,))
    between = stage.push(waiting, limiters=(first_gate, second_gate))
    behind = stage.push(stage.learn(Kind.WAITING, pool=other), pool=other, limiters=(first_gate,))
    assert stage.running() == [holder]
    close(stage.pool, closed_error, cancel_queued=True)
    assert between.cancelled()
    assert stage.running() == [holder, behind]
    stage.end(behind)
    stage.end(holder)
    assert (first_gate.active, second_gate.active) == (0, 0)


@pytest.mark.parametrize("too", [False, True])
def test_what_a_worker_was_given_is_cancelled_only_if_that_is_asked_for(stage: Stage, too: bool) -> None:
    fn = stage.learn(Kind.WAITING)
    stage.end(stage.push(fn))  # from now on a worker is parked
    given = stage.push(fn, late=True)
    assert given.state == ASSIGNED
    assert close(stage.pool, closed_error, cancel_queued=True, cancel_given=too) == [given] * too
    stage.work()
    assert (given.cancelled(), stage.pool.busy) == (too, int(not too))
