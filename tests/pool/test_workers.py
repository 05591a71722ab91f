"""Workers: hired on demand, kept warm, sent home; those that die, and threads that cannot start."""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, WorkerLostError
from hybridrt.executor.budget import shared
from hybridrt.observe.functions import Profile
from hybridrt.pool import worker as worker_module
from hybridrt.pool.hooks import Hooks
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.permits import NONE
from hybridrt.pool.rebalance import exchange_permit
from hybridrt.pool.roster import may_leave
from hybridrt.pool.scheduler import Batch
from hybridrt.pool.state import Call, Pool
from hybridrt.pool.worker import WorkerThread, current_worker
from hybridrt.values import Kind

from .conftest import Make, MakePool
from .support import DEADLINE, Meeting, Stage, make_call, named, until


class Killed(BaseException):
    """Thrown into a worker from outside."""


def kill(thread: threading.Thread) -> None:
    """Throw `Killed` into a thread; it strikes at the thread's next bytecode."""
    assert thread.ident is not None
    found = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Killed))
    assert found == 1


def submit(pool: Pool, fn: Callable[..., Any], *args: Any) -> Any:
    call = make_call(pool, fn, *args)
    pool.push(call)
    return call


def spin_until(event: threading.Event) -> None:
    deadline = time.monotonic() + DEADLINE
    while not event.is_set() and time.monotonic() < deadline:
        pass


# ---------------------------------------------------------------------- coming and going


def test_a_worker_that_parks_while_its_executor_is_dropped_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = [AdaptiveThreadPoolExecutor(min_workers=1)]
    pool = executors[0]._pool
    record = Profile.record

    def dropped(profile: Profile, *args: Any) -> None:
        executors.clear()  # as by another thread
        record(profile, *args)

    assert executors[0].submit(len, "a").result(DEADLINE) == 1
    until(lambda: pool.busy == 0, "its worker is parked")
    monkeypatch.setattr(Profile, "record", dropped)
    executors[0].submit(len, "ab").result(DEADLINE)
    until(lambda: not pool.roster.workers, "it has left")


def test_surplus_workers_leave_after_the_idle_timeout_and_the_last_one_stays(
    make_private: MakePool, meeting: Meeting
) -> None:
    pool = make_private(lanes=False, idle_timeout=0.01)
    calls = [submit(pool, meeting) for _ in range(6)]
    meeting.wait_for(6)
    assert len(pool.roster.workers) == 6
    meeting.end()
    for call in calls:
        call.result(DEADLINE)
    until(lambda: len(pool.roster.workers) == 1, "five of six workers leave")
    assert submit(pool, threading.current_thread).result(DEADLINE).is_alive()


@pytest.mark.parametrize("least", [0, 3])
def test_as_many_workers_stay_as_min_workers_says(
    make_private: MakePool, meeting: Meeting, least: int
) -> None:
    pool = make_private(lanes=False, idle_timeout=0.01, min_workers=least)
    calls = [submit(pool, meeting) for _ in range(6)]
    meeting.wait_for(6)
    threads = [worker.thread for worker in pool.roster.workers]
    meeting.end()
    for call in calls:
        call.result(DEADLINE)
    until(lambda: sum(thread.is_alive() for thread in threads) == least, f"all but {least} leave")
    assert len(pool.roster.workers) == len(pool.roster.idle) == least
    assert submit(pool, len, "ab").result(DEADLINE) == 2


@pytest.mark.parametrize("lanes", [False, True])
def test_the_worker_used_last_works_next(make_private: MakePool, meeting: Meeting, lanes: bool) -> None:
    """So the surplus at the bottom of the stack gets old enough to leave."""
    pool = make_private(lanes=lanes)
    calls = [submit(pool, meeting) for _ in range(4)]
    meeting.wait_for(4)
    meeting.end()
    for call in calls:
        call.result(DEADLINE)
    until(lambda: len(pool.roster.idle) == 4, "all workers park")
    names = set()
    for _ in range(20):
        names.add(submit(pool, threading.current_thread).result(DEADLINE).name)
        until(lambda: len(pool.roster.idle) == 4, "the worker parks")
    assert len(names) == 1


def test_a_worker_given_a_call_as_its_wait_times_out_stays(stage: Stage) -> None:
    """1. Its wait times out. 2. A dispatch takes it off the stack. 3. It asks whether to leave."""
    stage.end(stage.push(stage.learn(Kind.WAITING)))
    roster = stage.pool.roster
    (worker,) = roster.idle
    roster.min_workers = 0
    call = stage.push(stage.learn(Kind.WAITING), late=True)
    assert not may_leave(stage.pool, worker, timed_out=True)
    stage.end(call)
    assert may_leave(stage.pool, worker, timed_out=True)


class WatchedBatch(deque[Call]):
    """Notes whether its worker had been told of a stint when something was put in."""

    def __init__(self, worker: WorkerThread) -> None:
        super().__init__()
        self.worker = worker
        self.told: list[bool] = []

    def append(self, call: Call) -> None:
        self.told.append(self.worker.serving)
        super().append(call)

    def extend(self, calls: Iterable[Call]) -> None:
        self.told.append(self.worker.serving)
        super().extend(calls)


@pytest.mark.parametrize("way", ["at once", "from the queue", "a batch"])
def test_a_worker_is_told_of_a_stint_when_its_batch_is_full_and_not_before(stage: Stage, way: str) -> None:
    """Awake between two stints, it would find nothing, or half of it, and go to sleep on the rest."""
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 3
    stage.end(stage.push(fn))
    (worker,) = stage.pool.roster.idle
    batch = worker.batch = WatchedBatch(worker)
    if way == "at once":
        stage.push(fn, late=True)
    elif way == "from the queue":
        stage.push(fn, late=True, limiters=(Limiter(1, "limiter"),))
    else:
        other = stage.add_pool()
        holder = stage.push(stage.learn(Kind.SHORT, pool=other), pool=other)
        stage.push_many(3, fn)
        exchange_permit(stage.worker_of(holder), NONE)
    assert batch.told
    assert not any(batch.told)
    assert worker.serving


@pytest.mark.parametrize(
    ("call_us", "readings", "least_us"),
    [(7, 3, 0), (10, 3, 0), (20, 5, 2), (1000, 5, 2)],
    ids=["short", "half", "a reading each", "long"],
)
def test_in_a_batch_of_short_calls_the_cpu_clock_is_read_once_in_twenty_microseconds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, call_us: int, readings: int, least_us: int
) -> None:
    """What is booked is exact all the same, but for a wait that is too short to count."""
    wall_us, cpu_us, read, booked = [0], [0], list[int](), list[Batch]()

    def work() -> None:
        """Wait for two microseconds and compute for the others."""
        wall_us[0] += call_us
        cpu_us[0] += call_us - 2

    def read_cpu() -> int:
        read.append(cpu_us[0])
        return 1000 * cpu_us[0]

    monkeypatch.setattr(worker_module, "finish_batch", lambda _pool, _worker, batch: booked.append(batch))
    stage.pool.roster.wall_ns, stage.pool.roster.cpu_ns = lambda: 1000 * wall_us[0], read_cpu
    worker = WorkerThread(stage.pool, "worker")
    first, *others = (make_call(stage.pool, work) for _ in range(4))
    for call in (first, *others):
        call.queued_ns = 0
    worker.batch.extend(others)
    worker._run_batch(first)
    (batch,) = booked
    assert (batch.calls, batch.wall_ns, batch.cpu_ns) == (4, 4000 * call_us, 4000 * (call_us - 2))
    assert (len(read), batch.least_blocked_ns) == (readings, 1000 * least_us)
    assert all(call.done() for call in (first, *others))


def test_an_idle_worker_keeps_nothing_of_its_last_call_alive(make_private: MakePool) -> None:
    class Thing:
        def __call__(self, *args: Any) -> Any:
            if args:
                raise Refusal(args[0])
            return Thing()

    class Refusal(Exception): ...  # unlike the built-in ones it can be referred to weakly

    pool = make_private()
    fn, argument = Thing(), Thing()
    result = submit(pool, fn).result(DEADLINE)
    error = submit(pool, fn, argument).exception(DEADLINE)
    remains = [weakref.ref(thing) for thing in (fn, argument, result, error)]
    until(lambda: len(pool.roster.idle) == 1, "the worker parks")
    gc.disable()
    try:
        del fn, argument, result, error
        until(lambda: not any(ref() for ref in remains), "the call's things die by their reference counts")
    finally:
        gc.enable()


# ---------------------------------------------------------------------- dying


def test_a_call_killed_from_outside_fails_and_its_worker_lives_on(make_private: MakePool) -> None:
    pool, started, never = make_private(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def spins() -> None:
        threads.append(threading.current_thread())
        started.set()
        spin_until(never)

    call = submit(pool, spins)
    assert started.wait(DEADLINE)
    kill(threads[0])
    assert isinstance(call.exception(DEADLINE), Killed)
    until(lambda: pool.roster.idle, "the worker parks")
    assert submit(pool, threading.current_thread).result(DEADLINE) is threads[0]


def test_calls_of_a_worker_killed_while_parked_run_on_another(make_private: MakePool) -> None:
    """It hears of it when it is woken, with a call in its hands that it has not claimed."""
    hook = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        pool = make_private(lanes=False)
        first = submit(pool, threading.current_thread).result(DEADLINE)
        until(lambda: pool.roster.idle, "the worker parks")
        kill(first)
        second = submit(pool, threading.current_thread).result(DEADLINE)
        first.join(DEADLINE)
        assert second is not first
        assert not first.is_alive()
        assert [worker.thread for worker in pool.roster.workers] == [second]
        assert pool.busy == 0 or pool.roster.workers
    finally:
        threading.excepthook = hook


@pytest.mark.usefixtures("quiet_thread")
def test_a_worker_that_dies_in_a_call_fails_that_call_alone(
    make_private: MakePool, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies outside of the user's function, where nothing else catches."""
    pool = make_private(lanes=False, max_workers=2)
    neighbour = submit(pool, meeting, "fine")
    meeting.wait_for(1)
    execute = WorkerThread._execute

    def dies_once(worker: WorkerThread, call: Call) -> None:
        monkeypatch.setattr(WorkerThread, "_execute", execute)
        call.started_ns = worker.roster.wall_ns()
        worker.call = call
        raise Killed

    monkeypatch.setattr(WorkerThread, "_execute", dies_once)
    lost, next_one = submit(pool, named("lost")), submit(pool, named("next"))
    error = lost.exception(DEADLINE)
    assert isinstance(error, WorkerLostError)
    assert "lost" in str(error)
    assert next_one.result(DEADLINE) == ()
    meeting.end()
    assert neighbour.result(DEADLINE) == "fine"
    until(lambda: pool.busy == 0, "everything is given back")
    assert (pool.tally.completed, pool.tally.failed) == (2, 1)
    assert all(row.unclassified == 0 for row in pool.profiles._by_key.values())


# ---------------------------------------------------------------------- threads that cannot start


def test_where_no_thread_can_start_submit_raises_and_nothing_is_left_behind(stage: Stage) -> None:
    stage.pool.refusals = 1  # type: ignore[attr-defined]
    call = make_call(stage.pool, named("nobody"))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        stage.pool.push(call)
    assert (stage.pool.queued, stage.pool.busy, len(stage.pool.roster.workers)) == (0, 0, 0)
    assert stage.permits.held == [0, 0, 0, 0]
    tally = stage.pool.tally
    assert tally.submitted == tally.completed + tally.failed + tally.cancelled
    assert stage.pool.profiles.of(named("nobody")).unclassified == 0
    again = stage.push(named("nobody"))
    assert stage.running() == [again]


def test_a_call_whose_thread_cannot_start_waits_for_the_workers_there_are() -> None:
    stage = Stage(lanes=False)
    first = stage.push(named("first"))
    stage.pool.refusals = 1  # type: ignore[attr-defined]
    second = stage.push(named("second"))
    assert stage.running() == [first]
    stage.end(first)
    assert stage.running() == [second]


def test_a_call_whose_thread_cannot_start_goes_to_a_worker_that_parked_meanwhile() -> None:
    """The worker found nothing queued, because the call was in the hands of the thread to be started.

    1. A submit hires a worker and lets the lock go. 2. The only other worker ends its call and
    parks. 3. The thread cannot be started: nobody would ever look at the queue again.
    """
    stage = Stage(lanes=False)
    first = stage.push(named("first"))
    pool = stage.pool
    start = pool.start

    def start_late(to_start: list[WorkerThread], submitted: Call | None = None) -> None:
        pool.start = start  # type: ignore[method-assign]
        stage.end(first)
        pool.refusals = 1  # type: ignore[attr-defined]
        start(to_start, submitted)

    pool.start = start_late  # type: ignore[method-assign]
    second = stage.push(named("second"))
    assert first.done()
    assert stage.running() == [second]


def test_where_two_threads_cannot_start_no_call_is_left_with_nobody() -> None:
    """Two submitters hire; each sees the other's worker, and neither thread can be started."""
    stage = Stage(lanes=False)
    pool = stage.pool
    calls = [make_call(stage.pool, named(name)) for name in ("first", "second")]
    to_start: list[WorkerThread] = []
    pool.start = lambda workers, submitted=None: to_start.extend(workers)  # type: ignore[method-assign]
    for call in calls:
        stage.pool.push(call)
    del pool.start
    pool.refusals = 2  # type: ignore[attr-defined]
    pool.start(to_start[:1], calls[0])
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pool.start(to_start[1:], calls[1])
    assert stage.pool.queued == 0
    assert isinstance(calls[0].exception(0), RuntimeError)
    tally = stage.pool.tally
    assert tally.submitted == tally.completed + tally.failed + tally.cancelled


def test_the_executor_passes_the_error_of_the_thread_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shared.governor, "parked", False)  # it would be refused its thread, too
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            executor.submit(len, "abc")
    assert executor.submit(len, "abc").result(DEADLINE) == 3


# ---------------------------------------------------------------------- the initializer


def test_a_failing_initializer_fails_the_queued_calls_and_those_to_come(
    make: Make, meeting: Meeting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    go = threading.Event()

    def initializer() -> None:
        assert go.wait(DEADLINE)
        raise ValueError("no model")

    executor = make(2, initializer=initializer)
    futures = [executor.submit(meeting) for _ in range(5)]
    go.set()
    for future in futures:
        assert isinstance(future.exception(DEADLINE), BrokenThreadPool)
    with pytest.raises(BrokenThreadPool):
        executor.submit(len, "abc")
    until(lambda: executor.statistics().workers == 0, "the workers leave")
    statistics = executor.statistics()
    assert statistics.submitted == 5 == statistics.failed + statistics.cancelled + statistics.completed
    assert meeting.entered == 0


def test_an_initializer_that_fails_later_spares_the_calls_that_run(
    make: Make, meeting: Meeting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    seen: list[int] = []

    def initializer() -> None:
        seen.append(1)
        if len(seen) > 1:
            raise ValueError("one only")

    executor = make(2, initializer=initializer, policy="paper")
    first = executor.submit(meeting, "first")
    meeting.wait_for(1)
    second = executor.submit(meeting, "second")
    assert isinstance(second.exception(DEADLINE), BrokenThreadPool)
    meeting.end()
    assert first.result(DEADLINE) == "first"


# ---------------------------------------------------------------------- thread hooks


def test_thread_hooks_run_in_each_workers_thread_at_its_start_and_end(make: Make, meeting: Meeting) -> None:
    started: list[str] = []
    stopped: list[str] = []
    hooks = Hooks(
        on_thread_start=lambda: started.append(threading.current_thread().name),
        on_thread_stop=lambda: stopped.append(threading.current_thread().name),
    )
    executor = make(4, policy="paper", hooks=hooks)
    for _ in range(3):
        executor.submit(meeting)
    meeting.wait_for(3)
    assert len(started) == 3
    assert stopped == []
    meeting.end()
    executor.shutdown()
    assert sorted(stopped) == sorted(started)


def test_a_call_that_survives_what_killed_the_one_it_helped_is_what_its_worker_runs(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Struck:
        on_event = True

        def started(self, _: Call) -> None:
            monkeypatch.undo()
            raise Killed

    pool = make_private(lanes=False, max_workers=1)

    def outer() -> bool:
        inner = submit(pool, named("inner"))
        monkeypatch.setattr(pool, "hooks", Struck())
        with pytest.raises(Killed):
            inner.result()
        worker = current_worker()
        assert worker is not None
        return worker.call is call and worker.outer == ()

    call = make_call(pool, outer)
    pool.push(call)
    assert call.result(DEADLINE)
