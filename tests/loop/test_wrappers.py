"""A function that wraps another one, by `functools.wraps`, is judged by what it does itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from hybridrt import Runtime, offload, pipe


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


async def test_a_wrapper_that_returns_the_generator_is_iterated_over() -> None:
    assert [each async for each in offload(traced(count))(3)] == [0, 1, 2]
    async with pipe([3], traced(count)) as counted:
        assert [each async for each in counted] == [0, 1, 2]


@pytest.mark.parametrize("where", ["thread", "inline"])
async def test_a_wrapper_that_collects_what_a_generator_yields_is_told_what_to_do(where: Any) -> None:
    told = r"expected an iterator, .* got list; delete the `__wrapped__`"
    with pytest.raises(TypeError, match=told):
        assert [each async for each in offload(listed(count), where=where)(3)]
    with pytest.raises(TypeError, match=told):
        assert [each async for each in pipe([3], listed(count))]
    with pytest.raises(TypeError, match=r"delete the `__wrapped__`"):
        async with Runtime() as runtime:
            await runtime.offload(listed(count), 3)


async def test_a_wrapper_without_a_mark_is_judged_by_what_it_does_itself() -> None:
    collect = listed(count)
    del collect.__wrapped__  # type: ignore[attr-defined]
    assert await offload(collect)(3) == [0, 1, 2]
    async with Runtime() as runtime:
        assert await runtime.map(collect, [3]) == [[0, 1, 2]]
        assert [each async for each in pipe([3], collect)] == [[0, 1, 2]]


async def test_a_generator_function_that_wraps_another_function_is_iterated_over() -> None:
    @offload
    @wraps(max)
    def repeat(number: int) -> Iterator[int]:
        yield number

    assert [each async for each in repeat(7)] == [7]


async def test_map_and_pipe_take_the_coroutine_that_a_wrapper_returns() -> None:
    async with Runtime() as runtime:
        assert await runtime.map(traced(double), [3]) == [6]
        assert [each async for each in pipe([3], traced(double))] == [6]
        assert await runtime.map(run_to_its_end(double), [3]) == [6]


@pytest.mark.parametrize("inner", [count, count_up])
async def test_map_refuses_a_wrapper_of_a_generator_function(inner: Any) -> None:
    async with Runtime() as runtime:
        with pytest.raises(TypeError, match=r"async for|iterate over"):
            await runtime.map(traced(inner), [3])


async def test_a_wrapper_that_runs_a_coroutine_to_its_end_is_offloaded_without_its_mark() -> None:
    fn = run_to_its_end(double)
    with pytest.raises(TypeError, match=r"delete the `__wrapped__` of a wrapper"):
        offload(fn)
    del fn.__wrapped__  # type: ignore[attr-defined]
    assert await offload(fn)(3) == 6
