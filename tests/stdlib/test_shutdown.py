"""`shutdown(wait, cancel_futures)` in all combinations, and the context manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, cast

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, Kind, threads_of

AFTER_SHUTDOWN = r"^cannot schedule new futures after shutdown$"


def _in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def _await_refusal(executor: ThreadPoolExecutor) -> None:
    """Return once another thread's `shutdown` has closed the executor."""
    with pytest.raises(RuntimeError, match=AFTER_SHUTDOWN):
        _submit_for_ever(executor)


def _submit_for_ever(executor: ThreadPoolExecutor) -> NoReturn:
    while True:
        executor.submit(int).cancel()


@pytest.mark.parametrize("cancel_futures", [False, True])
@pytest.mark.parametrize("wait", [False, True])
def test_submit_after_shutdown_says_so(make: Make, wait: bool, cancel_futures: bool) -> None:
    executor = make(1)
    executor.submit(int).result(DEADLINE)
    executor.shutdown(wait=wait, cancel_futures=cancel_futures)
    with pytest.raises(RuntimeError, match=AFTER_SHUTDOWN):
        executor.submit(int)


def test_an_executor_that_was_never_used_shuts_down(make: Make) -> None:
    executor = make()
    executor.shutdown()
    with pytest.raises(RuntimeError, match=AFTER_SHUTDOWN):
        executor.submit(int)


def test_shutdown_by_default_waits_for_running_and_queued_calls(make: Make, gate: Gate) -> None:
    executor, log = make(1), list[object]()
    running = gate.hold(executor)
    queued = [executor.submit(log.append, number) for number in range(5)]

    def close() -> None:
        executor.shutdown()
        log.append(("closed", running.done(), all(future.done() for future in queued)))

    closing = _in_thread(close)
    _await_refusal(executor)
    gate.release()
    closing.join(DEADLINE)
    assert log == [0, 1, 2, 3, 4, ("closed", True, True)]


def test_shutdown_waits_until_the_workers_are_gone(make: Make) -> None:
    executor = make(3)
    threads = threads_of(executor, 3)
    executor.shutdown(wait=True)
    assert not any(thread.is_alive() for thread in threads)


def test_shutdown_without_wait_returns_at_once_and_the_queued_calls_still_run(make: Make, gate: Gate) -> None:
    executor = make(1)
    running = gate.hold(executor, "running")
    queued = [executor.submit(pow, 2, n) for n in range(3)]
    executor.shutdown(wait=False)
    assert not running.done()
    gate.release()
    assert running.result(DEADLINE) == "running"
    assert [future.result(DEADLINE) for future in queued] == [1, 2, 4]


def test_shutdown_without_wait_lets_the_workers_go_when_the_work_is_done(make: Make, gate: Gate) -> None:
    executor = make(2)
    threads = threads_of(executor, 2)
    gate.hold(executor)
    executor.shutdown(wait=False)
    gate.release()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_cancel_futures_cancels_what_is_queued_and_nothing_that_runs(make: Make, gate: Gate) -> None:
    executor, ran = make(1), list[int]()
    running = gate.hold(executor, "running")
    queued = [executor.submit(ran.append, number) for number in range(20)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)
    assert running.running()
    gate.release()
    assert running.result(DEADLINE) == "running"
    executor.shutdown(wait=True)
    assert ran == []


def test_cancel_futures_with_wait_waits_for_what_runs(make: Make, gate: Gate) -> None:
    executor, log = make(1), list[object]()
    running = gate.hold(executor)
    queued = executor.submit(log.append, "never")

    def close() -> None:
        executor.shutdown(wait=True, cancel_futures=True)
        log.append(("closed", running.done(), queued.cancelled()))

    closing = _in_thread(close)
    _await_refusal(executor)
    gate.release()
    closing.join(DEADLINE)
    assert log == [("closed", True, True)]


def test_the_callbacks_of_futures_cancelled_by_shutdown_run(make: Make, gate: Gate) -> None:
    executor, seen = make(1), list[object]()
    gate.hold(executor)
    queued = executor.submit(int)
    queued.add_done_callback(seen.append)
    executor.shutdown(wait=False, cancel_futures=True)
    assert seen == [queued]


def test_waiting_again_after_a_shutdown_without_wait_waits(make: Make, gate: Gate) -> None:
    executor = make(1)
    running = gate.hold(executor)
    executor.shutdown(wait=False)
    closing = _in_thread(executor.shutdown)
    gate.release()
    closing.join(DEADLINE)
    assert running.done()


def test_shutting_down_twice_is_harmless(make: Make) -> None:
    executor = make(2)
    executor.submit(int).result(DEADLINE)
    executor.shutdown()
    executor.shutdown(cancel_futures=True)


def test_what_to_cancel_is_said_by_keyword_only(make: Make) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        cast("Any", make(1)).shutdown(True, True)


def test_shutdown_ends_though_a_call_was_cancelled_just_before(make: Make) -> None:
    executor = make(1)
    executor.submit(int).result(DEADLINE)
    executor.submit(int).cancel()
    closing = _in_thread(executor.shutdown)
    closing.join(DEADLINE)
    assert not closing.is_alive()


def test_a_call_may_shut_its_own_executor_down_without_wait(make: Make) -> None:
    executor = make(1)
    executor.submit(executor.shutdown, wait=False).result(DEADLINE)
    with pytest.raises(RuntimeError, match=AFTER_SHUTDOWN):
        executor.submit(int)


def test_a_call_that_submits_after_shutdown_is_refused(make: Make, gate: Gate) -> None:
    executor = make(1)

    def late() -> None:
        gate()
        executor.submit(int)

    future = executor.submit(late)
    assert gate.started.wait(DEADLINE)
    executor.shutdown(wait=False)
    gate.release()
    assert str(future.exception(DEADLINE)) == "cannot schedule new futures after shutdown"


def test_many_short_calls_are_all_done_after_shutdown(make: Make) -> None:
    executor = make(5)
    futures = [executor.submit(pow, 2, 3) for _ in range(500)]
    executor.shutdown()
    assert all(future.done() and future.result() == 8 for future in futures)


def test_the_with_block_gives_the_executor_and_waits_at_its_end(kind: Kind) -> None:
    built = kind.build(3)
    with built as executor:
        assert executor is built
        threads = threads_of(executor, 3)
        futures = [executor.submit(pow, 2, n) for n in range(50)]
    assert all(future.done() for future in futures)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(RuntimeError, match=AFTER_SHUTDOWN):
        executor.submit(int)


def test_the_with_block_lets_exceptions_through_and_finishes_the_calls(kind: Kind) -> None:
    def leave() -> None:
        with kind.build(1) as executor:
            futures.append(executor.submit(pow, 2, 2))
            raise LookupError("out")

    futures = list[Any]()
    with pytest.raises(LookupError, match="out"):
        leave()
    assert futures[0].result(0) == 4
