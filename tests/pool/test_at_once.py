"""Calls that go to a parked worker without a detour through the queue, and leave without a look at it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

import pytest

from hybridrt.pool.limiters import Limiter
from hybridrt.pool.permits import NONE, SHORT
from hybridrt.pool.roster import add_worker, all_threads
from hybridrt.pool.scheduler import finish_and_begin_next, requeue_locked
from hybridrt.pool.state import ASSIGNED, DONE, QUEUED, RUNNING
from hybridrt.values import Kind

from .support import DEADLINE, MS, Stage, make_call, make_pool, until


@pytest.fixture
def parked(stage: Stage) -> Stage:
    """A pool with two parked workers."""
    for call in stage.push_many(2, stage.learn(Kind.WAITING, "first")):
        stage.end(call)
    assert len(stage.pool.roster.idle) == 2
    return stage


def test_a_call_that_waits_goes_to_a_parked_worker_and_counts_as_waiting(parked: Stage) -> None:
    pool = parked.pool
    call = parked.push(parked.learn(Kind.WAITING), late=True)
    assert (call.state, pool.queued, pool.busy, pool.waiting) == (ASSIGNED, 0, 1, 1)
    assert not parked.permits.computing
    parked.end(call)
    assert (call.state, pool.busy, pool.waiting, len(pool.roster.idle)) == (DONE, 0, 0, 2)


def test_no_more_calls_wait_at_once_than_the_size_allows(parked: Stage) -> None:
    pool, fn = parked.pool, parked.learn(Kind.WAITING)
    pool.sizing.state = replace(pool.sizing.state, workers=1)
    first, second = parked.push(fn), parked.push(fn)
    assert (first.state, second.state, pool.waiting) == (RUNNING, QUEUED, 1)
    parked.end(first)
    assert (second.state, pool.waiting) == (RUNNING, 1)


def test_a_withdrawn_call_that_had_not_begun_gives_its_place_back(parked: Stage) -> None:
    limiter = Limiter(1, "lane")
    call = parked.push(parked.learn(Kind.WAITING), late=True, limiters=(limiter,))
    assert call.cancel()
    parked.work()
    assert (limiter.active, parked.pool.busy, parked.pool.waiting) == (0, 0, 0)


@pytest.mark.parametrize("kind", [Kind.WAITING, Kind.SHORT])
def test_an_open_gate_is_passed_and_left(parked: Stage, kind: Kind) -> None:
    limiter, fn = Limiter(1, "lane"), parked.learn(kind)
    first = parked.push(fn, limiters=(limiter,))
    assert (first.state, limiter.active, parked.pool.queued) == (RUNNING, 1, 0)
    second = parked.push(fn, limiters=(limiter,))
    assert (second.state, list(limiter.waiting)) == (QUEUED, [second])
    worker = parked.worker_of(first)
    parked.end(first)
    assert (second.state, limiter.active) == (RUNNING, 1)
    assert parked.worker_of(second) is worker
    parked.end(second)
    assert (limiter.active, second.limiters) == (0, ())
    assert (parked.pool.queued, len(parked.pool.roster.idle)) == (0, 2)


def test_of_two_gates_the_closed_one_keeps_the_call(parked: Stage) -> None:
    limit, lane, fn = Limiter(2, "limit"), Limiter(1, "lane"), parked.learn(Kind.WAITING)
    first = parked.push(fn, limiters=(lane,))
    second = parked.push(fn, limiters=(limit, lane))
    assert (second.state, limit.active, lane.active) == (QUEUED, 1, 1)
    parked.end(first)
    assert (second.state, limit.active, lane.active) == (RUNNING, 1, 1)
    parked.end(second)
    assert (limit.active, lane.active) == (0, 0)


def test_another_pools_call_gets_in_when_the_last_of_this_pool_leaves(parked: Stage) -> None:
    limiter, other = Limiter(1, "lane"), parked.add_pool()
    first = parked.push(parked.learn(Kind.WAITING), limiters=(limiter,))
    second = parked.push(parked.learn(Kind.WAITING, pool=other), pool=other, limiters=(limiter,))
    assert (second.state, parked.pool.queued, other.queued) == (QUEUED, 0, 1)
    parked.end(first)
    assert (second.state, limiter.active, other.queued) == (RUNNING, 1, 0)
    parked.end(second)
    assert limiter.active == 0


def test_a_follower_of_another_kind_starts_beside_the_one_that_was_queued(parked: Stage) -> None:
    """The worker that left the gate takes the older call; the follower gets a worker of its own."""
    limiter, waiting, short = Limiter(1, "lane"), parked.learn(Kind.WAITING), parked.learn(Kind.SHORT)
    pool = parked.pool
    pool.sizing.state = replace(pool.sizing.state, workers=1)
    first = parked.push(waiting, limiters=(limiter,))
    queued = parked.push(waiting)
    follower = parked.push(short, limiters=(limiter,))
    parked.end(first)
    assert (queued.state, follower.state) == (RUNNING, RUNNING)


def test_a_call_that_is_queued_again_keeps_nothing_of_its_first_start(stage: Stage) -> None:
    call = stage.push(stage.learn(Kind.SHORT), late=True)
    assert call.permit == SHORT
    call.in_waiting_lane = True
    requeue_locked(stage.pool, call)
    assert (call.state, call.permit, call.in_waiting_lane) == (QUEUED, NONE, False)


# ---------------------------------------------------------------------- what ended is released early


def test_the_governor_releases_what_ended_up_to_a_call_with_a_callback_of_somebody(stage: Stage) -> None:
    worker = add_worker(stage.pool, [])
    told: list[str] = []
    _, second, _ = calls = [make_call(stage.pool, len, "") for _ in range(3)]
    second.add_done_callback(lambda _: told.append("second"))
    worker.held.extend(calls)
    worker.release(quick=True)
    assert ([call.done() for call in calls], told) == ([True, False, False], [])
    worker.release()
    assert ([call.done() for call in calls], told) == ([True, True, True], ["second"])


def test_a_callback_that_is_added_as_the_governor_releases_a_call_does_not_run_in_its_thread(
    stage: Stage,
) -> None:
    class Late(deque[Any]):
        def popleft(self) -> Any:
            call = super().popleft()
            call.add_done_callback(lambda _: told.put(threading.get_ident()))
            return call

    told: SimpleQueue[int] = SimpleQueue()
    worker = add_worker(stage.pool, [])
    worker.held = Late([make_call(stage.pool, len, "")])
    worker.release(quick=True)
    assert told.get(timeout=DEADLINE) != threading.get_ident()


def test_a_callback_in_the_middle_of_a_batch_holds_no_permit_and_its_time_is_not_that_of_the_calls(
    stage: Stage,
) -> None:
    found: list[object] = []

    def runs(seconds: float) -> None:
        stage.clock.advance(seconds)

    def computes(_: object) -> None:
        found.extend((worker.permit, worker.call))
        stage.clock.advance(0.5, cpu=0.5)

    profile = stage.pool.profiles.of(runs)
    profile.kind, profile.batch, profile.turn_at = Kind.SHORT, 4, 1 << 60
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    calls = [stage.push(runs, seconds, late=True) for seconds in (3 * MS, MS / 100, MS)]
    worker = stage.worker_of(blocker)
    blocker.wall_ns = blocker.cpu_ns = 0
    worker.call = None
    finish_and_begin_next(stage.pool, worker, blocker)
    calls[1].add_done_callback(computes)
    worker._run_batch(worker.batch.popleft())
    assert found == [NONE, None]
    assert calls[2] in stage.running()
    assert profile.cpu_ns <= profile.wall_ns == 3_010_000


# ---------------------------------------------------------------------- looking at all there are


class Interrupted(WeakSet[Any]):
    """A set that others try to add to in the middle of being looked at."""

    def __init__(self, add: Callable[[], object]) -> None:
        super().__init__()
        self._add = add

    def __iter__(self) -> Iterator[Any]:
        for number, found in enumerate(super().__iter__()):
            if number == 0:
                adding = threading.Thread(target=self._add, daemon=True)
                adding.start()
                adding.join(0.05)  # it ends at once, unless it waits for the lock
            yield found


def test_a_thread_that_is_hired_while_all_are_looked_at_waits_for_that(stage: Stage) -> None:
    roster = stage.pool.roster

    def add_third_worker() -> None:
        with stage.budget.lock:
            add_worker(stage.pool, to_start)

    to_start: list[object] = []
    roster.threads = Interrupted(add_third_worker)
    kept = [add_worker(stage.pool, []), add_worker(stage.pool, [])]
    assert len(all_threads(stage.pool)) == len(kept)
    until(lambda: to_start, "the third is hired")


@pytest.mark.parametrize("look", ["statistics", "governor"])
def test_a_pool_that_is_made_while_all_are_looked_at_waits_for_that(stage: Stage, look: str) -> None:
    budget = stage.budget
    made: list[object] = []
    pools = [stage.pool, stage.add_pool()]
    budget.pools = Interrupted(lambda: made.append(make_pool(budget)))
    budget.pools.update(pools)
    if look == "governor":
        budget.governor.step(stage.clock.now_ns, 0, prompt=True)
    else:
        assert len(budget.all_pools()) == len(pools)
    until(lambda: made, "the third is made")
