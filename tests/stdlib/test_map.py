"""`map`: order, eager submission, timeout, exceptions, early close."""

from __future__ import annotations

import contextlib
import gc
import itertools
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, Kind

buffered = pytest.mark.skipif(sys.version_info < (3, 14), reason="map has buffersize from 3.14 on")


class _Thing:
    pass


def _setter(event: threading.Event) -> Callable[[object], None]:
    return lambda _: event.set()


def _thing(_: int) -> _Thing:
    return _Thing()


def test_results_come_in_the_order_of_the_arguments(make: Make) -> None:
    assert list(make(3).map(pow, range(50), range(50))) == [n**n for n in range(50)]


def test_results_keep_their_order_when_a_later_call_ends_first(make: Make, gate: Gate) -> None:
    def call(number: int) -> int:
        if number == 0:
            gate()
        else:
            gate.release()
        return number

    assert list(make(2).map(call, [0, 1])) == [0, 1]


def test_the_shortest_iterable_ends_the_map(make: Make) -> None:
    assert list(make(1).map(operator.add, [1, 2, 3], [10, 20])) == [11, 22]


@pytest.mark.parametrize("iterables", [(), ([],)])
def test_nothing_to_map_gives_nothing(make: Make, iterables: tuple[list[int], ...]) -> None:
    assert list(cast("Any", make(1)).map(str, *iterables)) == []


def test_a_chunksize_changes_nothing_for_threads(make: Make) -> None:
    assert list(make(2).map(operator.neg, range(10), chunksize=3)) == [-n for n in range(10)]


def test_calls_run_though_nobody_iterates(make: Make) -> None:
    executor, seen = make(2), list[int]()
    executor.map(seen.append, range(10))
    executor.shutdown(wait=True)
    assert sorted(seen) == list(range(10))


def test_the_arguments_are_taken_at_once_and_in_the_calling_thread(make: Make, gate: Gate) -> None:
    executor, takers = make(1), list[threading.Thread]()

    def numbers() -> Iterator[int]:
        for number in range(5):
            takers.append(threading.current_thread())
            yield number

    gate.hold(executor)
    executor.map(str, numbers())
    assert takers == [threading.current_thread()] * 5


def test_an_error_in_the_arguments_is_raised_by_map_itself(make: Make) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise LookupError("no more numbers")

    with pytest.raises(LookupError, match="no more numbers"):
        make(1).map(str, numbers())


def test_an_exception_comes_at_its_place_and_ends_the_iteration(make: Make) -> None:
    results = make(2).map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
    assert [next(results), next(results)] == [(0, 1), (0, 1)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_after_an_exception_the_queued_rest_never_runs(make: Make, gate: Gate) -> None:
    executor, ran = make(1), list[int]()

    def call(number: int) -> None:
        if number == 0:
            raise LookupError
        gate()
        ran.append(number)

    results = executor.map(call, range(5))
    with pytest.raises(LookupError):
        next(results)
    gate.release()
    executor.shutdown(wait=True)
    assert ran in ([], [1])  # 1 may have started before the exception was fetched


def test_a_timeout_raises_and_cancels_the_queued_rest(make: Make, gate: Gate) -> None:
    executor, log = make(1), list[str]()

    def call(name: str) -> None:
        log.append(name)
        gate()

    first = executor.submit(call, "first")
    assert gate.started.wait(DEADLINE)
    with contextlib.closing(cast("Any", executor.map(call, ["second", "third"], timeout=0))) as results:
        with pytest.raises(TimeoutError):
            next(results)
    gate.release()
    first.result(DEADLINE)
    executor.shutdown(wait=True)
    assert log == ["first"]


def test_a_timeout_that_is_not_reached_changes_nothing(make: Make) -> None:
    assert list(make(2).map(str, range(4), timeout=DEADLINE)) == ["0", "1", "2", "3"]


def test_closing_the_iterator_cancels_the_queued_rest(make: Make, gate: Gate) -> None:
    executor, ran = make(1), list[int]()

    def call(number: int) -> int:
        if number == 1:
            gate()
        ran.append(number)
        return number

    results = cast("Any", executor.map(call, range(6)))
    assert next(results) == 0
    assert gate.started.wait(DEADLINE)
    results.close()
    gate.release()
    executor.shutdown(wait=True)
    assert ran == [0, 1]


def test_map_after_shutdown_says_so(make: Make) -> None:
    executor = make(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=r"^cannot schedule new futures after shutdown$"):
        executor.map(str, [1])


def test_the_iterator_keeps_no_result_that_it_gave_out(make: Make) -> None:
    for result in make(1).map(_thing, range(5)):
        died = threading.Event()
        watch = weakref.ref(result, _setter(died))
        del result
        gc.collect()
        assert died.wait(DEADLINE), watch


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="map has buffersize from 3.14 on")
def test_buffersize_is_refused_where_the_stdlib_refuses_it(make: Make) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'buffersize'"):
        cast("Any", make(1)).map(str, [1], buffersize=1)


@buffered
@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_a_buffered_map_gives_the_same_results(make: Make, size: int) -> None:
    assert list(cast("Any", make(2)).map(operator.add, range(4), range(4), buffersize=size)) == [0, 2, 4, 6]


@buffered
def test_a_buffered_map_takes_only_as_many_arguments_as_it_buffers(make: Make) -> None:
    executor, numbers = make(2), iter(range(10))
    executor_map = cast("Any", executor).map
    executor_map(str, numbers, buffersize=3)
    executor.shutdown(wait=True)
    assert next(numbers) == 3


@buffered
def test_a_buffered_map_runs_over_an_endless_iterable(make: Make) -> None:
    results = cast("Any", make(2)).map(str, itertools.count(), buffersize=2)
    assert list(itertools.islice(results, 5)) == ["0", "1", "2", "3", "4"]
    results.close()


@buffered
@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        (0, ValueError, "buffersize must be None or > 0"),
        (-1, ValueError, "buffersize must be None or > 0"),
        ("2", TypeError, "buffersize must be an integer or None"),
        (2.0, TypeError, "buffersize must be an integer or None"),
    ],
)
def test_a_wrong_buffersize_is_refused(make: Make, size: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        cast("Any", make(1)).map(str, [1], buffersize=size)


def test_map_takes_the_parameters_of_the_stdlib(kind: Kind, make: Make) -> None:
    options = {"timeout": None, "chunksize": 1}
    if sys.version_info >= (3, 14):
        options["buffersize"] = None
    assert list(cast("Any", make(1)).map(str, [1], **options)) == ["1"]
