"""`pipe`: which item a failure belongs to, and that no other item is lost by it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest

from hybridrt import OffloadTimeoutError, Runtime, RuntimeClosedError, deadline, offload, pipe, stage

from ..isolates import far
from ..loop.support import DEADLINE, Gate, Timers, cancel_inside, eventually, turns
from .support import as_kind, cancel_own_task, listed, nothing_runs

kinds = pytest.mark.parametrize(
    "kind", ["def", "awaitable", "async def", "generator", "async generator", "offloaded"]
)
both_orders = pytest.mark.parametrize("ordered", [True, False])


# ---------------------------------------------------------------------- what fails as the pipe ends


def fails_at_its_end(_: int = 0) -> Iterator[int]:
    try:
        yield from range(10_000)
    finally:
        raise OSError("the disk is full")


async def fails_at_its_end_on_the_loop(_: int = 0) -> AsyncIterator[int]:
    try:
        for number in range(10_000):
            yield number
    finally:
        raise OSError("the disk is full")


ENDS = {
    "source": lambda: pipe(fails_at_its_end(), str),
    "asynchronous source": lambda: pipe(fails_at_its_end_on_the_loop(), str),
    "generator": lambda: pipe([1], fails_at_its_end),
    "skipped generator": lambda: pipe([1], fails_at_its_end, on_error="skip"),
    "async generator": lambda: pipe([1], fails_at_its_end_on_the_loop),
}


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS)
async def test_what_a_finally_raises_when_a_pipe_is_left_early_is_logged(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime() as runtime:
        async with make() as results:
            await anext(results)
            await turns(100)
            await eventually(lambda: nothing_runs(runtime))
        (record,) = caplog.records
    assert "raised after its c" in record.getMessage()  # consumer, or caller where a step still ran
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)


async def test_a_failure_ahead_of_a_consumer_that_leaves_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def inverse(number: int) -> float:
        return 1.0 / (2 - number)

    async with Runtime(), pipe(range(10), stage(inverse, concurrency=1)) as results:
        assert await anext(results) == 0.5
        task = results._flow._task
        assert task is not None
        await eventually(task.done)
    assert caplog.records == []


async def test_a_deadline_that_ends_a_pipe_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Runtime(), Gate() as gate:

        async def bounded() -> None:
            async with deadline(3600.0) as scope, pipe([1], gate) as results:
                asyncio.ensure_future(gate.entered()).add_done_callback(lambda _: scope._expire())
                await anext(results)

        with pytest.raises(TimeoutError, match="deadline"):
            await bounded()
    assert caplog.records == []


async def test_an_error_that_the_consumer_of_a_pipe_has_got_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Runtime():
        with pytest.raises(OSError, match="the disk is full"):
            await listed(pipe(fails_at_its_end(), str))
    assert caplog.records == []


async def endless() -> AsyncIterator[int]:
    while True:
        await asyncio.sleep(0)
        yield 1


def some_stage(kind: str) -> Any:
    return offload(list, batch=2) if kind == "batched" else as_kind(kind, abs)


@both_orders
@pytest.mark.parametrize("kind", ["offloaded", "batched", "generator"])
async def test_a_pipe_whose_runtime_has_closed_ends_instead_of_skipping_all_that_comes(
    kind: str, ordered: bool
) -> None:
    results = pipe(endless(), some_stage(kind), ordered=ordered, on_error="skip")
    async with Runtime():
        await anext(results)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(RuntimeClosedError):
            await listed(results)


@both_orders
@pytest.mark.parametrize("kind", ["offloaded", "batched", "generator"])
async def test_a_pipe_whose_deadline_is_over_ends_instead_of_skipping_all_that_comes(
    kind: str, ordered: bool
) -> None:
    async with Runtime():
        async with deadline(3600.0) as scope:
            results = pipe(endless(), some_stage(kind), ordered=ordered, on_error="skip")
            await anext(results)
        scope._expire()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(OffloadTimeoutError, match=r"deadline of 3600\.0 s"):
                await listed(results)


# ---------------------------------------------------------------------- what cancels itself


async def cancelled_on_loop() -> AsyncIterator[int]:
    yield 1
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def cancelled_in_worker() -> Iterator[int]:
    yield 1
    raise asyncio.CancelledError


@pytest.mark.parametrize("source", [cancelled_on_loop, cancelled_in_worker])
async def test_a_source_that_cancels_itself_ends_the_pipe_with_an_error(source: Any) -> None:
    async with Runtime():
        with pytest.raises(RuntimeError, match="the source was cancelled, and the pipe was not") as caught:
            await listed(pipe(source(), str))
    assert caught.value.__notes__ == ["in the source of the pipe, after 1 items"]


def cancelled_at_40(number: int) -> int:
    if number == 40:
        raise asyncio.CancelledError
    return number


@both_orders
@kinds
async def test_a_function_that_cancels_itself_fails_at_that_item_alone(kind: str, ordered: bool) -> None:
    async with Runtime():
        results = pipe(range(300), as_kind(kind, cancelled_at_40), ordered=ordered, on_error="skip")
        found = await listed(results)
    assert sorted(found) == [number for number in range(300) if number != 40]
    (skipped,) = results.skipped
    assert (skipped.number, skipped.item) == (40, 40)
    assert str(skipped.error) == "the function was cancelled, and the pipe was not"
    assert isinstance(skipped.error.__cause__, asyncio.CancelledError)


@both_orders
@pytest.mark.parametrize("kind", ["def", "async def", "generator", "async generator", "offloaded"])
async def test_a_function_that_cancels_itself_ends_the_pipe_and_names_its_item(
    kind: str, ordered: bool
) -> None:
    async with Runtime():
        with pytest.raises(RuntimeError, match="the function was cancelled, and the pipe was not") as caught:
            await listed(pipe(range(3000), as_kind(kind, cancelled_at_40), ordered=ordered))
    assert [note.endswith("item 40: 40") for note in caught.value.__notes__] == [True]


async def cancels_its_task_at_1(number: int) -> int:
    if number == 1:
        cancel_own_task()
    await asyncio.sleep(0)
    return number


async def gives_two_and_cancels_its_task_at_1(number: int) -> AsyncIterator[int]:
    yield number
    if number == 1:
        cancel_own_task()
        await asyncio.sleep(0)
    yield number


@both_orders
@pytest.mark.parametrize("fn", [cancels_its_task_at_1, gives_two_and_cancels_its_task_at_1])
async def test_a_function_that_cancels_its_task_fails_at_that_item_alone(fn: Any, ordered: bool) -> None:
    with pytest.raises(RuntimeError, match="the function was cancelled, and the pipe was not") as caught:
        await listed(pipe(range(300), fn, ordered=ordered))
    assert [note.endswith("item 1: 1") for note in caught.value.__notes__] == [True]
    results = pipe(range(300), fn, ordered=ordered, on_error="skip")
    assert {*await listed(results)} >= {*range(300)} - {1}
    assert [each.item for each in results.skipped] == [1]


@both_orders
async def test_a_function_that_cancels_its_task_as_it_returns_loses_no_item_unseen(ordered: bool) -> None:
    async def cancelled(number: int) -> int:
        if number == 1:
            cancel_own_task()
        return number

    found: list[int] = []
    try:
        found = await listed(pipe(range(300), cancelled, ordered=ordered))
    except RuntimeError as error:
        ended = str(error)
    else:
        ended = "in good order"
    lost = len(found) < 300
    assert ended == ("the stage was cancelled, and the pipe was not" if lost else "in good order")


@pytest.mark.parametrize("stages", [(), (str,)])
async def test_a_source_that_cancels_its_task_ends_the_pipe_with_an_error(stages: tuple[Any, ...]) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        cancel_own_task()
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="the source was cancelled, and the pipe was not"):
        await listed(pipe(source(), *stages))


async def test_a_batch_that_cancels_itself_is_skipped_with_all_its_items() -> None:
    @offload(batch=8)
    def cancelled_with_9(numbers: list[int]) -> list[int]:
        if 9 in numbers:
            raise asyncio.CancelledError
        return numbers

    async with Runtime():
        results = pipe(range(64), cancelled_with_9, on_error="skip")
        found = await listed(results)
    skipped = [each.item for each in results.skipped]
    assert 9 in skipped
    assert [each.number for each in results.skipped] == skipped
    assert sorted(found + skipped) == list(range(64))


# ---------------------------------------------------------------------- which item it was


async def test_a_batched_function_may_consume_its_list() -> None:
    @offload(batch=8)
    def consume(numbers: list[int]) -> list[int]:
        return [numbers.pop(0) for _ in range(len(numbers))]

    async with Runtime():
        assert await listed(pipe(range(20), consume)) == list(range(20))


@both_orders
@kinds
async def test_an_error_group_of_a_stage_is_raised_as_it_is(kind: str, ordered: bool) -> None:
    group = ExceptionGroup("mine", [KeyError(1), ValueError(2)])

    def fails(number: int) -> int:
        raise group

    async with Runtime():
        with pytest.raises(ExceptionGroup) as caught:
            await listed(pipe([7], as_kind(kind, fails), ordered=ordered))
    assert caught.value is group
    assert [note.endswith("item 0: 7") for note in group.__notes__] == [True]


async def test_the_note_of_a_large_item_looks_at_its_beginning_alone() -> None:
    looked_at = 0

    class Part:
        def __repr__(self) -> str:
            nonlocal looked_at
            looked_at += 1
            return "part"

    def fails(parts: list[Part]) -> None:
        raise LookupError

    async with Runtime():
        with pytest.raises(LookupError) as caught:
            await listed(pipe([[Part()] * 10_000], fails))
    assert caught.value.__notes__[0].endswith("part, part...")
    assert looked_at <= 200


async def test_an_error_that_takes_no_note_is_raised_as_it_is() -> None:
    @dataclass(frozen=True)
    class FrozenError(Exception):
        number: int

    def fails(number: int) -> int:
        raise FrozenError(number)

    async with Runtime():
        with pytest.raises(FrozenError):
            await listed(pipe([7], fails))


async def test_what_cannot_be_awaited_is_not_counted_away() -> None:
    async def fail(number: int) -> int:
        raise LookupError(number)

    async def give(number: int) -> int:
        return number

    def some_awaitable(number: int) -> Any:
        if number % 3 == 0:
            raise LookupError(number)
        return fail(number) if number % 3 == 1 else give(number)

    async with Runtime():
        results = pipe(range(90), stage(some_awaitable, concurrency=1), on_error="skip")
        assert await listed(results) == list(range(2, 90, 3))
    found = sorted((each.number, each.item, each.error.args[0]) for each in results.skipped)
    assert found == [(number,) * 3 for number in range(90) if number % 3 != 2]


@pytest.mark.parametrize("first", ["plain", "awaitable"])
async def test_a_function_may_return_something_to_await_for_some_items_only(first: str) -> None:
    async def fetch(number: int) -> int:
        return number

    def cached(number: int) -> Any:
        return number if (number % 3 == 0) == (first == "plain") else fetch(number)

    async with Runtime():
        assert await listed(pipe(range(300), cached)) == [*range(300)]


async def test_the_timeout_of_a_batched_function_bounds_its_batches_in_a_pipe(timers: Timers) -> None:
    async with Runtime(), Gate() as gate:
        slow = offload(lambda numbers: [gate(number) for number in numbers], batch=4, timeout=7.0)
        task = asyncio.ensure_future(listed(pipe([1], slow)))
        await gate.entered()
        assert [seconds for seconds, *_ in timers.armed] == [7.0]
        timers.fire()
        gate.release()
        with pytest.raises(OffloadTimeoutError, match=r"still ran after its timeout of 7.0 s"):
            await task


@both_orders
async def test_a_cancelled_pipe_begins_no_further_item_of_a_chunk_that_yields_nothing(ordered: bool) -> None:
    begun: list[int] = []

    def fruitless(number: int) -> Iterator[int]:
        begun.append(number)
        if number >= 50:
            gate(number)
        return
        yield

    async with Runtime(), Gate() as gate:
        results = pipe(range(2000), stage(fruitless, concurrency=1), ordered=ordered)
        task = asyncio.ensure_future(listed(results))
        await cancel_inside(task, gate)
    assert begun == [*range(51)]


class Thing:
    """What can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


@both_orders
@pytest.mark.parametrize("kind", ["def", "async def", "generator", "async generator", "offloaded"])
async def test_a_skipped_error_keeps_its_own_item_and_no_other(kind: str, ordered: bool) -> None:
    things: WeakSet[Thing] = WeakSet()

    def make(number: int) -> Thing:
        things.add(thing := Thing(number))
        return thing

    def make_another(thing: Thing) -> Thing:
        if thing.number % 10 == 3:
            raise LookupError(thing.number)
        return make(thing.number)

    async with Runtime():
        source = map(make, range(200))
        async with pipe(source, as_kind(kind, make_another), ordered=ordered, on_error="skip") as results:
            assert len([None async for _ in results]) == 180
            del source
        gc.collect()
        # The thread of the last call may have that still in hand.
        await eventually(lambda: sorted(thing.number for thing in things) == list(range(3, 200, 10)))
        assert {id(thing) for thing in things} == {id(each.item) for each in results.skipped}


# ---------------------------------------------------------------------- generators with options


def current_thread(_: int) -> Iterator[threading.Thread]:
    yield threading.current_thread()


@both_orders
async def test_an_inline_generator_runs_on_the_loop(ordered: bool) -> None:
    async with Runtime():
        here = offload(current_thread, where="inline")
        assert await listed(pipe([1, 2], here, ordered=ordered)) == [threading.current_thread()] * 2


async def test_the_environment_may_have_generators_run_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("options", "offload"):
        monkeypatch.setattr(sys.modules[f"hybridrt.{module}"], "IN_PLACE", "inline")
    async with Runtime():
        assert await listed(pipe([1], current_thread)) == [threading.current_thread()]


def test_a_pure_generator_is_iterated_over_where_its_options_say() -> None:
    assert stage(offload(far.count_to, pure=True, where="isolate")).kind == "async generator"
    assert stage(offload(far.count_to, pure=True)).kind == "async generator"
    assert stage(far.count_to).kind == "generator"


@both_orders
async def test_a_generator_that_is_late_fails_at_that_item_alone(timers: Timers, ordered: bool) -> None:
    async with Runtime(), Gate() as gate:

        @offload(timeout=5.0)
        def late(number: int) -> Iterator[int]:
            yield gate(number) if number == 25 else number

        results = pipe(range(50), stage(late, concurrency=1), ordered=ordered, on_error="skip")
        found = asyncio.ensure_future(listed(results))
        assert await gate.entered() == 25
        while not (results.skipped or found.done()):
            timers.fire()
            await turns(1)
        assert await found == [number for number in range(50) if number != 25]
        (skipped,) = results.skipped
        assert (skipped.number, skipped.item) == (25, 25)
        assert isinstance(skipped.error, OffloadTimeoutError)


async def test_a_generator_that_is_late_ends_the_pipe_and_names_its_item(timers: Timers) -> None:
    async with Runtime(), Gate() as gate:

        @offload(timeout=5.0)
        def late(number: int) -> Iterator[int]:
            yield gate(number) if number == 1 else number

        found = asyncio.ensure_future(listed(pipe(range(3), stage(late, concurrency=1))))
        assert await gate.entered() == 1
        while not found.done():
            timers.fire()
            await turns(1)
        with pytest.raises(OffloadTimeoutError, match=r"timeout of 5\.0 s") as caught:
            await found
        assert caught.value.__notes__ == ["in stage 'late' of the pipe, item 1: 1"]
