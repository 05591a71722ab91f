"""What `hybridrt.testing` offers: calls in place, a clock that stands still, a clean slate."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from typing import NoReturn

import pytest

import hybridrt
from hybridrt import QueueFullError, RuntimeClosedError, blocking, check_cancelled, offload
from hybridrt.testing import InlineRuntime, ManualClock, reset

VARIABLE = contextvars.ContextVar("variable", default="unset")

# ---------------------------------------------------------------------- the inline runtime


async def test_inline_calls_run_on_the_loops_own_thread() -> None:
    async with InlineRuntime() as runtime:
        assert await runtime.offload(threading.get_ident) == threading.get_ident()
        assert await offload(threading.get_ident)() == threading.get_ident()
        assert await runtime.map(lambda _: threading.get_ident(), range(3)) == [threading.get_ident()] * 3


async def test_isolated_calls_run_there_too() -> None:
    async with InlineRuntime():
        elsewhere = offload(os.getpid, pure=True, where="isolate")
        assert await elsewhere() == os.getpid()


async def test_inline_calls_have_run_when_they_are_awaited_for_one_turn() -> None:
    ran: list[int] = []
    async with InlineRuntime() as runtime:
        tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(3)]
        await asyncio.sleep(0)
        assert ran == [0, 1, 2]
        await asyncio.gather(*tasks)


async def test_inline_errors_arrive_as_they_were_raised() -> None:
    def fail(error: BaseException) -> NoReturn:
        raise error

    async with InlineRuntime() as runtime:
        error = LookupError("x")
        with pytest.raises(LookupError) as caught:
            await runtime.offload(fail, error)
        assert caught.value is error
        with pytest.raises(RuntimeError, match="StopIteration"):
            await runtime.offload(fail, StopIteration())


async def test_inline_calls_see_a_copy_of_the_context() -> None:
    VARIABLE.set("of the task")
    async with InlineRuntime() as runtime:
        assert await runtime.offload(VARIABLE.get) == "of the task"
        await runtime.offload(VARIABLE.set, "of the call")
    assert VARIABLE.get() == "of the task"


async def test_inline_calls_are_in_the_statistics() -> None:
    async with InlineRuntime() as runtime:
        await runtime.offload(len, "abc")
        with pytest.raises(ZeroDivisionError):
            await runtime.offload(divmod, 1, 0)
        statistics = runtime.statistics()
        assert (statistics.submitted, statistics.completed, statistics.failed) == (2, 1, 1)
        assert {function.name for function in statistics.functions} == {"builtins:len", "builtins:divmod"}
        assert statistics.workers == 0


async def test_inline_calls_take_options_and_may_nest() -> None:
    @offload(limit=1, lane="inline", timeout=5.0, queue_timeout=5.0, abandon_on_cancel=True)
    def work(depth: int) -> int:
        check_cancelled()
        with blocking():
            return depth

    async with InlineRuntime() as runtime:
        assert await asyncio.gather(*map(work, range(5))) == list(range(5))
        assert sum(runtime.statistics().queued.values()) == 0


async def test_inline_to_thread_still_gets_a_thread() -> None:
    async with InlineRuntime():
        assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()


async def test_a_closed_inline_runtime_refuses_calls() -> None:
    runtime = InlineRuntime()
    async with runtime:
        pass
    with pytest.raises(RuntimeClosedError):
        await runtime.offload(int)
    assert await offload(threading.get_ident)() != threading.get_ident()


async def test_background_tasks_of_an_inline_runtime_are_bounded_and_drained() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(await offload(int)("7"))

    async with InlineRuntime(background_max=1) as runtime:
        runtime.background(work())
        coro = work()
        with pytest.raises(QueueFullError):
            runtime.background(coro)
    assert done == [7]


# ---------------------------------------------------------------------- the manual clock


def test_the_manual_clock_moves_when_told() -> None:
    clock = ManualClock(now=2.0)
    assert (clock.wall_ns(), clock.cpu_ns(), clock.process_cpu_ns()) == (2_000_000_000, 0, 0)
    clock.advance(1.5, cpu=0.25)
    assert clock.wall_ns() == 3_500_000_000
    assert clock.cpu_ns() == clock.process_cpu_ns() == 250_000_000
    assert clock.wall_ns() == clock.now_ns


def test_the_manual_clock_serves_where_a_clock_is_asked_for() -> None:
    clock: hybridrt.clock.Clock = ManualClock()
    assert clock.wall_ns() == clock.wall_ns()


# ---------------------------------------------------------------------- reset


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hybridrt")]


def test_reset_ends_the_private_executor_and_the_governor() -> None:
    asyncio.run(offload(int)())
    assert ours()
    reset()
    assert ours() == []


def test_after_reset_everything_works_again() -> None:
    for _ in range(3):
        assert asyncio.run(offload(int)("7")) == 7
        reset()


async def test_reset_leaves_an_open_runtime_alone() -> None:
    async with hybridrt.Runtime() as runtime:
        await runtime.offload(int)
        await asyncio.to_thread(reset)
        assert await offload(threading.current_thread)() in runtime.executor._threads
        assert runtime.statistics().completed == 3


@pytest.mark.blocks_the_loop
async def test_reset_within_a_loop_gives_it_a_new_private_executor() -> None:
    assert await offload(int)("1") == 1
    reset()
    assert await offload(int)("2") == 2


async def test_reset_in_another_thread_gives_a_loop_a_new_private_executor() -> None:
    assert await offload(int)("1") == 1
    await asyncio.to_thread(reset)
    assert await offload(int)("2") == 2


def test_reset_twice_is_fine() -> None:
    reset()
    reset()
