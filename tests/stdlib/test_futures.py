"""Futures: cancelling, callbacks, `wait` and `as_completed`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    as_completed,
    wait,
)
from typing import Any

import pytest

from .conftest import Make
from .support import DEADLINE, Gate


def _appender(order: list[int], number: int) -> Callable[[object], None]:
    return lambda _: order.append(number)


def _fail() -> None:
    raise LookupError("failed")


def test_a_queued_call_can_be_cancelled_and_never_runs(make: Make, gate: Gate) -> None:
    executor, ran = make(1), list[int]()
    gate.hold(executor)
    queued = executor.submit(ran.append, 1)
    assert queued.cancel()
    assert queued.cancelled()
    assert queued.done()
    assert not queued.running()
    with pytest.raises(CancelledError):
        queued.result(0)
    gate.release()
    executor.shutdown(wait=True)
    assert ran == []


def test_cancelling_twice_succeeds_twice(make: Make, gate: Gate) -> None:
    executor = make(1)
    gate.hold(executor)
    queued = executor.submit(int)
    assert [queued.cancel(), queued.cancel()] == [True, True]


def test_a_running_call_cannot_be_cancelled(make: Make, gate: Gate) -> None:
    running = gate.hold(make(1), "result")
    assert running.running()
    assert not running.done()
    assert not running.cancel()
    gate.release()
    assert running.result(DEADLINE) == "result"


def test_a_finished_call_cannot_be_cancelled(make: Make) -> None:
    future = make(1).submit(pow, 2, 2)
    assert future.result(DEADLINE) == 4
    assert not future.cancel()
    assert not future.cancelled()
    assert not future.running()


def test_calls_behind_a_cancelled_one_still_run(make: Make, gate: Gate) -> None:
    executor = make(1)
    gate.hold(executor)
    futures = [executor.submit(pow, 2, n) for n in range(6)]
    for future in futures[::2]:
        future.cancel()
    gate.release()
    assert [future.result(DEADLINE) for future in futures[1::2]] == [2, 8, 32]


def test_result_and_exception_give_up_at_their_timeout(make: Make, gate: Gate) -> None:
    running = gate.hold(make(1))
    with pytest.raises(TimeoutError):
        running.result(timeout=0)
    with pytest.raises(TimeoutError):
        running.exception(timeout=0)


def test_a_callback_gets_the_future_on_the_worker_that_finished_it(make: Make, gate: Gate) -> None:
    executor, seen, called = make(1), list[object](), threading.Event()

    def note(future: Future[Any]) -> None:
        seen.extend((future, threading.current_thread()))
        called.set()

    running = gate.hold(executor)
    running.add_done_callback(note)
    gate.release()
    assert called.wait(DEADLINE)
    assert seen == [running, executor.submit(threading.current_thread).result(DEADLINE)]


def test_a_callback_on_a_finished_future_runs_at_once(make: Make) -> None:
    future, seen = make(1).submit(int), list[object]()
    future.result(DEADLINE)
    future.add_done_callback(lambda _: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


def test_callbacks_run_in_the_order_they_were_added(make: Make, gate: Gate) -> None:
    executor, order = make(1), list[int]()
    running = gate.hold(executor)
    for number in range(5):
        running.add_done_callback(_appender(order, number))
    gate.release()
    executor.shutdown(wait=True)
    assert order == [0, 1, 2, 3, 4]


def test_a_callback_on_a_cancelled_call_runs_where_it_was_cancelled(make: Make, gate: Gate) -> None:
    executor, seen = make(1), list[object]()
    gate.hold(executor)
    queued = executor.submit(int)
    queued.add_done_callback(lambda _: seen.append(threading.current_thread()))
    queued.cancel()
    assert seen == [threading.current_thread()]


def test_a_callback_that_fails_is_logged_and_the_next_runs(
    make: Make, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise LookupError("broken callback")

    executor, seen = make(1), list[object]()
    running = gate.hold(executor)
    running.add_done_callback(broken)
    running.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        gate.release()
        assert executor.submit(pow, 2, 2).result(DEADLINE) == 4
    assert seen == [running]
    assert "exception calling callback for" in caplog.text


def test_a_callback_may_submit_the_next_call(make: Make) -> None:
    executor, done = make(1), threading.Event()
    first = executor.submit(int)
    first.add_done_callback(lambda _: executor.submit(done.set))
    assert done.wait(DEADLINE)


def test_wait_returns_at_the_first_completed(make: Make, gate: Gate) -> None:
    executor = make(2)
    running = gate.hold(executor)
    quick = executor.submit(int)
    done, pending = wait([running, quick], DEADLINE, FIRST_COMPLETED)
    assert (done, pending) == ({quick}, {running})


def test_wait_returns_at_the_first_exception(make: Make, gate: Gate) -> None:
    executor = make(2)
    running = gate.hold(executor)
    failing = executor.submit(_fail)
    done, pending = wait([running, failing], DEADLINE, FIRST_EXCEPTION)
    assert (done, pending) == ({failing}, {running})


def test_wait_for_all_counts_results_and_exceptions(make: Make) -> None:
    executor = make(2)
    futures: set[Future[Any]] = {executor.submit(int), executor.submit(_fail)}
    assert wait(futures, DEADLINE, ALL_COMPLETED) == (futures, set())


def test_wait_gives_up_at_its_timeout(make: Make, gate: Gate) -> None:
    running = gate.hold(make(1))
    assert wait([running], timeout=0) == (set(), {running})


def test_wait_takes_the_same_future_twice(make: Make) -> None:
    future = make(1).submit(int)
    assert wait([future, future], DEADLINE) == ({future}, set())


def test_as_completed_yields_each_future_once_as_it_ends(make: Make, gate: Gate) -> None:
    executor = make(2)
    running = gate.hold(executor)
    quick = executor.submit(int)
    order = as_completed([running, quick, running], DEADLINE)
    assert next(order) is quick
    gate.release()
    assert list(order) == [running]


def test_as_completed_gives_up_at_its_timeout(make: Make, gate: Gate) -> None:
    running = gate.hold(make(1))
    with pytest.raises(TimeoutError, match=r"1 \(of 1\) futures unfinished"):
        next(as_completed([running], timeout=0))


def test_a_queued_call_has_every_field_of_a_plain_future(make_ours: Make, gate: Gate) -> None:
    executor = make_ours(1)
    gate.hold(executor)
    queued = executor.submit(int)
    for name, value in vars(Future()).items():
        field = getattr(queued, name)
        assert type(field) is type(value)
        assert field == value or name == "_condition"


def test_a_call_that_its_holder_marks_as_running_still_ends(make_ours: Make, gate: Gate) -> None:
    executor = make_ours(1)
    gate.hold(executor)
    queued = executor.submit(int)
    assert queued.set_running_or_notify_cancel()
    assert not queued.done()
    gate.release()
    assert queued.result(DEADLINE) == 0
    assert queued.done()


def test_asyncio_does_not_take_a_submitted_call_for_its_own(make: Make) -> None:
    assert not asyncio.isfuture(make(1).submit(int))


def test_whoever_waits_for_a_cancelled_queued_call_is_told(make: Make, gate: Gate) -> None:
    executor, results, waiting = make(1), list[object](), threading.Event()
    gate.hold(executor)
    queued = executor.submit(int)

    def await_it() -> None:
        waiting.set()
        results.append(wait([queued], DEADLINE).done)
        results.append(list(as_completed([queued], DEADLINE)))

    waiter = threading.Thread(target=await_it)
    waiter.start()
    assert waiting.wait(DEADLINE)
    queued.cancel()
    gate.release()
    waiter.join(DEADLINE)
    assert results == [{queued}, [queued]]


def test_whoever_waits_for_a_call_cancelled_by_shutdown_is_told(make_ours: Make, gate: Gate) -> None:
    """The stdlib takes such calls out of its queue and notifies no waiter: there `wait` never returns."""
    executor = make_ours(1)
    gate.hold(executor)
    queued = [executor.submit(int) for _ in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    gate.release()
    assert wait(queued, DEADLINE).done == set(queued)
    assert set(as_completed(queued, DEADLINE)) == set(queued)


def test_a_future_that_its_holder_settled_costs_no_worker(
    make_ours: Make, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """The stdlib's worker ends with the `InvalidStateError`, and later calls on that thread never run."""
    executor = make_ours(1)
    gate.hold(executor).set_result("settled by hand")
    gate.release()
    assert executor.submit(pow, 2, 2).result(DEADLINE) == 4
