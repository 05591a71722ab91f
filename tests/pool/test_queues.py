"""Bounded queues, gates, the name-resolution lane, abandoned calls: who stands where, and for whom."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, QueueFullError
from hybridrt.errors import HybridrtError
from hybridrt.pool.limiters import Limiter, lane_limiter
from hybridrt.pool.nested import claim_for_help
from hybridrt.pool.scheduler import RESOLVERS_MAX
from hybridrt.pool.withdraw import abandon, withdraw
from hybridrt.values import Kind

from .conftest import Make
from .support import DEADLINE, MS, Meeting, Stage, compute, make_call, named

# ---------------------------------------------------------------------- queue_max


def test_a_full_queue_refuses_a_call_and_says_which_and_what_to_do(make: Make, meeting: Meeting) -> None:
    executor = make(1, queue_max=2)
    running = executor.submit(meeting)
    meeting.wait_for(1)
    queued = [executor.submit(len, "ab"), executor.submit(len, "ab")]
    with pytest.raises(QueueFullError, match=r"queue_max=2 calls, so builtins:len was not accepted; wait"):
        executor.submit(len, "ab")
    assert isinstance(QueueFullError("x"), HybridrtError)
    statistics = executor.statistics()
    assert (statistics.submitted, statistics.rejected) == (3, 1)
    meeting.end()
    assert [future.result(DEADLINE) for future in (running, *queued)] == [None, 2, 2]


def test_calls_that_run_do_not_fill_the_queue(make: Make, meeting: Meeting) -> None:
    executor = make(3, policy="paper", queue_max=1)
    futures = [executor.submit(meeting) for _ in range(3)]
    meeting.wait_for(3)
    futures.append(executor.submit(meeting))
    with pytest.raises(QueueFullError):
        executor.submit(meeting)
    meeting.end()
    for future in futures:
        future.result(DEADLINE)


def test_a_cancelled_call_makes_space(make: Make, meeting: Meeting) -> None:
    executor = make(1, queue_max=1)
    executor.submit(meeting)
    meeting.wait_for(1)
    first = executor.submit(len, "ab")
    assert first.cancel()
    second = executor.submit(len, "abc")
    meeting.end()
    assert second.result(DEADLINE) == 3


def test_a_patient_call_waits_for_space_in_its_turn() -> None:
    stage = Stage(options={"queue_max": 2})
    holder = stage.push(stage.learn(Kind.LONG))
    long = stage.learn(Kind.LONG)
    queued = [stage.push(long) for _ in range(2)]
    patient = [stage.push(long, patient=True) for _ in range(2)]
    with pytest.raises(QueueFullError):
        stage.push(long)
    assert (stage.pool.queued, list(stage.pool.backlog)) == (2, patient)
    stage.end(holder)
    assert (stage.pool.queued, list(stage.pool.backlog)) == (2, patient[1:])
    for call in (*queued, *patient):
        assert stage.running() == [call]
        stage.end(call)
    assert stage.pool.tally.rejected == 1


@pytest.mark.parametrize("way", ["end", "long end", "cancel", "help", "overdraft"])
def test_a_patient_call_for_which_space_comes_starts_at_once_if_its_lane_has_room(way: str) -> None:
    """The call that made space was of another kind, and one like it may have taken its place."""
    stage = Stage(options={"queue_max": 1})
    holder, queued = stage.push_many(2, stage.learn(Kind.LONG))
    patient = stage.push(stage.learn(Kind.WAITING), patient=True)
    assert stage.running() == [holder]
    assert patient in stage.pool.backlog
    if way == "cancel":
        assert queued.cancel()
    elif way == "help":
        assert stage.help(holder, queued)
    elif way == "overdraft":
        stage.compute(holder)
        stage.step(10 * MS, times=80)
    else:
        stage.end(holder, quick=way == "end")
    assert patient in stage.running()


def test_a_patient_call_that_is_withdrawn_never_runs() -> None:
    stage = Stage(options={"queue_max": 1})
    holder, queued = stage.push_many(2, stage.learn(Kind.LONG))
    patient = stage.push(stage.learn(Kind.LONG), patient=True)
    assert withdraw(patient)
    assert not stage.pool.backlog
    assert stage.pool.queued == 1
    stage.end(holder)
    stage.end(queued)
    assert stage.pool.tally.cancelled == 1


# ---------------------------------------------------------------------- gates


def test_a_gate_lets_as_many_in_as_it_says_in_the_order_of_arrival(stage: Stage) -> None:
    limiter = Limiter(2, "limiter")
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, limiters=(limiter,)) for _ in range(5)]
    assert stage.running() == calls[:2]
    stage.end(calls[1])
    assert stage.running() == [calls[0], calls[2]]
    assert (limiter.active, list(limiter.waiting)) == (2, calls[3:])


def test_a_gate_counts_over_pools(stage: Stage) -> None:
    other, limiter = stage.add_pool(), Limiter(1, "limiter")
    mine = stage.push(stage.learn(Kind.WAITING), limiters=(limiter,))
    theirs = stage.push(stage.learn(Kind.WAITING, pool=other), pool=other, limiters=(limiter,))
    assert stage.running() == [mine]
    stage.end(mine)
    assert stage.running() == [theirs]
    stage.end(theirs)
    assert limiter.active == 0


def test_a_call_behind_a_gate_holds_up_nobody_else(stage: Stage) -> None:
    limiter = Limiter(1, "limiter")
    fn = stage.learn(Kind.WAITING)
    first, second = (stage.push(fn, limiters=(limiter,)) for _ in range(2))
    free = stage.push(fn)
    assert stage.running() == [first, free]
    assert second in stage.pool.at_limiters


def test_two_gates_are_passed_in_order_and_left_together(stage: Stage) -> None:
    limit, lane = Limiter(2, "limit"), Limiter(1, "lane")
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, limiters=(limit, lane)) for _ in range(3)]
    assert stage.running() == calls[:1]
    assert (limit.active, lane.active) == (2, 1)
    assert (list(limit.waiting), list(lane.waiting)) == ([calls[2]], [calls[1]])
    stage.end(calls[0])
    assert stage.running() == calls[1:2]
    assert (limit.active, lane.active) == (2, 1)


def test_a_call_cancelled_at_its_second_gate_leaves_the_first(stage: Stage) -> None:
    limit, lane = Limiter(2, "limit"), Limiter(1, "lane")
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, limiters=(limit, lane)) for _ in range(3)]
    assert calls[1].cancel()
    assert list(lane.waiting) == [calls[2]]
    stage.end(calls[0])
    assert stage.running() == calls[2:]
    stage.end(calls[2])
    assert (limit.active, lane.active, len(stage.pool.at_limiters)) == (0, 0, 0)


def test_a_call_that_failed_or_lost_its_worker_opens_its_gate(stage: Stage) -> None:
    limiter = Limiter(1, "limiter")
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, limiters=(limiter,)) for _ in range(3)]
    calls[0].error = ValueError("failed")
    stage.end(calls[0])
    stage.kill(calls[1])
    assert stage.running() == calls[2:]
    stage.end(calls[2])
    assert limiter.active == 0


def test_a_call_refused_for_want_of_a_thread_opens_its_gate(stage: Stage) -> None:
    limiter = Limiter(1, "limiter")
    stage.pool.refusals = 1  # type: ignore[attr-defined]
    call = make_call(stage.pool, named("nobody"))
    call.limiters = (limiter,)
    with pytest.raises(RuntimeError, match="can't start"):
        stage.pool.push(call)
    assert limiter.active == 0


def test_a_broken_initializer_opens_the_gates_of_the_calls_it_fails(make: Make, caplog: Any) -> None:
    limiter, go = Limiter(1, "limiter"), threading.Event()
    caplog.set_level("CRITICAL", logger="concurrent.futures")

    def initializer() -> None:
        assert go.wait(DEADLINE)
        raise ValueError("no model")

    executor = make(2, initializer=initializer)
    calls = []
    for _ in range(3):
        call = make_call(executor._pool, len, "ab")
        call.limiters = (limiter,)
        executor._pool.push(call)
        calls.append(call)
    go.set()
    for call in calls:
        assert call.exception(DEADLINE) is not None
    assert (limiter.active, len(limiter.waiting)) == (0, 0)


def test_a_lane_is_one_gate_per_name_or_object_and_lives_as_long_as_it_is_used() -> None:
    class Connection: ...

    one, two = Connection(), Connection()
    limiters = [lane_limiter("database"), lane_limiter(one), lane_limiter(two)]
    assert lane_limiter("".join(["data", "base"])) is limiters[0]
    assert lane_limiter(one) is limiters[1]
    assert limiters[1] is not limiters[2]
    assert all(limiter.limit == 1 for limiter in limiters)
    before = id(limiters[0])
    del limiters[0]
    gc.collect()
    fresh = lane_limiter("database")
    assert fresh.active == 0
    assert before or fresh


class Interrupted(str):
    """A lane: while it is looked up for the `at`-th time, a finaliser asks for it, too."""

    at = looks = 0
    found: Limiter | None = None

    def __hash__(self) -> int:
        self.looks += 1
        if self.looks == self.at:
            self.found = lane_limiter(self)
        return super().__hash__()


@pytest.mark.parametrize("at", range(1, 6))
def test_a_finaliser_that_asks_for_a_lane_while_its_gate_is_made_gets_that_gate(at: int) -> None:
    lane = Interrupted(f"database {at}")  # another each time: it holds its gate, which holds it
    lane.at = at
    limiter = lane_limiter(lane)
    assert lane.found is limiter is lane_limiter(lane)


def test_a_worker_that_waits_for_a_call_behind_its_own_gate_does_not_run_it(stage: Stage) -> None:
    limiter = Limiter(1, "limiter")
    fn = stage.learn(Kind.WAITING)
    first, second = (stage.push(fn, limiters=(limiter,)) for _ in range(2))
    worker = stage.worker_of(first)
    assert not claim_for_help(worker, second)
    assert second in stage.pool.at_limiters


# ---------------------------------------------------------------------- names


def test_names_are_resolved_while_everything_else_is_blocked(stage: Stage) -> None:
    stage.push_many(40, stage.learn(Kind.WAITING))
    stage.push_many(3, stage.learn(Kind.LONG))
    stage.push(stage.learn(Kind.SHORT))
    resolution = stage.push(socket.getaddrinfo, resolves=True)
    assert resolution in stage.running()
    assert stage.pool.resolving == 1


def test_at_most_sixteen_names_are_resolved_at_once_beyond_max_workers() -> None:
    stage = Stage(options={"max_workers": 2})
    blocked = stage.push_many(4, stage.learn(Kind.WAITING))
    names = [stage.push(socket.getaddrinfo, resolves=True) for _ in range(RESOLVERS_MAX + 3)]
    assert RESOLVERS_MAX == 16
    assert stage.running() == [*blocked[:2], *names[:16]]
    stage.end(names[0])
    assert names[16] in stage.running()
    assert len(stage.pool.roster.workers) <= 18
    stage.end(blocked[0])
    assert blocked[2] in stage.running()
    for call in stage.running():
        stage.end(call)
    while running := stage.running():
        stage.end(running[0])
    assert (stage.pool.resolving, stage.pool.busy) == (0, 0)


async def test_asyncio_resolves_names_on_an_executor_whose_workers_are_all_blocked(
    make: Make, meeting: Meeting
) -> None:
    loop = asyncio.get_running_loop()
    executor: AdaptiveThreadPoolExecutor = make(1)
    blocked = executor.submit(meeting)
    loop.set_default_executor(executor)
    assert await loop.getaddrinfo("127.0.0.1", 80)
    assert not blocked.done()
    meeting.end()
    await asyncio.wrap_future(blocked)


# ---------------------------------------------------------------------- abandoned calls


def test_an_abandoned_waiting_call_gives_its_place_to_another(stage: Stage) -> None:
    size = stage.pool.sizing.state.workers
    calls = stage.push_many(size + 1, stage.learn(Kind.WAITING))
    assert calls[size] not in stage.running()
    assert abandon(calls[0])
    assert calls[size] in stage.running()
    assert stage.pool.tally.abandoned == 1
    assert not abandon(calls[0])
    assert stage.pool.tally.abandoned == 1
    for call in calls:
        stage.end(call)
    assert (stage.pool.busy, stage.pool.waiting, stage.pool.abandoned) == (0, 0, 0)


def test_an_abandoned_call_still_counts_against_max_workers() -> None:
    stage = Stage(lanes=False, options={"max_workers": 2})
    calls = stage.push_many(3, named("stuck"))
    abandon(calls[0])
    assert stage.running() == calls[:2]
    stage.end(calls[0])
    assert stage.running() == calls[1:]


def test_an_abandoned_call_keeps_its_gate_closed_until_it_has_ended(stage: Stage) -> None:
    limiter = Limiter(1, "limiter")
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, limiters=(limiter,)) for _ in range(2)]
    abandon(calls[0])
    assert stage.running() == calls[:1]
    stage.end(calls[0])
    assert stage.running() == calls[1:]


def test_a_queued_or_finished_call_cannot_be_abandoned(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    assert not abandon(second)
    stage.end(first)
    assert not abandon(first)
    assert stage.pool.tally.abandoned == 0


def test_abandoned_calls_that_still_run_show_in_the_statistics(make: Make, meeting: Meeting) -> None:
    executor = make()
    future: Any = executor.submit(meeting)
    meeting.wait_for(1)
    assert abandon(future)
    statistics = executor.statistics()
    assert (statistics.abandoned, statistics.abandoned_running) == (1, 1)
    assert statistics.running[0].abandoned
    meeting.end()
    future.result(DEADLINE)
    assert executor.submit(compute).result(DEADLINE) == 0.0
    assert executor.statistics().abandoned_running == 0
