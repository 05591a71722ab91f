"""Background tasks beyond the bound, what is counted of them, and what is said of their errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from hybridrt import BackgroundStatistics, QueueFullError, Runtime, RuntimeClosedError, background
from tests.loop.support import turns


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def fail(error: type[Exception] = LookupError) -> None:
    raise error("no such mail")


def told(runtime: Runtime) -> BackgroundStatistics:
    statistics = runtime.statistics().background_tasks
    assert statistics is not None
    return statistics


def collect_errors() -> list[dict[str, Any]]:
    """Return a list to which the running loop adds each context its exception handler gets."""
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    return contexts


def is_closed(coro: Coroutine[Any, Any, Any]) -> bool:
    return coro.cr_frame is None  # type: ignore[attr-defined]


async def test_a_task_without_a_name_has_that_of_its_function() -> None:
    async with Runtime() as runtime:
        assert runtime.background(turns(1)).get_name() == "turns"


async def test_the_oldest_is_dropped_for_a_newer_one() -> None:
    async with Runtime(background_max=2, background_policy="drop_oldest") as runtime:
        event = asyncio.Event()
        first, second, third = (runtime.background(wait_for(event)) for _ in range(3))
        await asyncio.wait({first})
        assert first.cancelled()
        event.set()
        await asyncio.gather(second, third)
        await turns(2)
        one = told(runtime)
        assert (one.spawned, one.completed, one.cancelled, one.shed, one.running) == (3, 2, 1, 1, 0)


async def test_a_task_that_spawns_is_not_dropped_for_what_it_spawns() -> None:
    async with Runtime(background_max=1, background_policy="drop_oldest") as runtime:

        async def spawn() -> None:
            coro = turns()
            with pytest.raises(QueueFullError):
                runtime.background(coro)
            assert is_closed(coro)

        await runtime.background(spawn())


async def test_dropped_tasks_that_do_not_end_are_no_more_than_may_run() -> None:
    async def linger(event: asyncio.Event) -> None:
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue

    async with Runtime(background_max=2, background_policy="drop_oldest") as runtime:
        event = asyncio.Event()
        for _ in range(4):
            runtime.background(linger(event))
            await turns(2)
        coro = linger(event)
        with pytest.raises(QueueFullError):
            runtime.background(coro)
        assert is_closed(coro)
        assert told(runtime).running == 4
        event.set()


async def test_a_spawn_waits_for_a_place_in_order() -> None:
    async with Runtime(background_max=1, background_policy="block") as runtime:
        events = [asyncio.Event() for _ in range(3)]
        await runtime.spawn_background(wait_for(events[0]), name="0")
        waiting = [
            asyncio.create_task(runtime.spawn_background(wait_for(events[n]), name=str(n))) for n in (1, 2)
        ]
        await turns(3)
        assert (told(runtime).queued, told(runtime).running) == (2, 1)
        events[0].set()
        assert (await waiting[0]).get_name() == "1"
        assert not waiting[1].done()
        events[1].set()
        assert (await waiting[1]).get_name() == "2"
        events[2].set()
        assert told(runtime).queue_wait > 0.0


async def test_what_cannot_wait_is_refused_and_told_of_the_other_way() -> None:
    async with Runtime(background_max=1, background_policy="block") as runtime:
        event = asyncio.Event()
        runtime.background(wait_for(event))
        coro = wait_for(event)
        with pytest.raises(QueueFullError, match=r"await runtime\.spawn_background"):
            runtime.background(coro)
        assert is_closed(coro)
        event.set()


async def test_a_cancelled_wait_leaves_its_place_to_the_next() -> None:
    async with Runtime(background_max=1, background_policy="block") as runtime:
        event = asyncio.Event()
        running = runtime.background(wait_for(event))
        coro = wait_for(event)
        first = asyncio.create_task(runtime.spawn_background(coro))
        second = asyncio.create_task(runtime.spawn_background(wait_for(event)))
        await turns(2)
        running.add_done_callback(lambda _: first.cancel())  # behind the one that gives the place away
        event.set()
        await (await second)
        assert first.cancelled()
        assert is_closed(coro)
        await turns(2)
        assert (told(runtime).queued, told(runtime).running) == (0, 0)
        await runtime.background(wait_for(event))


async def test_a_wait_that_is_cancelled_early_closes_its_coroutine() -> None:
    async with Runtime(background_max=1, background_policy="block") as runtime:
        event = asyncio.Event()
        runtime.background(wait_for(event))
        coro = wait_for(event)
        waiting = asyncio.create_task(runtime.spawn_background(coro))
        await turns(2)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert is_closed(coro)
        assert told(runtime).queued == 0
        event.set()


async def test_the_close_refuses_those_that_wait() -> None:
    runtime = Runtime(background_max=1, background_policy="block", shutdown_timeout=0)
    async with runtime:
        runtime.background(wait_for(asyncio.Event()))
        coro = wait_for(asyncio.Event())
        waiting = asyncio.create_task(runtime.spawn_background(coro))
        await turns(2)
    with pytest.raises(RuntimeClosedError, match="is clos"):
        await waiting
    assert is_closed(coro)


async def test_without_the_policy_a_spawn_does_not_wait() -> None:
    async with Runtime(background_max=1) as runtime:
        event = asyncio.Event()
        await runtime.spawn_background(wait_for(event))
        coro = wait_for(event)
        with pytest.raises(QueueFullError):
            await runtime.spawn_background(coro)
        assert is_closed(coro)
        assert told(runtime).shed == 1
        event.set()


async def test_a_spawn_on_a_closed_runtime_is_refused() -> None:
    async with Runtime(background_policy="block") as runtime:
        pass
    coro = turns()
    with pytest.raises(RuntimeClosedError):
        await runtime.spawn_background(coro)
    assert is_closed(coro)


async def test_errors_are_reported_once_a_cause_and_counted() -> None:
    contexts = collect_errors()
    async with Runtime() as runtime:
        for _ in range(3):
            runtime.background(fail(), name="mail")
        runtime.background(fail(KeyError), name="mail")
        await turns(4)
        assert [type(context["exception"]) for context in contexts] == [LookupError, KeyError]
        assert "background task 'mail' failed" in contexts[0]["message"]
        assert told(runtime).failed == 4
        assert told(runtime).errors == {"fail: LookupError": 3, "fail: KeyError": 1}


async def test_an_error_that_somebody_awaits_is_counted_and_not_reported() -> None:
    contexts = collect_errors()
    async with Runtime() as runtime:
        with pytest.raises(LookupError):
            await runtime.background(fail())
        await turns(3)
        assert told(runtime).errors == {"fail: LookupError": 1}
        assert not contexts
        runtime.background(fail())
        await turns(4)
        assert not contexts, "the cause was seen before"


async def test_causes_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CAUSES", 1)
    collect_errors()
    async with Runtime() as runtime:
        for error in (LookupError, KeyError, ValueError):
            runtime.background(fail(error))
            await turns(4)
        assert told(runtime).errors == {"fail: LookupError": 1, "other": 2}


async def test_what_is_left_at_the_deadline_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with Runtime(shutdown_timeout=0) as runtime:
        for name in ("audit", "audit", "mail"):
            runtime.background(wait_for(asyncio.Event()), name=name)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "3 background tasks did not end by the deadline and are cancelled: 'audit' (2 times), 'mail'"
    )


async def test_what_does_not_heed_its_cancelling_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridrt.runtime.CLEAN_UP", 0.001)
    event = asyncio.Event()

    async def stay() -> None:
        try:
            await event.wait()
        except asyncio.CancelledError:
            await event.wait()

    async with Runtime(shutdown_timeout=0) as runtime:
        task = runtime.background(stay(), name="stays")
        await turns(2)
    assert "background task 'stays' did not end when cancelled and is left behind" in caplog.text
    event.set()
    await task


async def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="background_policy must be one of 'reject', 'drop_oldest', 'block'"):
        Runtime(background_policy="wait")  # type: ignore[arg-type]


async def test_the_text_of_the_statistics_says_what_became_of_them() -> None:
    async with Runtime(background_max=1) as runtime:
        await runtime.background(turns(1))
        await turns(2)
        assert "background tasks: 0 run, 1 completed" in str(runtime.statistics())


@pytest.fixture
async def eager() -> None:
    """Tasks of the running loop begin as they are made."""
    loop = asyncio.get_running_loop()
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("eager tasks came with Python 3.12")
    if type(loop).__module__.startswith("uvloop"):
        pytest.skip("uvloop cannot take this task factory")
    loop.set_task_factory(asyncio.eager_task_factory)


@pytest.mark.usefixtures("eager")
async def test_tasks_that_end_while_they_are_made_are_counted_like_the_others() -> None:
    contexts = collect_errors()

    async def at_once() -> None:
        return

    async with Runtime(background_max=1) as runtime:
        runtime.background(at_once())
        await turns(3)
        runtime.background(fail())
        await turns(3)
        one = told(runtime)
        assert (one.spawned, one.completed, one.failed, one.running) == (2, 1, 1, 0)
        assert len(contexts) == 1


@pytest.mark.usefixtures("eager")
async def test_a_task_that_fails_while_it_is_made_and_is_awaited_at_once_is_counted_as_failed() -> None:
    async with Runtime() as runtime:
        with pytest.raises(LookupError):
            await runtime.background(fail())
        await turns(3)
        one = told(runtime)
        assert (one.spawned, one.completed, one.failed) == (1, 0, 1)
        assert one.errors == {"fail: LookupError": 1}


@pytest.mark.usefixtures("eager")
async def test_a_task_that_spawns_others_while_it_is_made_counts_among_them() -> None:
    async def spawn(more: int) -> None:
        coro = spawn(more - 1)
        begun.append(more)
        try:
            runtime.background(coro)
        except QueueFullError:
            await turns()

    begun: list[int] = []
    async with Runtime(background_max=2) as runtime:
        await runtime.background(spawn(9))
        assert begun == [9, 8]


async def test_a_task_factory_that_fails_takes_no_place() -> None:
    loop = asyncio.get_running_loop()

    def refuse(*_: Any, **__: Any) -> Any:
        raise LookupError("no task")

    async with Runtime(background_max=1) as runtime:
        coro = turns()
        loop.set_task_factory(refuse)
        with pytest.raises(LookupError):
            runtime.background(coro)
        loop.set_task_factory(None)
        assert is_closed(coro)
        assert told(runtime).spawned == 0
        await runtime.background(turns())
