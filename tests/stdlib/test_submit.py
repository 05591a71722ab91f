"""`submit`: what it accepts, what the future brings back."""

from __future__ import annotations

import asyncio
import threading
import traceback
from concurrent.futures import CancelledError, Future
from typing import Any, cast

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, original


def _capture(*args: object, **kwargs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    return args, kwargs


def _raise(error: BaseException) -> None:
    raise error


class _Falsy(Exception):
    def __bool__(self) -> bool:
        return False


class _Empty(Exception):
    def __len__(self) -> int:
        return 0


def test_positional_and_keyword_arguments_reach_the_function(make: Make) -> None:
    future = make(1).submit(_capture, 1, 2, key="value")
    assert future.result(DEADLINE) == ((1, 2), {"key": "value"})


def test_the_result_comes_in_a_plain_future(make: Make) -> None:
    future = make(1).submit(pow, 2, 8)
    assert isinstance(future, Future)
    assert future.result(DEADLINE) == 256
    assert future.exception(DEADLINE) is None


def test_keywords_named_like_the_parameters_of_submit_reach_the_function(make: Make) -> None:
    future = make(1).submit(_capture, 1, self=2, fn=3, args=4, kwargs=5, executor=6, future=7)
    assert future.result(DEADLINE) == (
        (1,),
        {"self": 2, "fn": 3, "args": 4, "kwargs": 5, "executor": 6, "future": 7},
    )


def test_submit_without_a_function_says_what_is_missing(make: Make) -> None:
    executor = make(1)
    text = r"submit\(\) missing 1 required positional argument: 'fn'"
    with pytest.raises(TypeError, match=text):
        executor.submit()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=text):
        executor.submit(fn=pow)  # type: ignore[call-arg]


def test_something_that_cannot_be_called_fails_in_its_future(make: Make) -> None:
    future = make(1).submit(cast("Any", 42))
    assert isinstance(future.exception(DEADLINE), TypeError)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        CancelledError(),
        asyncio.CancelledError(),
        TimeoutError(),
        StopIteration(7),
        StopAsyncIteration(),
        _Falsy(),
        _Empty(),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_whatever_a_call_raises_is_in_its_future_and_the_worker_lives_on(
    make: Make, error: BaseException
) -> None:
    executor = make(1)
    future = executor.submit(_raise, error)
    assert original(future.exception(DEADLINE)) is error
    assert not future.cancelled()
    assert executor.submit(pow, 2, 3).result(DEADLINE) == 8


def test_result_raises_the_stop_iteration_of_the_call(make: Make) -> None:
    error = StopIteration(7)
    with pytest.raises(StopIteration) as caught:
        make(1).submit(_raise, error).result(DEADLINE)
    assert caught.value is error


def test_the_traceback_of_an_exception_leads_to_the_line_of_the_user(make: Make) -> None:
    error = make(1).submit(_raise, ValueError("x")).exception(DEADLINE)
    assert error is not None
    assert traceback.extract_tb(error.__traceback__)[-1].name == "_raise"


def test_a_call_runs_on_a_thread_of_the_executor(make: Make) -> None:
    thread = make(1).submit(threading.current_thread).result(DEADLINE)
    assert thread is not threading.current_thread()


def test_a_thread_that_a_call_starts_is_no_daemon(make: Make) -> None:
    """Threads inherit this from the thread that starts them."""
    assert not make(1).submit(lambda: threading.Thread().daemon).result(DEADLINE)


def test_one_worker_runs_its_calls_in_the_order_of_submission(make: Make, gate: Gate) -> None:
    executor, order = make(1), list[int]()
    gate.hold(executor)
    futures = [executor.submit(order.append, number) for number in range(200)]
    gate.release()
    for future in futures:
        future.result(DEADLINE)
    assert order == list(range(200))


def test_one_worker_never_runs_two_calls_at_once(make: Make) -> None:
    executor, inside, clashes = make(1), threading.Lock(), list[int]()

    def call(number: int) -> None:
        if not inside.acquire(blocking=False):
            clashes.append(number)
            return
        sum(range(2_000))
        inside.release()

    for future in [executor.submit(call, number) for number in range(200)]:
        future.result(DEADLINE)
    assert clashes == []


def test_up_to_max_workers_calls_run_at_once(make: Make) -> None:
    executor, barrier = make(3), threading.Barrier(3)
    futures = [executor.submit(barrier.wait, DEADLINE) for _ in range(3)]
    assert sorted(future.result(DEADLINE) for future in futures) == [0, 1, 2]


def test_never_more_than_max_workers_calls_run_at_once(make: Make, gate: Gate) -> None:
    executor, lock, running, peak = make(2), threading.Lock(), [0], [0]

    def call() -> None:
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        gate()
        with lock:
            running[0] -= 1

    futures = [executor.submit(call) for _ in range(20)]
    assert gate.started.wait(DEADLINE)
    gate.release()
    for future in futures:
        future.result(DEADLINE)
    assert peak[0] <= 2


def test_calls_submitted_from_many_threads_all_run_once(make: Make) -> None:
    executor, seen, lock = make(4), list[int](), threading.Lock()

    def note(number: int) -> None:
        with lock:
            seen.append(number)

    def submit(base: int) -> None:
        for number in range(base, base + 50):
            executor.submit(note, number)

    threads = [threading.Thread(target=submit, args=(base,)) for base in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    executor.shutdown(wait=True)
    assert sorted(seen) == list(range(400))


def test_a_call_may_submit_another_without_waiting_for_it(make: Make) -> None:
    executor = make(1)
    inner = executor.submit(lambda: executor.submit(pow, 2, 4)).result(DEADLINE)
    assert inner.result(DEADLINE) == 16
