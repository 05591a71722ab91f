"""A call that asks for the lane of the call that waits for it: refused, however it asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, as_completed, wait
from typing import Any, Literal

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, LaneNestingError, Runtime, offload
from hybridrt.loop import lane_deadlock

from .support import DEADLINE, eventually

Asks = Callable[[], Coroutine[Any, Any, int]]
asks = offload(len, lane="nested")
REFUSED = r"len asks for the lane 'nested' .*would wait for itself.*\.sync\(\.\.\.\)"


async def plainly() -> int:
    return await asks("abc")


async def in_a_task_group() -> int:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asks("abc"))
    return task.result()


async def gathered() -> int:
    return sum(await asyncio.gather(asks("abc"), asyncio.sleep(0, 0)))


def by_result(future: Future[int]) -> int:
    return future.result()


def by_exception(future: Future[int]) -> int:
    error = future.exception()
    return future.result() if error is None else reraise(error)


def reraise(error: BaseException) -> int:
    raise error


def by_wait(future: Future[int]) -> int:
    return next(iter(wait([future]).done)).result()


def by_completion(future: Future[int]) -> int:
    return next(as_completed([future])).result()


@pytest.fixture(params=["copy", "none"])
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """A runtime whose calls get a copy of the submitter's context, or none."""
    context: Literal["copy", "none"] = request.param
    runtime = Runtime()
    runtime.executor._copies_context = context == "copy"
    async with runtime:
        yield runtime


def is_gated(runtime: Runtime) -> bool:
    return runtime.statistics().queued["gated"] > 0


@pytest.mark.race
@pytest.mark.parametrize("wait_for", [by_result, by_exception, by_wait, by_completion])
async def test_a_coroutine_that_the_holder_waits_for_cannot_have_its_lane(
    runtime: Runtime, wait_for: Callable[[Future[int]], int]
) -> None:
    loop = asyncio.get_running_loop()
    holder = offload(lambda: wait_for(asyncio.run_coroutine_threadsafe(plainly(), loop)), lane="nested")
    with pytest.raises(LaneNestingError, match=REFUSED):
        await holder()
    assert await asks("abc") == 3  # the lane is open again
    assert runtime.statistics().queued["gated"] == 0


@pytest.mark.parametrize("coroutine", [in_a_task_group, gathered])
async def test_nor_can_tasks_of_that_coroutine(runtime: Runtime, coroutine: Asks) -> None:
    loop = asyncio.get_running_loop()
    holder = offload(lambda: asyncio.run_coroutine_threadsafe(coroutine(), loop).result(), lane="nested")
    with pytest.raises((LaneNestingError, ExceptionGroup), match=r"nested|TaskGroup") as caught:
        await holder()
    error = caught.value
    assert isinstance(error.exceptions[0] if isinstance(error, ExceptionGroup) else error, LaneNestingError)


async def test_nor_can_a_call_that_the_holder_waits_for_in_another_thread() -> None:
    def holder() -> int:
        return executor.submit(asyncio.run, plainly()).result()

    async with Runtime():
        with AdaptiveThreadPoolExecutor() as executor:
            with pytest.raises(LaneNestingError, match=REFUSED):
                await offload(holder, lane="nested")()


async def test_nor_can_a_call_that_the_holder_runs_in_its_own_thread() -> None:
    def holder() -> int:
        return executor.submit(asyncio.run, plainly()).result()

    async with Runtime(max_workers=1) as runtime:
        executor = runtime.executor
        with pytest.raises(LaneNestingError, match=REFUSED):
            await offload(holder, lane="nested")()


async def test_a_holder_that_begins_to_wait_later_is_noticed(runtime: Runtime) -> None:
    loop = asyncio.get_running_loop()
    asked = threading.Event()

    def holder() -> int:
        future = asyncio.run_coroutine_threadsafe(plainly(), loop)
        asked.wait(DEADLINE)
        return future.result()

    held = asyncio.ensure_future(offload(holder, lane="nested")())
    await eventually(lambda: is_gated(runtime))
    asked.set()
    with pytest.raises(LaneNestingError, match=REFUSED):
        await held


async def test_a_coroutine_that_the_holder_only_starts_gets_the_lane_after_it(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_deadlock, "LOOK", 0.0)
    loop, other = asyncio.get_running_loop(), Future[str]()

    def holder() -> Future[int]:
        started = asyncio.run_coroutine_threadsafe(plainly(), loop)
        return started if other.result(DEADLINE) == "go on" else reraise(AssertionError())

    held = asyncio.ensure_future(offload(holder, lane="nested")())
    await eventually(lambda: is_gated(runtime))
    for _ in range(3):
        await asyncio.sleep(
            0.02
        )  # the call that is queued looks at its holder, which waits for something else
    assert is_gated(runtime)
    other.set_result("go on")
    assert await asyncio.wrap_future(await held) == 3


async def test_a_coroutine_that_outlives_the_holder_may_have_its_lane(runtime: Runtime) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    async def later() -> int:
        await ended.wait()
        return await asks("abc")

    future = await offload(lambda: asyncio.run_coroutine_threadsafe(later(), loop), lane="nested")()
    ended.set()
    assert await asyncio.wrap_future(future) == 3


async def test_another_lane_may_be_had_through_the_loop(runtime: Runtime) -> None:
    loop = asyncio.get_running_loop()
    holder = offload(lambda: asyncio.run_coroutine_threadsafe(plainly(), loop).result(), lane="another")
    assert await holder() == 3
