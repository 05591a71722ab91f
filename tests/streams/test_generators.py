"""Offloaded generators: items in order, a bounded buffer, and an end that runs the `finally`."""

# ruff: noqa: PT012  # what raises is the end of a block

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial

import pytest

import hybridrt
from hybridrt import OffloadedGenerator, OffloadTimeoutError, Runtime, check_cancelled, offload
from hybridrt.deadline import current_scope
from hybridrt.streams import producer
from hybridrt.testing import InlineRuntime
from hybridrt.values import Where

from ..loop.support import DEADLINE, Gate, Timers, cancel_inside, eventually, hold, queued, sole_worker, turns
from .support import Thing, cancel_at_random_points, listed, nothing_runs


def fails_at_its_end(gate: Callable[[], object]) -> Iterator[int]:
    try:
        yield 1
        gate()
        yield from itertools.count(2)
    finally:
        raise OSError("the disk is full")


class Log:
    """A generator function that notes where it ran, how far it came and whether it ended."""

    def __init__(self) -> None:
        self.made = 0
        self.opened = 0
        self.closed: list[threading.Thread] = []
        self.inside = 0
        self.most_inside = 0

    def count(self, number: int | None = None) -> Iterator[int]:
        self.opened += 1
        try:
            for each in itertools.count() if number is None else range(number):
                self.inside += 1
                self.most_inside = max(self.inside, self.most_inside)
                self.made += 1
                self.inside -= 1
                yield each
        finally:
            self.closed.append(threading.current_thread())


# ---------------------------------------------------------------------- items


@pytest.mark.parametrize("number", [0, 1, 64, 65, 1000])
async def test_the_items_arrive_in_order(number: int) -> None:
    log = Log()
    async with Runtime():
        assert await listed(offload(log.count)(number)) == list(range(number))
        assert len(log.closed) == 1
        assert log.closed[0] is not threading.current_thread()


async def test_it_works_without_a_runtime() -> None:
    assert await listed(offload(Log().count)(100)) == list(range(100))


async def test_an_inline_runtime_runs_the_steps_in_place() -> None:
    log = Log()
    async with InlineRuntime():
        assert await listed(offload(log.count)(100)) == list(range(100))
    assert log.closed == [threading.current_thread()]


async def test_inline_is_the_generator_itself() -> None:
    log = Log()
    assert await listed(offload(log.count, where="inline")(3)) == [0, 1, 2]
    assert log.closed == [threading.current_thread()]


async def test_nothing_runs_before_the_first_item_is_asked_for() -> None:
    log = Log()
    async with Runtime() as runtime:
        stream = offload(log.count)(5)
        await turns()
        assert runtime.statistics().submitted == 0
        await stream.aclose()
    assert log.opened == 0


@pytest.mark.parametrize("buffer", [1, 5])
async def test_a_full_buffer_gives_the_worker_back(buffer: int) -> None:
    log = Log()
    async with sole_worker() as runtime:
        stream = offload(log.count, buffer=buffer)()
        assert await anext(stream) == 0
        await eventually(lambda: log.made >= buffer)
        assert await runtime.offload(len, "abc") == 3  # by the only worker
        assert log.made <= buffer + 1
        assert [await anext(stream) for _ in range(3 * buffer)] == list(range(1, 3 * buffer + 1))
        await stream.aclose()


async def test_the_steps_never_overlap_and_each_stream_has_its_own() -> None:
    log = Log()
    count = offload(log.count, buffer=2)
    async with Runtime():
        assert await asyncio.gather(*(listed(count(50)) for _ in range(4))) == [list(range(50))] * 4
    assert len(log.closed) == 4


async def test_an_item_arrives_while_the_step_goes_on() -> None:
    held = threading.Event()

    @offload
    def first_then_wait() -> Iterator[int]:
        yield 1
        held.wait(30)
        yield 2

    async with Runtime():
        stream = first_then_wait()
        assert await anext(stream) == 1
        held.set()
        assert await listed(stream) == [2]


async def test_the_steps_share_one_copy_of_the_context() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)

    @offload(buffer=1)
    def values() -> Iterator[int]:
        for _ in range(4):
            variable.set(variable.get() + 1)
            yield variable.get()

    async with Runtime():
        variable.set(10)
        assert await listed(values()) == [11, 12, 13, 14]
        assert variable.get() == 10


async def test_a_loop_that_consumes_fast_still_turns() -> None:
    turned = 0

    async def turn() -> None:
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0)

    async with Runtime():
        other = asyncio.ensure_future(turn())
        await listed(offload(Log().count)(10_000))
        other.cancel()
    assert turned > 10_000 // 64 // 2


# ---------------------------------------------------------------------- errors


async def test_an_error_comes_after_the_items_with_the_frame_of_the_user() -> None:
    def fails() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("no third item")

    seen = []
    async with Runtime():
        with pytest.raises(LookupError, match="no third item") as caught:
            async for item in offload(fails)():
                seen.append(item)  # noqa: PERF401  # it fails
    assert seen == [1, 2]
    assert "fails" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


async def test_an_error_at_the_call_arrives_too() -> None:
    async with Runtime():
        with pytest.raises(TypeError, match="positional argument"):
            await listed(offload(Log().count)(1, 2))  # type: ignore[call-arg]


async def test_stop_iteration_inside_is_a_runtime_error() -> None:
    def stops() -> Iterator[int]:
        yield 1
        raise StopIteration

    async with Runtime():
        with pytest.raises(RuntimeError, match="StopIteration"):
            await listed(offload(stops)())


async def test_awaiting_it_is_refused() -> None:
    async with Runtime() as runtime:
        for waited in (runtime.offload(offload(Log().count), 1), runtime.map(Log().count, [1])):
            with pytest.raises(TypeError, match=r"offloaded generator function.*`async for`"):
                await waited


# ---------------------------------------------------------------------- the end


async def test_aclose_runs_the_finally_in_a_worker() -> None:
    log = Log()
    async with Runtime() as runtime:
        stream = offload(log.count, buffer=3)()
        await anext(stream)
        await stream.aclose()
        assert len(log.closed) == 1
        assert log.closed[0] is not threading.current_thread()
        await eventually(lambda: nothing_runs(runtime))


@pytest.mark.parametrize("where", ["thread", "inline"])
async def test_aclose_raises_what_the_finally_raises(where: Where) -> None:
    async with Runtime() as runtime:
        stream = offload(fails_at_its_end, where=where)(int)
        await anext(stream)
        await eventually(lambda: nothing_runs(runtime))
        with pytest.raises(OSError, match="full"):
            await stream.aclose()


async def test_aclose_raises_it_also_where_a_step_is_under_way(caplog: pytest.LogCaptureFixture) -> None:
    async with Runtime(), Gate() as gate:
        stream = offload(fails_at_its_end)(gate)
        await anext(stream)
        await gate.entered()
        closing = asyncio.ensure_future(stream.aclose())
        await turns()
        gate.release()
        with pytest.raises(OSError, match="full"):
            await closing
    assert not caplog.records


async def test_a_block_of_aclosing_and_a_dropped_stream_end_it() -> None:
    log = Log()
    async with Runtime():
        async with aclosing(offload(log.count)()) as stream:
            async for item in stream:
                if item == 100:
                    break
        assert len(log.closed) == 1
        async for item in offload(log.count)():
            if item == 100:
                break
        await eventually(lambda: len(log.closed) == 2)


async def test_cancelling_waits_for_the_step_and_runs_the_finally() -> None:
    ended = threading.Event()
    async with Runtime(), Gate() as gate:

        @offload
        def waits() -> Iterator[int]:
            try:
                yield gate()
            finally:
                ended.set()

        task = asyncio.ensure_future(listed(waits()))
        await gate.entered()
        task.cancel()
        await turns()
        assert not task.done()
        task.cancel()  # a second one changes nothing
        await turns()
        assert not task.done()
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()


async def test_cancelling_ends_at_once_where_calls_may_be_abandoned() -> None:
    ended = threading.Event()
    async with Runtime(), Gate() as gate:

        @offload(abandon_on_cancel=True)
        def waits() -> Iterator[int]:
            try:
                yield gate()
            finally:
                ended.set()

        task = asyncio.ensure_future(listed(waits()))
        await gate.entered()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ended.is_set()
        gate.release()
        await eventually(ended.is_set)


async def test_closing_does_not_wait_for_the_finally_where_calls_may_be_abandoned() -> None:
    async with Runtime() as runtime, Gate() as gate:

        @offload(abandon_on_cancel=True, buffer=1)
        def held_at_end() -> Iterator[int]:
            try:
                yield 1
                yield 2
                yield 3
            finally:
                gate()

        stream = held_at_end()
        assert await anext(stream) == 1
        await eventually(lambda: nothing_runs(runtime))
        closing = asyncio.ensure_future(stream.aclose())
        await gate.entered()
        await turns()
        assert closing.done()
        gate.release()
        await closing
        await eventually(lambda: nothing_runs(runtime))


async def test_the_finally_of_a_generator_that_is_left_early_may_reset_its_variables() -> None:
    variable = ContextVar("variable", default=0)
    ended = threading.Event()

    @offload(buffer=2)
    def sets() -> Iterator[int]:
        token = variable.set(1)
        try:
            yield from itertools.count()
        finally:
            variable.reset(token)
            ended.set()

    async with Runtime():
        async with aclosing(sets()) as stream:
            assert await anext(stream) == 0
        assert ended.is_set()


async def test_a_generator_is_closed_while_the_thread_of_a_step_that_was_left_is_in_its_context() -> None:
    log = Log()
    async with Runtime(), Gate() as gate:
        stream = offload(log.count, buffer=2, abandon_on_cancel=True)()
        assert await anext(stream) == 0
        steps = stream.ag_frame.f_locals["steps"]
        await eventually(lambda: steps._call is None)
        run = steps.producer.run
        steps.producer.run = lambda: (run(), gate())
        assert [await anext(stream), await anext(stream)] == [1, 2]
        await gate.entered()
        await stream.aclose()
        await eventually(lambda: len(log.closed) == 1)


async def test_a_generator_may_stop_itself_when_nobody_waits() -> None:
    async with Runtime(), Gate() as gate:

        @offload
        def asks() -> Iterator[int]:
            gate()
            check_cancelled()
            raise AssertionError("expected check_cancelled to raise")
            yield 1

        task = asyncio.ensure_future(listed(asks()))
        await cancel_inside(task, gate)


async def test_a_queued_step_is_withdrawn() -> None:
    log = Log()
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        task = asyncio.ensure_future(listed(offload(log.count)(3)))
        await turns()
        assert queued(runtime) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert queued(runtime) == 0
        gate.release()
        await running
    assert log.opened == 0


async def test_a_stream_that_outlives_its_runtime_still_runs_its_finally() -> None:
    log = Log()
    async with Runtime():
        stream = offload(log.count, buffer=2)()
        await anext(stream)
    await stream.aclose()
    assert len(log.closed) == 1
    assert log.closed[0] is not threading.current_thread()


async def test_a_stream_that_ends_while_its_runtime_closes_runs_its_finally_in_a_worker() -> None:
    log = Log()
    async with Gate() as gate:
        runtime = hybridrt.install()
        stream = offload(log.count, buffer=2)()
        await anext(stream)
        holding = await hold(runtime, gate)
        closing = asyncio.ensure_future(runtime.aclose())
        await turns()
        await stream.aclose()
        assert len(log.closed) == 1
        assert log.closed[0] is not threading.current_thread()
        gate.release()
        await asyncio.gather(holding, closing)


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("items", [3, 1000], ids=["to its end", "left early"])
async def test_what_a_stream_was_called_with_dies_with_it(items: int) -> None:
    @offload
    def numbers(thing: Thing) -> Iterator[int]:
        yield from range(items)

    async with sole_worker() as runtime:
        thing = Thing()
        watch = weakref.ref(thing)
        async with aclosing(numbers(thing)) as stream:
            async for number in stream:
                if number == 5:
                    break
        del thing, stream
        await runtime.offload(int)  # the worker is past the last step
        assert watch() is None


@pytest.mark.slow
async def test_cancelling_at_random_points_leaves_nothing() -> None:
    log = Log()
    count = offload(log.count, buffer=3)
    async with Runtime() as runtime:
        await cancel_at_random_points(runtime, lambda: listed(count()), seed=1)
    assert len(log.closed) == log.opened
    assert threading.current_thread() not in log.closed


@pytest.mark.race
async def test_no_item_is_slept_through() -> None:
    async with Runtime():
        assert await listed(offload(Log().count, buffer=2)(20)) == list(range(20))


# ---------------------------------------------------------------------- time


async def test_an_item_that_is_late_ends_the_stream(timers: Timers) -> None:
    ended = threading.Event()
    async with Runtime() as runtime, Gate() as gate:

        @offload(timeout=5.0)
        def late() -> Iterator[int]:
            try:
                yield gate()
            finally:
                ended.set()

        task = asyncio.ensure_future(listed(late()))
        await gate.entered()
        timers.fire()
        with pytest.raises(OffloadTimeoutError, match=r"still ran after its timeout of 5.0 s") as caught:
            await task
        assert caught.value.started is True
        assert not ended.is_set()
        gate.release()
        await eventually(ended.is_set)
        await eventually(lambda: nothing_runs(runtime))


async def test_an_item_that_came_in_time_is_not_late_because_the_loop_was_busy(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "SLICE_NS", 3_600_000_000_000)
    beyond = threading.Event()
    async with Runtime(), Gate() as first, Gate() as second:

        @offload(timeout=5.0)
        def numbers() -> Iterator[int]:
            yield first(1)
            beyond.set()
            yield second(2)

        task = asyncio.ensure_future(listed(numbers()))
        await first.entered()
        first.release()
        assert beyond.wait(DEADLINE)  # the loop stands still
        timers.fire()
        second.release()
        assert await task == [1, 2]


async def test_the_timeout_is_for_each_item() -> None:
    async with Runtime():
        assert await listed(offload(Log().count, timeout=3600.0)(500)) == list(range(500))


async def test_a_deadline_ends_a_stream_and_its_finally_still_runs() -> None:
    log = Log()
    async with Runtime():
        with pytest.raises(TimeoutError, match="deadline"):
            async with hybridrt.deadline(3600.0) as scope:
                async with aclosing(offload(log.count, buffer=2)()) as stream:
                    async for item in stream:
                        if item == 5:
                            scope._expire()
                        await asyncio.sleep(0)
        await eventually(lambda: len(log.closed) == log.opened)
    assert current_scope.get() is None


# ---------------------------------------------------------------------- as a function


def test_it_passes_for_an_async_generator_function() -> None:
    count = offload(Log().count)
    assert isinstance(count, OffloadedGenerator)
    assert inspect.isasyncgenfunction(count)
    assert not inspect.iscoroutinefunction(count)
    assert inspect.isasyncgen(count(1))
    assert list(count.sync(3)) == [0, 1, 2]


class Book:
    @offload
    def pages(self, number: int) -> Iterator[int]:
        """Return the pages."""
        yield from range(number)


async def test_a_method_and_a_partial_work_alike() -> None:
    async with Runtime():
        assert await listed(Book().pages(3)) == [0, 1, 2]
        assert await listed(Book().pages.options(buffer=1, limit=1)(3)) == [0, 1, 2]
        assert await listed(offload(partial(Log().count, 2))()) == [0, 1]


@pytest.mark.parametrize("buffer", [0, -1])
def test_a_buffer_holds_an_item(buffer: int) -> None:
    with pytest.raises(ValueError, match="buffer must be an int >= 1 or None"):
        offload(Log().count, buffer=buffer)


def test_a_buffer_is_for_generators() -> None:
    with pytest.raises(ValueError, match="buffer is for what a generator function yields"):
        offload(len, buffer=3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="buffer is for what a generator function yields"):
        offload(len).options(buffer=3)


async def test_a_deadline_whose_block_was_left_does_not_end_the_steps_that_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hybridrt.streams.producer.SLICE_NS", 0)

    @offload(buffer=8)
    def gated() -> Iterator[int]:
        for number in range(4):
            if number == 2:
                gate(number)
            yield number

    async with Runtime(), Gate() as gate, aclosing(gated()) as items:
        async with hybridrt.deadline(3600.0) as scope:
            assert await anext(items) == 0
        rest = asyncio.ensure_future(listed(items))
        await gate.entered()
        scope._end_bounded()
        gate.release()
        assert await rest == [1, 2, 3]


async def test_a_generator_whose_steps_are_short_of_time_goes_on_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hybridrt.streams.producer.SLICE_NS", 0)
    log = Log()
    async with Runtime(), aclosing(offload(log.count, buffer=8)()) as items:
        assert await anext(items) == 0
        await eventually(lambda: log.made >= 6)
        assert log.made <= 9
