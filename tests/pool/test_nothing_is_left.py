"""What a dispatch has begun comes to its end: behind callbacks and hooks that wait or raise, where no thread
starts, and where memory is lacking.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from hybridrt import Hooks
from hybridrt.errors import RuntimeClosedError
from hybridrt.pool import worker as worker_module
from hybridrt.pool.limiters import Limiter, WatchedLimiter
from hybridrt.pool.permits import LONG, NONE, SHORT, Permits
from hybridrt.pool.rebalance import exchange_permit
from hybridrt.pool.roster import all_threads
from hybridrt.pool.scheduler import RESOLVERS_MAX, end_assignment_locked
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.withdraw import abandon
from hybridrt.pool.worker import WorkerThread
from hybridrt.values import CallEvent, Kind

from .conftest import Make, MakePool
from .racing import known, open_pool, submit
from .support import DEADLINE, MS, Stage, make_call, named, until


def lacks_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


def once(fails: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """Return what fails the first time it is called."""
    calls = [fails]

    def call(*args: Any) -> Any:
        return (calls.pop() if calls else then)(*args)

    return call


# ---------------------------------------------------------------------- callbacks of the user's


def test_a_call_does_not_wait_behind_a_callback_that_waits_for_it() -> None:
    """The callback comes while its batch runs, and the worker is given the next call before it delivers."""
    awaited, go = threading.Event(), threading.Event()

    def first(number: int) -> int:
        if number == 0:
            calls[1].add_done_callback(lambda _: awaited.wait(DEADLINE))
        return number

    def second() -> None:
        awaited.set()

    with open_pool(max_workers=4) as pool:
        known(pool, first, Kind.SHORT, batch=4)
        known(pool, second, Kind.SHORT)
        known(pool, go.wait, Kind.SHORT)
        submit(pool, go.wait, DEADLINE)
        calls = [submit(pool, first, number) for number in range(2)]
        last = submit(pool, second)
        go.set()
        assert last.result(DEADLINE) is None
        assert [call.result(DEADLINE) for call in calls] == [0, 1]


def test_a_callback_that_ends_its_thread_keeps_no_other_call_of_the_batch_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    go = threading.Event()

    def leave(_: Future[Any]) -> None:
        raise SystemExit

    def first(number: int) -> int:
        if number == 0:
            for call in calls[:2]:
                call.add_done_callback(leave)
        return number

    with open_pool() as pool:
        known(pool, first, Kind.SHORT, batch=4)
        known(pool, go.wait, Kind.SHORT)
        submit(pool, go.wait, DEADLINE)
        calls = [submit(pool, first, number) for number in range(3)]
        go.set()
        assert [call.result(DEADLINE) for call in calls] == [0, 1, 2]


def test_a_callback_that_raises_as_a_pool_closes_keeps_no_other_call_from_its_end(stage: Stage) -> None:
    stage.push(stage.learn(Kind.LONG))
    queued = [stage.push(stage.learn(Kind.LONG, "queued")) for _ in range(3)]

    def leave(_: Future[Any]) -> None:
        raise SystemExit

    queued[0].add_done_callback(leave)
    with pytest.raises(SystemExit):
        close(stage.pool, closed_error, cancel_queued=True)
    assert all(call.cancelled() for call in queued)


# ---------------------------------------------------------------------- hooks


@pytest.mark.parametrize("name", ["on_event", "on_thread_start", "on_thread_stop"])
def test_a_hook_that_wants_to_end_its_worker_is_removed_like_any_that_raises(
    make: Make, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    def leave(*_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit

    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    executor = make(2, hooks=Hooks(**{name: leave}))
    assert executor.submit(len, "ab").result(DEADLINE) == 2
    executor.shutdown()
    assert executor._pool.hooks.removed == 1
    assert executor._pool.tally.workers_lost == 0


def test_an_interrupted_hook_keeps_no_call_of_another_pool_from_its_thread() -> None:
    def interrupt(event: CallEvent) -> None:
        if event.kind == "finished":
            raise KeyboardInterrupt

    stage = Stage(options={"hooks": Hooks(on_event=interrupt)})
    lane, other = Limiter(1, "lane"), stage.add_pool()
    first = make_call(stage.pool, named("first"))
    first.limiters = (lane,)
    stage.pool.hooks.submitted(first)
    stage.pool.push(first)
    stage.calls.append(first)
    follower = stage.push(named("follower"), pool=other, limiters=(lane,))
    assert stage.running() == [first]
    with pytest.raises(KeyboardInterrupt):
        stage.end(first)
    assert follower in stage.running()


# ---------------------------------------------------------------------- no thread, no memory


def test_a_call_queued_again_for_want_of_a_thread_starts_at_the_governors_next_step() -> None:
    stage = Stage(lanes=False, options={"max_workers": 2})
    first = stage.push(named("first"))
    stage.pool.refusals = 1  # type: ignore[attr-defined]
    second, third = (stage.push(named(name)) for name in ("second", "third"))
    assert stage.running() == [first]
    stage.step(1 * MS)
    assert stage.running() == [first, second]
    stage.end(first)
    assert stage.running() == [second, third]


def test_the_permit_of_a_call_without_a_thread_goes_to_the_pool_that_waits_for_it(stage: Stage) -> None:
    """A worker of the other pool is parked, so that no thread need be started for it."""
    other = stage.add_pool()
    stage.end(stage.push(named("before"), pool=other))
    stage.pool.refusals = 1  # type: ignore[attr-defined]
    pool, push = stage.pool, stage.pool.start

    def start_late(to_start: list[WorkerThread], submitted: Any = None) -> None:
        pool.start = push  # type: ignore[method-assign]
        calls.append(stage.push(stage.learn(Kind.LONG, "waits", pool=other), pool=other))
        assert calls[0] not in stage.running()  # the permit is taken
        push(to_start, submitted)

    calls: list[Any] = []
    pool.start = start_late  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="can't start"):
        stage.push(stage.learn(Kind.LONG, "refused"))
    assert stage.running() == calls


def test_a_worker_is_started_although_the_governor_could_not_be_woken(stage: Stage) -> None:
    governor = stage.budget.governor
    governor.parked = True
    governor.wake = lacks_memory  # type: ignore[method-assign]
    call = make_call(stage.pool, named("call"))
    with pytest.raises(MemoryError):
        stage.pool.push(call)
    governor.parked = False
    stage.calls.append(call)
    assert stage.running() == [call]


def test_a_thread_that_lacks_memory_at_once_leaves_its_call_to_another(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    prepare = worker_module.children_are_no_daemons
    monkeypatch.setattr(worker_module, "children_are_no_daemons", once(lacks_memory, prepare))
    pool = make_private()
    call = submit(pool, named("call"))
    assert call.result(DEADLINE) == ()
    until(lambda: sum(thread.is_alive() for thread in all_threads(pool)) <= 1, "the first has ended")


def test_a_permit_is_given_back_at_the_second_try_where_memory_was_lacking(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = stage.worker_of(stage.push(stage.learn(Kind.SHORT)))
    drop = once(lacks_memory, Permits._drop)
    monkeypatch.setattr(Permits, "_drop", lambda permits, permit: drop(permits, permit))
    with pytest.raises(MemoryError):
        end_assignment_locked(stage.pool, worker)
    assert stage.permits.held[SHORT] == 1
    end_assignment_locked(stage.pool, worker)
    assert stage.permits.held == [0, 0, 0, 0]
    assert stage.pool.busy == 0


def test_no_permit_is_taken_for_one_that_could_not_be_given_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = stage.worker_of(stage.push(stage.learn(Kind.SHORT)))
    with monkeypatch.context() as patch:
        patch.setattr(Permits, "_drop", lacks_memory)
        with pytest.raises(MemoryError):
            exchange_permit(worker, LONG)
    assert stage.permits.held == [0, 1, 0, 0]
    exchange_permit(worker, NONE)
    assert stage.permits.held == [0, 0, 0, 0]


# ---------------------------------------------------------------------- who is next


def test_a_permit_given_back_goes_to_the_pool_that_has_waited_for_longest(stage: Stage) -> None:
    other = stage.add_pool()
    first = stage.push(stage.learn(Kind.LONG))
    theirs = stage.push(stage.learn(Kind.LONG, "theirs", pool=other), pool=other)
    ours = stage.push(stage.learn(Kind.LONG, "ours"))
    exchange_permit(stage.worker_of(first), NONE)
    assert stage.running() == [first, theirs]
    assert ours not in stage.running()


def test_a_queued_resolution_lets_no_other_call_have_a_thread_too_many() -> None:
    stage = Stage(options={"max_workers": 1})
    first = stage.push(named("first"))
    worker = stage.worker_of(first)
    for _ in range(RESOLVERS_MAX + 1):
        stage.push(named("resolve"), resolves=True)
    first.wall_ns = first.cpu_ns = 0
    worker_module.finish(stage.pool, worker, first)  # its worker is in a callback, and takes none yet
    worker.call = None
    second = stage.push(named("second"))
    assert second not in stage.running()
    worker_module.begin_next(stage.pool, worker)
    assert second in stage.running()
    assert len(stage.pool.roster.workers) == RESOLVERS_MAX + 1


def test_the_place_of_a_call_abandoned_before_it_began_goes_to_another(stage: Stage) -> None:
    """Its worker has claimed it, and does not say so before it has read its clocks."""
    fn = stage.learn(Kind.WAITING)
    size = stage.pool.sizing.state.workers
    first = stage.push(fn, late=True)
    (worker,) = stage.pool.roster.workers
    assert worker.batch.popleft() is first  # the claim
    assert not first.cancel()
    assert abandon(first)
    assert stage.pool.abandoned == 1
    others = [make_call(stage.pool, fn) for _ in range(size)]
    for call in others:
        stage.pool.push(call)
    assert stage.pool.queued == 0
    worker.batch.appendleft(first)


def test_calls_of_a_pool_that_closes_are_not_sent_away_from_their_line(stage: Stage) -> None:
    line: WatchedLimiter[Any] = WatchedLimiter(1, "isolates", most=1)
    stage.budget.limiters.append(line)
    other = stage.add_pool()
    endless = stage.push(named("endless"), limiters=(line,))
    waiting = stage.push(named("waiting"), pool=other, limiters=(line,), spills=True)
    close(other, closed_error, cancel_queued=False)
    stage.step(10 * MS, times=200)
    assert not waiting.done()
    stage.end(endless)
    assert stage.running() == [waiting]
    with pytest.raises(RuntimeClosedError):
        stage.push(named("late"), pool=other)
