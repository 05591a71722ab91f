"""Offloaded generators: what has come before an error, and is still given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from hybridrt import OffloadTimeoutError, Runtime, RuntimeClosedError, deadline, offload

from ..loop.support import eventually
from .support import nothing_runs


@offload
def numbers() -> Iterator[int]:
    yield from range(1000)


async def take_all(stream: AsyncIterator[int], found: list[int], may_go_on: asyncio.Event) -> None:
    async for number in stream:
        found.append(number)
        await may_go_on.wait()


async def test_what_has_come_is_given_before_the_error_of_a_runtime_that_has_closed() -> None:
    found: list[int] = []
    closed = asyncio.Event()
    async with Runtime() as runtime:
        task = asyncio.ensure_future(take_all(numbers(), found, closed))
        await eventually(lambda: bool(found) and nothing_runs(runtime))
    closed.set()
    with pytest.raises(RuntimeClosedError):
        await task
    assert found == [*range(len(found))]
    assert len(found) >= 64


async def test_what_has_come_is_given_before_the_error_of_a_deadline_that_is_over() -> None:
    found: list[int] = []
    over = asyncio.Event()
    async with Runtime() as runtime:
        async with deadline(3600.0) as scope:
            task = asyncio.ensure_future(take_all(numbers(), found, over))
            await eventually(lambda: bool(found) and nothing_runs(runtime))
        scope._expire()
        over.set()
        with pytest.raises(OffloadTimeoutError, match="deadline"):
            await task
    assert found == [*range(len(found))]
    assert len(found) >= 64
