"""`deadline`: one bound for all that a block starts.

The time is up when the test says so; no test waits for a real one, except for one of zero seconds.
"""

# ruff: noqa: PT012  # what raises is the end of a block

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import Context
from types import SimpleNamespace
from typing import Any

import pytest

import hybridrt
from hybridrt import OffloadTimeoutError, Runtime, offload
from hybridrt.deadline import DeadlineScope, current_scope

from .support import Gate, hold, queued, sole_worker, turns

LONG = 3600.0


def end(scope: DeadlineScope) -> None:
    """Let the time be up now, as the loop's timer would."""
    scope._expire()


async def test_a_call_within_the_deadline_returns_as_ever() -> None:
    async with Runtime() as runtime:
        async with hybridrt.deadline(LONG) as scope:
            assert await offload(len)("abc") == 3
            assert await runtime.offload(len, "ab") == 2
            assert await runtime.map(len, ["a", "bc"]) == [1, 2]
            assert 0.0 < scope.remaining() <= LONG
        assert scope._timer is None


async def test_a_queued_call_never_runs_and_the_block_ends_in_a_timeout() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        with pytest.raises(TimeoutError, match=r"the deadline of 3600.0 s is over"):
            async with hybridrt.deadline(LONG) as scope:
                asyncio.get_running_loop().call_soon(end, scope)
                await asyncio.gather(*(offload(ran.append)(each) for each in range(5)))
        assert queued(runtime) == 0
        gate.release()
        await running
        await runtime.offload(int)
    assert ran == []


async def test_a_running_call_is_left_behind_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        with pytest.raises(TimeoutError) as caught:
            async with hybridrt.deadline(LONG) as scope:
                call = asyncio.ensure_future(offload(gate)())
                await gate.entered()
                end(scope)
                await call
        assert not isinstance(caught.value, OffloadTimeoutError)
        assert call.done()
        assert runtime.statistics().abandoned_running == 1
        gate.release()


async def test_a_task_group_in_the_block_ends_in_one_timeout() -> None:
    async def deep(gate: Gate) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(offload(gate)())

    async with Runtime(), Gate() as gate:
        with pytest.raises(TimeoutError, match="deadline"):
            async with hybridrt.deadline(LONG) as scope:
                async with asyncio.TaskGroup() as group:
                    group.create_task(deep(gate))
                    group.create_task(offload(gate)())
                    await gate.entered()
                    await gate.entered()
                    end(scope)
        gate.release()


async def test_a_map_in_the_block_is_bounded() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        with pytest.raises(TimeoutError, match="deadline"):
            async with hybridrt.deadline(LONG) as scope:
                work = asyncio.ensure_future(runtime.map(gate, range(10), limit=4))
                await gate.entered()
                end(scope)
                await work
        assert work.done()
        assert queued(runtime) == 0
        gate.release()


async def test_a_task_that_outlives_the_block_stays_bounded() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        async with hybridrt.deadline(LONG) as scope:
            left = asyncio.ensure_future(offload(len)("abc"))
            await turns()
        assert scope._timer is not None
        end(scope)
        with pytest.raises(OffloadTimeoutError, match=r"len did not start within its deadline of 3600.0 s"):
            await left
        gate.release()
        await running


async def test_a_block_does_not_look_at_those_of_all_other_tasks() -> None:
    compared = 0

    class Compared(asyncio.Task[None]):
        __hash__ = asyncio.Task.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

    async def bounded() -> None:
        async with hybridrt.deadline(2 * LONG):
            await turns(3)

    async with hybridrt.deadline(LONG):
        tasks = [Compared(bounded(), loop=asyncio.get_running_loop()) for _ in range(50)]
        await asyncio.gather(*tasks)
    assert compared <= 100


async def test_a_call_after_the_deadline_is_refused() -> None:
    async def late(over: asyncio.Event) -> None:
        await over.wait()
        await offload(len)("abc")

    async with Runtime():
        over = asyncio.Event()
        with pytest.raises(TimeoutError):
            async with hybridrt.deadline(0):
                task = asyncio.ensure_future(late(over))
                await asyncio.Event().wait()
        over.set()
        with pytest.raises(
            OffloadTimeoutError, match=r"len was called after the deadline of 0.0 s"
        ) as caught:
            await task
        assert caught.value.started is False


@pytest.mark.parametrize(("outer", "inner", "nearer"), [(60.0, LONG, "outer"), (LONG, 60.0, "inner")])
async def test_of_two_deadlines_the_nearer_one_counts(outer: float, inner: float, nearer: str) -> None:
    async with Runtime(), hybridrt.deadline(outer) as first:
        async with hybridrt.deadline(inner) as second:
            assert second.remaining() <= 60.0
            assert (second is first) is (nearer == "outer")
            assert await offload(len)("abc") == 3


async def test_the_outer_deadline_ends_a_call_of_an_inner_block() -> None:
    async with Runtime(), Gate() as gate:
        with pytest.raises(TimeoutError, match=r"deadline of 60.0 s"):
            async with hybridrt.deadline(60.0) as scope:
                async with hybridrt.deadline(LONG):
                    call = asyncio.ensure_future(offload(gate)())
                    await gate.entered()
                    end(scope)
                    await call
        gate.release()


@pytest.mark.parametrize("left", [False, True], ids=["within", "after"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "late"])
async def test_the_outer_deadline_ends_a_block_in_another_task(left: bool, late: bool) -> None:
    entered = asyncio.Event()

    async def inner() -> None:
        async with hybridrt.deadline(LONG):
            entered.set()
            await asyncio.Event().wait()

    task = None
    try:
        async with hybridrt.deadline(60.0) as scope:
            task = asyncio.ensure_future(inner())
            if not late:
                await entered.wait()
            if not left:
                end(scope)
                await asyncio.Event().wait()
    except TimeoutError:
        assert not left
    if left:
        end(scope)
    assert task is not None
    with pytest.raises(TimeoutError, match=r"deadline of 60.0 s"):
        await task
    assert not scope._blocks


async def test_the_outer_deadline_ends_a_block_on_another_loop() -> None:
    def elsewhere(gate: Gate) -> str:
        async def inner() -> None:
            async with hybridrt.deadline(LONG) as scope:
                scope._ends_at = 0.0
                async with hybridrt.deadline(LONG):
                    await asyncio.Event().wait()

        try:
            asyncio.run(inner())
        except TimeoutError as error:
            return str(error)
        return ""

    async with Runtime(), Gate() as gate, hybridrt.deadline(60.0):
        assert await offload(elsewhere)(gate) == "the deadline of 60.0 s is over"


async def test_a_task_that_is_cancelled_too_stays_cancelled() -> None:
    async def block() -> None:
        async with hybridrt.deadline(LONG) as scope:
            entered.set_result(scope)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.wait([over])  # it takes its time to end

    entered = asyncio.get_running_loop().create_future()
    over = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(block())
    scope = await entered
    task.cancel()
    await turns()
    end(scope)
    await asyncio.wait([task])
    assert task.cancelled()


async def test_none_is_no_limit_and_keeps_the_outer_one() -> None:
    async with hybridrt.deadline(None) as scope:
        assert scope.remaining() == float("inf")
        assert scope._timer is None
    async with hybridrt.deadline(60.0) as outer, hybridrt.deadline(None) as scope:
        assert scope is outer


async def test_an_error_of_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        async with hybridrt.deadline(LONG):
            raise ZeroDivisionError
    with pytest.raises(asyncio.CancelledError):
        async with hybridrt.deadline(LONG):
            raise asyncio.CancelledError


async def test_a_call_on_another_loop_is_bounded_too() -> None:
    def elsewhere() -> str:
        async def inner() -> Any:
            return await offload(len)("abc")

        try:
            return str(asyncio.run(inner()))
        except OffloadTimeoutError as error:
            return str(error)

    async with Runtime(), hybridrt.deadline(LONG):
        assert await offload(elsewhere)() == "3"


@pytest.mark.parametrize("seconds", [-1, float("nan"), "2", True])
def test_what_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="must be a number >= 0 or None, got"):
        hybridrt.deadline(seconds)


async def test_a_deadline_serves_once() -> None:
    used = hybridrt.deadline(LONG)
    async with used:
        pass
    with pytest.raises(RuntimeError, match="make a new one"):
        async with used:
            pass


async def numbers() -> AsyncIterator[int]:
    async with hybridrt.deadline(60.0):
        yield 1
        yield 2


async def leave_early() -> None:
    """Take one number; the generator is closed by another task."""
    async for _ in numbers():
        break
    await turns()


async def test_a_generator_that_is_left_early_leaves_its_deadline_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 120.0)
    async with Runtime():
        await leave_early()
        monkeypatch.setattr(sys.modules[DeadlineScope.__module__], "time", later)
        assert await offload(len)("abc") == 3


async def test_a_generator_that_is_left_early_leaves_the_outer_deadline_in_force() -> None:
    async with Runtime(), hybridrt.deadline(LONG) as outer:
        await leave_early()
        scope = current_scope.get()
        assert scope is not None
        assert outer.remaining() >= scope.remaining() > 60.0
        assert scope._timer is None


async def test_a_call_under_way_stays_bounded_by_the_deadline_of_a_generator_that_is_left_early() -> None:
    async with Runtime(), Gate() as gate:
        started: list[asyncio.Future[None]] = []

        async def starts() -> AsyncIterator[int]:
            async with hybridrt.deadline(0.1):
                started.append(asyncio.ensure_future(offload(gate)()))
                await gate.entered()
                yield 1

        async for _ in starts():
            break
        with pytest.raises(hybridrt.OffloadTimeoutError, match=r"deadline of 0\.1 s"):
            await started[0]


async def test_a_generator_may_be_ended_in_another_context() -> None:
    """As an asynchronous fixture is."""
    found = numbers()
    assert await anext(found) == 1

    async def end_it() -> None:
        with suppress(StopAsyncIteration):
            await anext(found)
            await anext(found)

    await asyncio.create_task(end_it(), context=Context())
