"""Calls that are awaited within a cancel scope of anyio: as MCP, pydantic-ai and Starlette cancel."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import hybridrt
from hybridrt import Runtime, offload
from tests.loop.support import Gate, eventually, hold, is_cancelled_once, queued, sole_worker, turns

Begin = Callable[[Runtime, Gate], Awaitable[Any]]


async def pipe(_: Runtime, gate: Gate) -> None:
    async for _ in hybridrt.pipe([1], gate):
        pass


async def stream(_: Runtime, gate: Gate) -> None:
    @offload
    def numbers() -> Iterator[int]:
        yield gate()

    async for _ in numbers():
        pass


KINDS: dict[str, Begin] = {
    "offload": lambda _, gate: offload(gate)("value"),
    "offload with options": lambda _, gate: offload(gate, timeout=3600.0)("value"),
    "Runtime.offload": lambda runtime, gate: runtime.offload(gate, "value"),
    "Runtime.map": lambda runtime, gate: runtime.map(gate, ["value"]),
    "pipe": pipe,
    "stream": stream,
}


@pytest.fixture(params=KINDS)
def begin(request: pytest.FixtureRequest) -> Begin:
    """Begins something that waits for a call of a gate."""
    return KINDS[request.param]


async def within(scope: anyio.CancelScope, work: Awaitable[Any]) -> Any:
    with scope:
        return await work


@asynccontextmanager
async def begun(begin: Begin) -> AsyncIterator[tuple[anyio.CancelScope, asyncio.Task[Any], Gate]]:
    """Give a scope, the task in it, and the gate at which its call has arrived."""
    scope = anyio.CancelScope()
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(within(scope, begin(runtime, gate)))
        await gate.entered()
        yield scope, task, gate


async def test_a_scope_cancels_a_task_once_that_waits_for_a_running_call(begin: Begin) -> None:
    async with begun(begin) as (scope, task, gate):
        await is_cancelled_once(scope, task, gate)
    assert task.cancelling() == 0


async def test_a_cancel_of_asyncio_ends_it_as_such_within_a_scope_too(begin: Begin) -> None:
    async with begun(begin) as (scope, task, gate):
        task.cancel("of asyncio")
        await turns()
        assert not task.done()
        gate.release()
        with pytest.raises(asyncio.CancelledError, match="of asyncio"):
            await task
    assert not scope.cancelled_caught


async def test_a_cancel_of_asyncio_is_heard_after_that_of_a_scope(begin: Begin) -> None:
    async with begun(begin) as (scope, task, gate):
        scope.cancel()
        await turns()
        task.cancel("of asyncio")
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("make", [asyncio.timeout, hybridrt.deadline])
async def test_a_scope_catches_its_cancel_though_a_timeout_within_it_is_over_then(
    begin: Begin, make: Callable[[float], Any]
) -> None:
    over = asyncio.Event()

    async def bounded(runtime: Runtime, gate: Gate) -> None:
        async with make(3600.0) as timeout:
            expire = partial(timeout.reschedule, 0.0) if make is asyncio.timeout else timeout._expire
            asyncio.ensure_future(over.wait()).add_done_callback(lambda _: expire())
            await begin(runtime, gate)

    async with begun(bounded) as (scope, task, gate):
        scope.cancel()
        await turns()
        over.set()
        await turns()
        gate.release()
        await task
    assert scope.cancelled_caught
    assert task.cancelling() == 0


async def test_without_a_cancel_it_returns_within_a_scope_as_elsewhere() -> None:
    async with Runtime() as runtime:
        with anyio.CancelScope() as scope:
            assert await offload(len)("abc") == 3
            assert await runtime.map(len, ["a", "bc"]) == [1, 2]
            assert await runtime.map(len, []) == []
            with pytest.raises(ZeroDivisionError):
                await runtime.map(lambda n: 1 // n, [1, 0, 2])
            with pytest.raises(ValueError, match="invalid literal"):
                await runtime.offload(int, "no number")
        assert not scope.cancel_called


async def test_when_the_call_has_ended_its_scope_cancels_what_the_task_awaits_next() -> None:
    ended: list[str] = []

    async def ask(gate: Gate) -> None:
        try:
            await offload(gate)()
        finally:
            ended.append("call")
            await anyio.lowlevel.checkpoint()
            ended.append("checkpoint")

    scope = anyio.CancelScope()
    async with Runtime(), Gate() as gate:
        task = asyncio.ensure_future(within(scope, ask(gate)))
        await gate.entered()
        scope.cancel()
        await turns()
        gate.release()
        await task
    assert ended == ["call"]


async def test_a_call_that_may_be_abandoned_is_left_at_once() -> None:
    scope = anyio.CancelScope()
    async with Runtime(), Gate() as gate:
        task = asyncio.ensure_future(within(scope, offload(gate, abandon_on_cancel=True)()))
        await gate.entered()
        scope.cancel()
        await task
        assert scope.cancelled_caught


async def test_a_call_whose_scope_is_cancelled_while_it_is_queued_never_runs() -> None:
    ran: list[bool] = []
    scope = anyio.CancelScope()
    async with sole_worker() as runtime, Gate() as gate:
        held = await hold(runtime, gate)
        task = asyncio.ensure_future(within(scope, offload(ran.append)(True)))
        await eventually(lambda: queued(runtime) == 1)
        scope.cancel()
        await task
        gate.release()
        await held
    assert (ran, scope.cancelled_caught) == ([], True)


@pytest.mark.parametrize("run", [lambda fail: offload(fail)(), anyio.to_thread.run_sync])
async def test_nothing_is_kept_of_a_call_that_fails_within_a_scope(
    run: Callable[[Callable[[], None]], Awaitable[None]],
) -> None:
    class Lost(Exception):
        pass

    seen: list[weakref.ref[BaseException]] = []

    def fail() -> None:
        raise Lost

    async with Runtime():
        gc.disable()
        try:
            with anyio.CancelScope():
                try:
                    await run(fail)
                except Lost as error:
                    seen.append(weakref.ref(error))
            await eventually(lambda: seen[0]() is None)
        finally:
            gc.enable()
