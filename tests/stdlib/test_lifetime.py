"""What an executor keeps alive, and what happens when nobody keeps the executor."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, Kind, threads_of

pytestmark = pytest.mark.usefixtures("without_gc")


class _Thing:
    def method(self) -> None:
        pass


class _ThingError(Exception):
    pass


class _Watch:
    """Tells when an object died; for what the executor's worker may hold for an instant longer."""

    def __init__(self, thing: object) -> None:
        self._died = threading.Event()
        self._reference = weakref.ref(thing, lambda _: self._died.set())

    def assert_dead(self) -> None:
        assert self._died.wait(DEADLINE), gc.get_referrers(self._reference())


def test_an_idle_worker_keeps_nothing_of_the_arguments(make: Make) -> None:
    executor, thing, keyword = make(1), _Thing(), _Thing()
    watches = [_Watch(thing), _Watch(keyword)]
    executor.submit(lambda *args, **kwargs: None, thing, key=keyword)
    del thing, keyword
    for watch in watches:
        watch.assert_dead()


def test_an_idle_worker_keeps_nothing_of_the_function(make: Make) -> None:
    executor, thing = make(1), _Thing()
    watch = _Watch(thing)
    executor.submit(thing.method)
    del thing
    watch.assert_dead()


def test_an_idle_worker_keeps_nothing_of_the_result(make: Make) -> None:
    executor = make(1)
    future = executor.submit(_Thing)
    watch = _Watch(future.result(DEADLINE))
    del future
    watch.assert_dead()


def test_an_idle_worker_keeps_nothing_of_the_exception(make: Make) -> None:
    def fail(thing: _Thing) -> None:
        raise _ThingError

    executor, thing = make(1), _Thing()
    future = executor.submit(fail, thing)
    watches = [_Watch(thing), _Watch(future.exception(DEADLINE))]
    del future, thing
    for watch in watches:
        watch.assert_dead()


def test_raising_the_exception_of_a_call_makes_no_cycle(make: Make) -> None:
    def fail() -> None:
        raise _ThingError

    def watch_raised(future: Future[None]) -> _Watch:
        try:
            future.result(DEADLINE)
        except _ThingError as error:
            watch = _Watch(error)
        del future  # or this frame, which the traceback holds, would make the cycle
        return watch

    executor = make(1)
    watch_raised(executor.submit(fail)).assert_dead()


def test_an_idle_worker_keeps_nothing_of_a_cancelled_call(make: Make, gate: Gate) -> None:
    executor, thing = make(1), _Thing()
    watch = _Watch(thing)
    gate.hold(executor)
    executor.submit(thing.method).cancel()
    del thing
    gate.release()
    watch.assert_dead()


def test_a_finished_future_keeps_nothing_of_the_arguments(make: Make) -> None:
    executor, thing = make(1), _Thing()
    watch = _Watch(thing)
    future = executor.submit(thing.method)
    del thing
    future.result(DEADLINE)
    watch.assert_dead()
    assert future.done()


def test_cancelling_all_at_shutdown_keeps_nothing_of_the_calls(make: Make, gate: Gate) -> None:
    executor, thing = make(1), _Thing()
    watch = _Watch(thing)
    gate.hold(executor)
    executor.submit(thing.method)
    del thing
    executor.shutdown(wait=False, cancel_futures=True)
    watch.assert_dead()


def test_an_executor_is_collected_as_soon_as_nobody_refers_to_it(kind: Kind) -> None:
    executor = kind.build(2)
    threads = threads_of(executor, 2)
    watch = _Watch(executor)
    del executor
    watch.assert_dead()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_an_executor_that_was_never_used_is_collected(kind: Kind) -> None:
    executor = kind.build(2)
    watch = _Watch(executor)
    del executor
    watch.assert_dead()


def test_a_shut_down_executor_is_collected(kind: Kind) -> None:
    executor = kind.build(2)
    threads_of(executor, 2)
    executor.shutdown()
    watch = _Watch(executor)
    del executor
    watch.assert_dead()


def test_a_future_does_not_keep_its_executor(kind: Kind) -> None:
    executor = kind.build(1)
    future = executor.submit(int)
    future.result(DEADLINE)
    watch = _Watch(executor)
    del executor
    watch.assert_dead()
    assert future.result(0) == 0


def test_a_running_call_does_not_keep_its_executor(kind: Kind, gate: Gate) -> None:
    executor = kind.build(1)
    (thread,) = threads_of(executor, 1)
    running = gate.hold(executor, "result")
    watch = _Watch(executor)
    del executor
    watch.assert_dead()
    gate.release()
    assert running.result(DEADLINE) == "result"
    thread.join(DEADLINE)


def test_queued_calls_of_a_collected_executor_run_to_their_end(kind: Kind, gate: Gate) -> None:
    executor = kind.build(1)
    threads = threads_of(executor, 1)
    gate.hold(executor)
    queued = [executor.submit(pow, 2, n) for n in range(20)]
    watch = _Watch(executor)
    del executor
    watch.assert_dead()
    gate.release()
    assert [future.result(DEADLINE) for future in queued] == [2**n for n in range(20)]
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_a_map_over_a_collected_executor_gives_all_results(kind: Kind) -> None:
    executor = kind.build(3)
    threads = threads_of(executor, 3)
    results: Any = executor.map(abs, range(-20, 0))
    del executor
    assert list(results) == list(range(20, 0, -1))
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
