"""`pipe`: what is left of one that was left early, was cancelled, or has failed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import pytest

from hybridrt import Pipe, Runtime, offload, pipe

from ..loop.support import Gate, cancel_inside, eventually, sole_worker
from .support import as_kind, cancel_own_task, listed

both_orders = pytest.mark.parametrize("ordered", [True, False])


class Thing:
    """What can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


class Things:
    """Makes things, and knows those that are alive."""

    def __init__(self) -> None:
        self.alive: WeakSet[Thing] = WeakSet()

    def make(self, number: int) -> Thing:
        self.alive.add(thing := Thing(number))
        return thing


@pytest.mark.usefixtures("without_gc")
@both_orders
@pytest.mark.parametrize(
    "kind", ["def", "awaitable", "async def", "generator", "async generator", "offloaded", "batched"]
)
@pytest.mark.parametrize("end", ["left", "cancelled", "failed"])
async def test_the_items_of_a_pipe_that_ends_early_die_with_it(end: str, kind: str, ordered: bool) -> None:
    things = Things()

    def make_another(thing: Thing) -> Thing:
        if end == "failed" and thing.number == 60:
            raise LookupError("60")
        return things.make(thing.number)

    async def consume(results: Pipe) -> None:
        async with results:
            for _ in range(20):
                await anext(results)
            if end == "cancelled":
                cancel_own_task()
            if end != "left":
                await listed(results)

    batched: Any = offload(lambda some: list(map(make_another, some)), batch=4)
    async with sole_worker() as runtime:
        fn = batched if kind == "batched" else as_kind(kind, make_another)
        results = pipe(map(things.make, range(300)), fn, ordered=ordered)
        with suppress(asyncio.CancelledError, LookupError):
            await asyncio.ensure_future(consume(results))
        await runtime.offload(int)  # the worker is past the last item
        assert [*things.alive] == []


@both_orders
async def test_a_pipe_that_is_left_closes_what_would_have_been_awaited(
    ordered: bool, recwarn: pytest.WarningsRecorder
) -> None:
    async def fetch(number: int) -> int:
        return number

    async with sole_worker() as runtime, Gate() as gate:
        results = pipe([1], lambda number: fetch(gate(number)), ordered=ordered)
        await cancel_inside(asyncio.ensure_future(listed(results)), gate)
        await runtime.offload(int)  # the worker is past the item
    assert [str(each.message) for each in recwarn] == []


@pytest.mark.usefixtures("without_gc")
async def test_an_item_does_not_wait_for_the_turn_of_its_result() -> None:
    things, first = Things(), asyncio.Event()

    async def number_of(thing: Thing) -> int:
        if thing.number == 0:
            await first.wait()
        return thing.number

    async with Runtime():
        results = pipe(map(things.make, range(60)), number_of)
        consumer = asyncio.ensure_future(listed(results))
        await eventually(lambda: results.statistics().items_in == 60)
        await eventually(lambda: [thing.number for thing in things.alive] == [0])
        first.set()
        assert await consumer == [*range(60)]


async def test_a_pipe_is_not_closed_under_a_task_that_waits_for_an_item_and_its_cancelling_ends_it() -> None:
    async def never(_: int) -> None:
        await asyncio.Event().wait()

    async with Runtime():
        results = pipe([1], never)
        consumer = asyncio.ensure_future(anext(results))
        await eventually(lambda: results.statistics().items_in == 1)
        with pytest.raises(RuntimeError, match=r"another task waits for an item .*; cancel that task"):
            await results.aclose()
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        assert [item async for item in results] == []
        await results.aclose()
