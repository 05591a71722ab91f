"""Mistakes are told where they are made, and with what to do instead."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

import pytest

import hybridrt
from hybridrt import offload


async def coroutine_function() -> None: ...


def generator_function() -> Iterator[int]:
    yield 1


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 1


class Asynchronous:
    async def __call__(self) -> None: ...


class Generating:
    def __call__(self) -> Iterator[int]:
        yield 1


@wraps(coroutine_function)
def wrapper(*args: Any) -> Any:
    return coroutine_function(*args)


COROUTINE_FUNCTIONS = {
    "function": coroutine_function,
    "partial": partial(coroutine_function),
    "object": Asynchronous(),
    "method": Asynchronous().__call__,
    "wrapper": wrapper,
    "offloaded": partial(offload(len)),
}


@pytest.mark.parametrize("fn", COROUTINE_FUNCTIONS.values(), ids=COROUTINE_FUNCTIONS)
def test_a_coroutine_function_is_refused(fn: Any) -> None:
    with pytest.raises(TypeError, match=r"a synchronous function, got the coroutine function .*await it"):
        offload(fn)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="nothing marks functions there")
def test_a_function_that_is_marked_as_a_coroutine_function_is_refused() -> None:
    def marked() -> Any:
        return coroutine_function()

    inspect.markcoroutinefunction(marked)
    with pytest.raises(TypeError, match="got the coroutine function"):
        offload(marked)


def test_an_asynchronous_generator_function_is_refused() -> None:
    told = r"a synchronous function, got the asynchronous generator function .*; iterate over it on the loop"
    with pytest.raises(TypeError, match=told):
        offload(asynchronous_generator)


@pytest.mark.parametrize("fn", [generator_function, partial(generator_function), Generating()])
def test_a_generator_function_becomes_an_async_iterator(fn: Any) -> None:
    assert inspect.isasyncgen(offload(fn)())


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_a_class_or_static_method_of_a_coroutine_function_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="a synchronous function, got the coroutine function"):
        offload(kind(coroutine_function))


@pytest.mark.parametrize("thing", [5, "lane", property(len), object()])
def test_what_cannot_be_called_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="offload needs a synchronous function, got"):
        offload(thing)


def test_an_offloaded_function_is_not_offloaded_again() -> None:
    with pytest.raises(TypeError, match=r"offloaded already; use \.options"):
        offload(offload(len))


REFUSED = {
    **{name: (fn, "coroutine function") for name, fn in COROUTINE_FUNCTIONS.items()},
    "generator function": (generator_function, r"generator function .*decorate it with @offload"),
    "number": (5, "offload needs a synchronous function, got 5"),
    "nothing": (None, "offload needs a synchronous function, got None"),
}


@pytest.mark.parametrize(("fn", "told"), REFUSED.values(), ids=REFUSED)
async def test_the_runtime_refuses_what_offload_refuses(fn: Any, told: str) -> None:
    async with hybridrt.Runtime() as runtime:
        with pytest.raises(TypeError, match=told):
            await runtime.offload(fn)


def test_an_unknown_option_is_told_with_those_there_are() -> None:
    with pytest.raises(TypeError, match=r"no option time_out; it has .*\btimeout\b"):
        offload(time_out=1)  # type: ignore[call-overload]  # the mistake under test


def test_an_unknown_option_of_options_is_told_too() -> None:
    with pytest.raises(TypeError, match=r"no option workers; it has "):
        offload(len).options(workers=1)


WRONG_TYPES = [
    ("timeout", "5"),
    ("timeout", True),
    ("queue_timeout", [1]),
    ("limit", 1.5),
    ("limit", True),
    ("limit", "2"),
    ("pure", 1),
    ("abandon_on_cancel", "no"),
]
WRONG_VALUES = [
    ("timeout", -1),
    ("timeout", math.nan),
    ("queue_timeout", -0.001),
    ("queue_timeout", math.nan),
    ("limit", 0),
    ("limit", -3),
    ("where", "moon"),
    ("where", None),
]


@pytest.mark.parametrize(("option", "value"), WRONG_TYPES)
def test_an_option_of_the_wrong_type_is_told_at_once(option: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{option} .*, got {value!r}".replace("[", r"\[")):
        offload(**{option: value})


@pytest.mark.parametrize(("option", "value"), WRONG_VALUES)
def test_an_option_out_of_range_is_told_at_once(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{option} .*, got {value!r}"):
        offload(**{option: value})


def test_a_placement_of_a_later_version_says_so() -> None:
    with pytest.raises(
        NotImplementedError, match=r"where='cluster' is not there yet; use 'isolate'.*'thread'"
    ):
        offload(where="cluster")


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", 1.0), ("timeout", 0), ("queue_timeout", 1.0), ("limit", 2), ("lane", "a"),
     ("abandon_on_cancel", True)],
)  # fmt: skip
def test_a_call_that_runs_at_once_takes_no_option_of_a_queue(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"so {option} has no meaning .*got {option}=.*where='thread'"):
        offload(where="inline", **{option: value})


def test_an_isolated_function_has_to_be_declared_pure() -> None:
    with pytest.raises(ValueError, match=r"where='isolate' needs pure=True"):
        offload(where="isolate")


@pytest.mark.parametrize(
    "options", [{}, {"pure": True, "where": "thread"}, {"pure": True, "where": "inline"}]
)
def test_isolation_is_refused_where_nothing_is_isolated(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"got isolation='process' with .*which never isolates; use pure=True"
    ):
        offload(isolation="process", **options)


def test_an_unknown_isolation_is_told_with_those_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"isolation must be one of 'auto', 'process', 'interpreter', got 'fork'"
    ):
        offload(isolation="fork", pure=True)  # type: ignore[call-overload]  # the mistake under test


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there interpreters can be had")
def test_an_interpreter_is_refused_where_there_are_none() -> None:
    with pytest.raises(ValueError, match=r"needs Python 3\.14 or later.*use 'auto' or 'process'"):
        offload(isolation="interpreter", pure=True)


@pytest.mark.parametrize("value", [0, 0.0, 1, math.inf, None])
def test_any_time_from_zero_up_is_taken(value: Any) -> None:
    offload(len, timeout=value, queue_timeout=value)


async def test_an_infinite_timeout_is_none() -> None:
    assert await offload(len, timeout=math.inf, queue_timeout=math.inf)("abc") == 3


def test_awaiting_outside_of_a_loop_fails_as_asyncio_does() -> None:
    coro = offload(len)("abc")
    with pytest.raises(RuntimeError, match="no running event loop"):
        coro.send(None)


async def test_a_wrong_call_fails_as_a_plain_one() -> None:
    @offload
    def one(argument: int) -> int:
        return argument

    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given"):
        await one(1, 2)  # type: ignore[call-arg]  # the mistake under test


@pytest.mark.parametrize("value", [10**400, 10**5000], ids=["400 digits", "5000 digits"])
def test_a_time_beyond_all_floats_is_told_at_once(value: int) -> None:
    told = r"timeout is in seconds and must be a number >= 0 or None, got more than a float can hold; .*inf"
    with pytest.raises(ValueError, match=told):
        offload(len, timeout=value)


def test_an_unknown_place_is_told_with_those_that_are_there() -> None:
    with pytest.raises(ValueError, match=r"'auto', 'inline', 'thread', 'isolate', got 'moon'"):
        offload(where="moon")  # type: ignore[call-overload]  # the mistake under test
