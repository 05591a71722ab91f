"""Calls that wait for other calls of their own pool.

On the stdlib class every test here hangs: the worker waits for a call that only it could run.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from .conftest import Make
from .support import DEADLINE, Gate


def _nested(executor: ThreadPoolExecutor, depth: int) -> int:
    if depth == 0:
        return 0
    return 1 + executor.submit(_nested, executor, depth - 1).result()


def test_the_only_worker_runs_the_queued_call_it_waits_for(make_ours: Make) -> None:
    executor = make_ours(1)

    def outer() -> tuple[threading.Thread, threading.Thread]:
        return threading.current_thread(), executor.submit(threading.current_thread).result()

    first, second = executor.submit(outer).result(DEADLINE)
    assert first is second


@pytest.mark.parametrize("workers", [1, 2])
def test_waits_nest_deeper_than_there_are_workers(make_ours: Make, workers: int) -> None:
    executor = make_ours(workers)
    assert executor.submit(_nested, executor, 20).result(DEADLINE) == 20


def test_waiting_for_the_exception_of_a_queued_call_runs_it_too(make_ours: Make) -> None:
    executor = make_ours(1)

    def outer() -> BaseException | None:
        return executor.submit(divmod, 1, 0).exception()

    assert isinstance(executor.submit(outer).result(DEADLINE), ZeroDivisionError)


def test_a_map_inside_a_call_gets_through(make_ours: Make) -> None:
    executor = make_ours(1)
    total = executor.submit(lambda: sum(executor.map(abs, range(-10, 0)))).result(DEADLINE)
    assert total == 55


def test_all_workers_may_wait_for_queued_calls_at_once(make_ours: Make) -> None:
    executor = make_ours(4)
    futures = [executor.submit(_nested, executor, 3) for _ in range(20)]
    assert [future.result(DEADLINE) for future in futures] == [3] * 20


def test_a_call_run_by_the_worker_that_waits_runs_once(make_ours: Make) -> None:
    executor, ran = make_ours(1), list[int]()

    def outer() -> None:
        for number in range(50):
            executor.submit(ran.append, number).result()

    executor.submit(outer).result(DEADLINE)
    executor.shutdown(wait=True)
    assert ran == list(range(50))


def test_a_wait_with_a_timeout_keeps_its_deadline(make_ours: Make) -> None:
    """Running the call could take longer than the caller is ready to wait, so the worker waits instead."""
    executor = make_ours(1)

    def outer() -> Future[int]:
        inner = executor.submit(int)
        with pytest.raises(TimeoutError):
            inner.result(timeout=0)
        return inner

    assert executor.submit(outer).result(DEADLINE).result(DEADLINE) == 0


def test_the_exception_of_a_call_run_while_waiting_belongs_to_that_call(make_ours: Make) -> None:
    executor = make_ours(1)

    def outer() -> str:
        inner: Future[Any] = executor.submit(divmod, 1, 0)
        with pytest.raises(ZeroDivisionError):
            inner.result()
        return "outer goes on"

    assert executor.submit(outer).result(DEADLINE) == "outer goes on"


def test_a_call_of_another_pool_is_waited_for_not_run(make_ours: Make, gate: Gate) -> None:
    first, second = make_ours(1), make_ours(1)
    gate.hold(second)
    foreign = second.submit(threading.current_thread)
    waiting = first.submit(foreign.result)
    gate.release()
    thread = waiting.result(DEADLINE)
    assert thread is second.submit(threading.current_thread).result(DEADLINE)


def test_a_cancelled_call_is_not_run_by_the_worker_that_waits(make_ours: Make) -> None:
    executor, ran = make_ours(1), list[int]()

    def outer() -> bool:
        inner = executor.submit(ran.append, 1)
        inner.cancel()
        return inner.cancelled()

    assert executor.submit(outer).result(DEADLINE)
    executor.shutdown(wait=True)
    assert ran == []
