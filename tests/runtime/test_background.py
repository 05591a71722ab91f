"""Background tasks: tracked, bounded, drained at close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from hybridrt import QueueFullError, Runtime, RuntimeClosedError, offload
from tests.loop.support import turns


async def wait_for(event: asyncio.Event, value: Any = None) -> Any:
    await event.wait()
    return value


class Wrapped(Coroutine[Any, Any, Any]):
    """A coroutine that is none of Python's own, as some libraries and compilers make them."""

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self.send, self.throw, self.close = coro.send, coro.throw, coro.close  # type: ignore[method-assign]

    def send(self, value: Any) -> Any: ...

    def throw(self, *error: Any) -> Any: ...

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


async def test_a_background_task_runs_beside() -> None:
    async with Runtime() as runtime:
        event = asyncio.Event()
        task = runtime.background(wait_for(event, "value"), name="mail")
        assert isinstance(task, asyncio.Task)
        assert task.get_name() == "mail"
        assert runtime.statistics().background == 1
        event.set()
        assert await task == "value"
        await turns(2)
        assert runtime.statistics().background == 0


async def test_a_background_task_nobody_holds_is_kept() -> None:
    done: list[int] = []

    async def work(event: asyncio.Event) -> None:
        await event.wait()
        done.append(1)

    async with Runtime() as runtime:
        event = asyncio.Event()
        runtime.background(work(event))
        asyncio.get_running_loop().call_soon(event.set)
    assert done == [1]


async def test_beyond_its_bound_a_background_task_is_refused_and_closed() -> None:
    async with Runtime(background_max=2) as runtime:
        event = asyncio.Event()
        tasks = [runtime.background(wait_for(event)) for _ in range(2)]
        refused = wait_for(event)
        with pytest.raises(QueueFullError, match="background_max=2 background tasks run already"):
            runtime.background(refused)
        assert refused.cr_frame is None
        event.set()
        await asyncio.gather(*tasks)
        await turns(2)
        await runtime.background(wait_for(event))


async def test_the_close_waits_for_background_tasks() -> None:
    done: list[int] = []
    runtime = Runtime()

    async def work() -> None:
        await turns(5)
        done.append(await offload(int)())

    async with runtime:
        for _ in range(3):
            runtime.background(work())
    assert done == [0, 0, 0]


async def test_background_tasks_may_use_the_runtime_while_it_drains() -> None:
    done: list[object] = []
    runtime = Runtime()

    async def work() -> None:
        await turns(5)
        done.append(await runtime.offload(len, "abc"))
        done.append(await runtime.map(abs, [-1, -2]))
        done.append(await asyncio.to_thread(len, "ab"))

    async with runtime:
        runtime.background(work())
    assert done == [3, [1, 2], 2]


async def test_no_background_task_is_taken_while_it_drains() -> None:
    runtime = Runtime()

    async def work() -> None:
        await turns(5)
        coro = turns()
        with pytest.raises(RuntimeClosedError, match="is closing, not open"):
            runtime.background(coro)

    async with runtime:
        task = runtime.background(work())
    await task


async def test_background_tasks_are_cancelled_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async with Runtime(shutdown_timeout=0.01) as runtime:
        endless = runtime.background(wait_for(asyncio.Event()), name="endless")
    await asyncio.wait({endless})
    assert endless.cancelled()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("hybridrt", logging.WARNING)
    assert "background task 'endless' did not end by the deadline and is cancelled" in record.getMessage()


async def test_background_tasks_cancelled_at_the_deadline_have_ended_after_the_close() -> None:
    seen: list[str] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(3)
            seen.append("cleaned up")

    async with Runtime(shutdown_timeout=0.01) as runtime:
        runtime.background(clean_up())
        await turns()
    assert seen == ["cleaned up"]


async def test_the_error_of_a_background_task_reaches_the_loops_exception_handler() -> None:
    async def fail() -> None:
        raise LookupError("unseen otherwise")

    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    async with Runtime() as runtime:
        runtime.background(fail())
    await turns()
    (context,) = contexts
    assert isinstance(context["exception"], LookupError)


async def test_what_asyncio_takes_for_a_coroutine_is_taken() -> None:
    async with Runtime() as runtime:
        task = runtime.background(Wrapped(offload(len)("abc")))
        assert await task == 3
        assert task.get_name() == "Wrapped"


@pytest.mark.parametrize("thing", [turns, 5, None], ids=["function", "number", "none"])
async def test_what_is_no_coroutine_is_refused(thing: Any) -> None:
    async with Runtime() as runtime:
        with pytest.raises(
            TypeError, match=r"background needs a coroutine, as in background\(send\(mail\)\)"
        ):
            runtime.background(thing)
