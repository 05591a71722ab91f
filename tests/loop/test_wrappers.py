"""A function that wraps another one, by `functools.wraps`, is judged by what it does itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from hybridrt import Runtime, offload, pipe
from hybridrt.offloaded import Offloaded


def listed(fn: Callable[..., Iterator[int]]) -> Callable[..., list[int]]:
    @wraps(fn)
    def wrapper(*args: Any) -> list[int]:
        return list(fn(*args))

    return wrapper


def traced(fn: Callable[..., Any]) -> Any:
    @wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def run_to_its_end(fn: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fn)
    def wrapper(*args: Any) -> Any:
        return asyncio.run(fn(*args))

    return wrapper


def count(number: int) -> Iterator[int]:
    yield from range(number)


async def count_up(number: int) -> AsyncIterator[int]:
    for each in range(number):
        yield each


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


@pytest.mark.parametrize("make", [offload, lambda fn: offload(fn, pure=True, where="thread")])
async def test_a_wrapper_that_collects_what_a_generator_yields_is_awaited(make: Any) -> None:
    collect = make(listed(count))
    assert type(collect) is Offloaded
    assert await collect(3) == [0, 1, 2]
    async with Runtime() as runtime:
        assert await runtime.offload(listed(count), 3) == [0, 1, 2]


async def test_a_context_manager_is_made_by_a_function_that_returns() -> None:
    with await offload(contextmanager(count))(1) as number:
        assert number == 0


async def test_a_generator_function_that_wraps_another_function_is_iterated_over() -> None:
    @offload
    @wraps(max)
    def repeat(number: int) -> Iterator[int]:
        yield number

    assert [each async for each in repeat(7)] == [7]


@pytest.mark.parametrize(
    ("fn", "result"),
    [(listed(count), [0, 1, 2]), (traced(double), 6), (run_to_its_end(double), 6)],
    ids=["listed", "traced", "run to its end"],
)
async def test_map_and_pipe_take_what_a_wrapper_returns(fn: Any, result: Any) -> None:
    async with Runtime() as runtime:
        assert await runtime.map(fn, [3]) == [result]
        assert [each async for each in pipe([3], fn)] == [result]


@pytest.mark.parametrize("inner", [count, count_up])
async def test_a_wrapper_that_returns_the_generator_is_told_so(inner: Any) -> None:
    fn, told = traced(inner), r"wraps a generator function and returns the generator; offload what it wraps"
    async with Runtime() as runtime:
        with pytest.raises(TypeError, match=told):
            await runtime.map(fn, [3])
        with pytest.raises(TypeError, match=told):
            assert [each async for each in pipe([3], fn)]
        if inner is count:
            with pytest.raises(TypeError, match=told):
                await runtime.offload(fn, 3)
            with pytest.raises(TypeError, match=told):
                await offload(fn)(3)


async def test_a_wrapper_that_runs_a_coroutine_to_its_end_is_offloaded_without_its_mark() -> None:
    fn = run_to_its_end(double)
    with pytest.raises(TypeError, match=r"delete the `__wrapped__` of a wrapper"):
        offload(fn)
    del fn.__wrapped__  # type: ignore[attr-defined]
    assert await offload(fn)(3) == 6
