"""Promises that only a rare interleaving breaks; see `tests.race` for how these are repeated.

Each test makes its executors in its own body, so that every repeat begins anew.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from typing import Any

import pytest

from .support import DEADLINE, Kind

pytestmark = pytest.mark.race


def _nested(executor: ThreadPoolExecutor, depth: int) -> int:
    return 0 if depth == 0 else 1 + executor.submit(_nested, executor, depth - 1).result()


def _submit_until_refused(executor: ThreadPoolExecutor, futures: list[Future[int]]) -> None:
    with contextlib.suppress(RuntimeError):
        while len(futures) < 10_000:
            futures.append(executor.submit(int))


@pytest.mark.parametrize("cancel_futures", [False, True])
def test_every_call_accepted_before_a_shutdown_comes_to_an_end(kind: Kind, cancel_futures: bool) -> None:
    executor, futures = kind.build(2), list[Future[int]]()
    submitting = threading.Thread(target=_submit_until_refused, args=(executor, futures))
    submitting.start()
    executor.shutdown(wait=True, cancel_futures=cancel_futures)
    submitting.join(DEADLINE)
    assert all(future.done() for future in futures)
    assert cancel_futures or not any(future.cancelled() for future in futures)


def test_a_call_that_is_cancelled_as_a_worker_frees_up_runs_or_is_cancelled_never_both(kind: Kind) -> None:
    ran = list[int]()
    with kind.build(1) as executor:
        futures = [executor.submit(ran.append, number) for number in range(20)]
        cancelled = {number for number in reversed(range(20)) if futures[number].cancel()}
    assert sorted(ran) == [number for number in range(20) if number not in cancelled]
    assert {number for number in range(20) if futures[number].cancelled()} == cancelled


def test_whoever_waits_is_told_of_every_end_however_it_came(kind: Kind) -> None:
    with kind.build(2) as executor:
        futures = [executor.submit(int) for _ in range(20)]
        canceller = threading.Thread(target=lambda: [future.cancel() for future in reversed(futures)])
        canceller.start()
        assert set(as_completed(futures, DEADLINE)) == set(futures)
        canceller.join(DEADLINE)


def test_queued_calls_of_an_executor_nobody_keeps_all_run(kind: Kind) -> None:
    executor = kind.build(2)
    futures = [executor.submit(pow, 2, number) for number in range(20)]
    del executor
    assert [future.result(DEADLINE) for future in futures] == [2**number for number in range(20)]


def test_a_call_comes_to_a_worker_that_is_about_to_leave(ours: Kind) -> None:
    """The stdlib's workers never leave; with no idle time each of ours is on its way out at once."""
    with ours.build(2, idle_timeout=0, min_workers=0) as executor:
        for number in range(10):
            assert executor.submit(abs, -number).result(DEADLINE) == number


def test_callbacks_added_as_the_call_ends_run_exactly_once(kind: Kind) -> None:
    calls = list[Future[int]]()
    with kind.build(2) as executor:
        futures = [executor.submit(int) for _ in range(20)]
        for future in futures:
            future.add_done_callback(calls.append)
    assert len(calls) == 20
    assert set(calls) == set(futures)


def test_callbacks_added_as_a_call_ends_that_was_waited_for_run_exactly_once(kind: Kind) -> None:
    added, calls, gate = 0, list[Future[int]](), threading.Event()
    with kind.build(1) as executor:
        executor.submit(gate.wait, DEADLINE)
        futures = [executor.submit(int) for _ in range(10)]
        assert wait(futures, 0).not_done
        gate.set()
        for future in futures:
            while not future.done():
                future.add_done_callback(calls.append)
                added += 1
    assert len(calls) == added


def test_nested_waits_of_all_workers_get_through(ours: Kind) -> None:
    """On the stdlib class they hang."""
    with ours.build(2) as executor:
        futures = [executor.submit(_nested, executor, 3) for _ in range(6)]
        assert [future.result(DEADLINE) for future in futures] == [3] * 6


def test_a_nested_wait_for_a_call_that_others_cancel_comes_to_an_end(ours: Kind) -> None:
    """On the stdlib class it hangs unless the cancel comes in time."""
    inner: Future[Future[int]] = Future()

    def outer() -> Any:
        future = executor.submit(int)
        inner.set_result(future)
        try:
            return future.result()
        except CancelledError:
            return "cancelled"

    with ours.build(1) as executor:
        waiting = executor.submit(outer)
        was_cancelled = inner.result(DEADLINE).cancel()
        assert waiting.result(DEADLINE) == ("cancelled" if was_cancelled else 0)


def test_results_of_calls_that_submit_their_successor_all_arrive(kind: Kind) -> None:
    done = threading.Event()
    with kind.build(2) as executor:

        def chain(length: int) -> None:
            if length == 0:
                done.set()
            else:
                executor.submit(chain, length - 1)

        executor.submit(chain, 20)
        assert done.wait(DEADLINE)


def test_several_threads_wait_for_the_same_calls(kind: Kind) -> None:
    counts = list[int]()
    with kind.build(2) as executor:
        futures = [executor.submit(int) for _ in range(10)]
        waiters = [
            threading.Thread(target=lambda: counts.append(len(wait(futures, DEADLINE).done)))
            for _ in range(3)
        ]
        for waiter in waiters:
            waiter.start()
        for waiter in waiters:
            waiter.join(DEADLINE)
    assert counts == [10, 10, 10]


def test_threads_that_ask_for_the_same_results_as_the_calls_end_get_all_of_them(kind: Kind) -> None:
    results = list[list[int]]()
    with kind.build(2) as executor:
        futures = [executor.submit(abs, number) for number in range(10)]
        asking = [
            threading.Thread(target=lambda: results.append([f.result(DEADLINE) for f in futures]))
            for _ in range(3)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(DEADLINE)
    assert results == [list(range(10))] * 3
