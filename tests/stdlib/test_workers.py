"""Workers: how many, their names, their initializer."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from typing import Any, cast

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, Kind, threads_of

BROKEN = "A thread initializer failed, the thread pool is not usable anymore"


def test_it_is_a_thread_pool_executor(make: Make) -> None:
    assert isinstance(make(1), ThreadPoolExecutor)


@pytest.mark.parametrize("number", [0, -1, -100])
def test_max_workers_below_one_is_refused(kind: Kind, number: int) -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        kind.build(number)


def test_max_workers_that_is_no_number_is_refused(kind: Kind) -> None:
    with pytest.raises(TypeError):
        kind.build("3")


def test_the_arguments_come_in_the_order_of_the_stdlib(make: Make) -> None:
    seen = list[object]()
    executor = make(1, "prefix", lambda *args: seen.append(args), (1, 2))
    assert executor.submit(threading.current_thread).result(DEADLINE).name == "prefix_0"
    assert seen == [(1, 2)]


def test_the_arguments_have_the_names_of_the_stdlib(make: Make) -> None:
    executor = make(max_workers=1, thread_name_prefix="prefix", initializer=int, initargs=())
    assert executor.submit(threading.current_thread).result(DEADLINE).name == "prefix_0"


def test_threads_start_with_the_first_call_not_before(make: Make) -> None:
    before = threading.active_count()
    make(4, "lazy")
    assert threading.active_count() == before


def test_threads_are_named_by_prefix_and_number(make: Make) -> None:
    names = {thread.name for thread in threads_of(make(3, "Special"), 3)}
    assert names == {"Special_0", "Special_1", "Special_2"}


def test_without_a_prefix_each_executor_has_its_own(make: Make) -> None:
    names = [make(1).submit(threading.current_thread).result(DEADLINE).name for _ in range(2)]
    found = [re.search(r"ThreadPoolExecutor-(\d+)_0$", name) for name in names]
    assert all(found), names
    assert names[0] != names[1]


def test_an_idle_worker_is_used_again(make: Make) -> None:
    executor = make(4)
    threads = {executor.submit(threading.current_thread).result(DEADLINE) for _ in range(20)}
    # A worker may not be back in its idle state when the next call comes, so a few may have started.
    assert len(threads) <= 4
    assert executor.submit(threading.current_thread).result(DEADLINE) in threads


def test_the_initializer_runs_once_in_every_worker_before_its_first_call(make: Make) -> None:
    started = list[threading.Thread]()
    executor = make(3, initializer=lambda: started.append(threading.current_thread()))
    threads = threads_of(executor, 3)
    assert threads_of(executor, 3) <= threads
    assert sorted(thread.name for thread in started) == sorted(thread.name for thread in threads)


def test_thread_locals_and_context_variables_of_the_initializer_reach_the_calls(make: Make) -> None:
    local, variable = threading.local(), contextvars.ContextVar("variable", default="unset")

    def prepare(value: str) -> None:
        local.value = value
        variable.set(value)

    executor = make(1, initializer=prepare, initargs=("set",))
    assert executor.submit(lambda: (local.value, variable.get())).result(DEADLINE) == ("set", "set")
    assert executor.submit(lambda: (local.value, variable.get())).result(DEADLINE) == ("set", "set")


def test_an_initializer_must_be_callable(kind: Kind) -> None:
    with pytest.raises(TypeError, match=r"^initializer must be a callable$"):
        kind.build(1, initializer=cast("Any", 42))


def _fails_behind(gate: Gate, error: BaseException) -> Callable[[], None]:
    def initializer() -> None:
        gate()
        raise error

    return initializer


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_a_failing_initializer_breaks_the_pool(
    make: Make, gate: Gate, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    executor = make(1, initializer=_fails_behind(gate, error))
    pending = [executor.submit(int) for _ in range(5)]
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        gate.release()
        for future in pending:
            broken = future.exception(DEADLINE)
            assert isinstance(broken, BrokenThreadPool)
            assert str(broken) == BROKEN
    assert "Exception in initializer:" in caplog.text


def test_a_broken_pool_refuses_calls_and_still_shuts_down(
    make: Make, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    executor = make(2, initializer=_fails_behind(gate, ValueError("no")))
    gate.release()
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"), pytest.raises(BrokenExecutor):
        executor.submit(int).result(DEADLINE)
    for call in (lambda: executor.submit(int), lambda: executor.map(str, [1])):
        with pytest.raises(BrokenThreadPool, match=f"^{BROKEN}$"):
            call()
    executor.shutdown(wait=True)
