"""`pipe`: what comes out, what overlaps, what waits, what an error does, and what is left at the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import hybridrt
from hybridrt import OffloadTimeoutError, Pipe, PipeStatistics, Runtime, offload, pipe, stage
from hybridrt.testing import InlineRuntime

from ..loop.support import Gate, eventually, hold, sole_worker, turns
from .support import as_kind, cancel_at_random_points, listed, nothing_runs


def double(number: int) -> int:
    return 2 * number


async def add_one(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


def repeat(number: int) -> Iterator[int]:
    for _ in range(number % 3):
        yield number


async def count_up(number: int) -> AsyncIterator[int]:
    for each in range(number % 3):
        await asyncio.sleep(0)
        yield each


def repeated(number: int) -> list[int]:
    return [number] * (number % 3)


async def from_loop(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


def from_worker(count: int) -> Iterator[int]:
    yield from range(count)


def odd(number: int) -> int:
    if number % 2:
        raise LookupError(f"{number} is odd")
    return number


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize("make", [range, from_loop, from_worker, lambda count: list(range(count))])
async def test_every_item_goes_through_every_stage(make: Any, count: int, ordered: bool) -> None:
    async with Runtime():
        found = await listed(pipe(make(count), double, add_one, ordered=ordered))
    wanted = [2 * number + 1 for number in range(count)]
    assert (found if ordered else sorted(found)) == wanted


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("fn", "one"),
    [
        (repeat, repeated),
        (offload(repeat, buffer=2), repeated),
        (count_up, lambda number: list(range(number % 3))),
        (offload(double, batch=8), lambda number: [2 * number]),
        (offload(double, limit=2), lambda number: [2 * number]),
        (offload(double), lambda number: [2 * number]),
        (lambda number: add_one(number), lambda number: [number + 1]),
    ],
    ids=[
        "generator",
        "offloaded generator",
        "async generator",
        "batched",
        "limited",
        "offloaded",
        "awaitable",
    ],
)
async def test_a_stage_is_any_kind_of_function(
    fn: Any, one: Callable[[int], list[int]], ordered: bool
) -> None:
    if isinstance(fn, hybridrt.Batched):
        fn = offload(lambda numbers: [2 * number for number in numbers], batch=8)
    async with Runtime():
        found = await listed(pipe(range(300), fn, ordered=ordered))
    wanted = [result for number in range(300) for result in one(number)]
    assert (found if ordered else sorted(found)) == (wanted if ordered else sorted(wanted))


async def test_a_pipe_without_stages_and_one_in_place() -> None:
    assert await listed(pipe(range(5))) == list(range(5))
    async with InlineRuntime():
        assert await listed(pipe(range(50), double, add_one)) == [2 * number + 1 for number in range(50)]


async def test_methods_and_classes_are_stages() -> None:
    class Scale:
        @offload
        def by_two(self, number: int) -> int:
            return 2 * number

        async def __call__(self, number: int) -> str:
            return str(number)

    async with Runtime():
        assert await listed(pipe([1, 2], Scale().by_two, Scale(), int)) == [2, 4]


async def test_stages_of_def_run_in_workers_and_those_of_async_def_on_the_loop() -> None:
    def where(_: int) -> threading.Thread:
        return threading.current_thread()

    async def and_here(there: threading.Thread) -> tuple[threading.Thread, threading.Thread]:
        return there, threading.current_thread()

    async with Runtime():
        ((there, here),) = await listed(pipe([1], where, and_here))
    assert here is threading.current_thread()
    assert there is not here


# ---------------------------------------------------------------------- what overlaps, what waits


async def test_stages_overlap() -> None:
    both = threading.Barrier(2)

    def first(number: int) -> int:
        if number == 1:
            both.wait(30)
        return number

    def second(number: int) -> int:
        if number == 0:
            both.wait(30)
        return number

    async with Runtime():
        results = pipe([0, 1], stage(first, concurrency=1), stage(second, concurrency=1))
        assert await listed(results) == [0, 1]


async def test_unordered_results_overtake_a_slow_one() -> None:
    async with Runtime(), Gate() as gate:

        def slow_first(number: int) -> int:
            return gate(number) if number == 0 else number  # type: ignore[no-any-return]

        results = pipe(from_loop(4), stage(slow_first, concurrency=2), ordered=False)
        assert [await anext(results) for _ in range(3)] == [1, 2, 3]
        gate.release()
        assert await listed(results) == [0]


async def test_concurrency_is_a_bound() -> None:
    at_once = most = 0

    async def note(number: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await turns(2)
        at_once -= 1
        return number

    for ordered in (True, False):
        assert len(await listed(pipe(range(50), stage(note, concurrency=3), ordered=ordered))) == 50
    assert most == 3


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_consumer_that_stops_stops_the_source(ordered: bool) -> None:
    taken = 0

    async def counted() -> AsyncIterator[int]:
        nonlocal taken
        for number in range(100_000):
            taken += 1
            yield number

    async with Runtime():
        async with pipe(counted(), double, add_one, repeat, ordered=ordered) as results:
            await anext(results)
            before = -1
            while taken != before:
                before = taken
                await asyncio.sleep(0.01)
            assert taken < 3000


async def test_a_source_in_a_worker_is_no_further_ahead_than_the_buffer_says() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(200):
            made.append(number)
            yield number

    async with Runtime() as runtime, Gate() as gate:
        results = pipe(numbers(), stage(gate, concurrency=1, buffer=1))
        consumer = asyncio.ensure_future(listed(results))
        await gate.entered()
        await turns(50)
        await eventually(lambda: len(runtime.statistics().running) == 1)
        assert len(made) < 10
        gate.release()
        assert await consumer == made


@pytest.mark.slow
async def test_what_waits_does_not_grow_with_the_number_of_items() -> None:
    alive = most = 0

    class Item:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def make(_: int) -> Item:
        return Item()

    async with Runtime():
        async for item in pipe(range(40_000), make, lambda item: item, ordered=True):
            del item
    assert most < 10_000


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("fn", ["def", "offloaded", "async", "generator"])
async def test_the_first_error_ends_the_pipe_and_names_its_item(fn: Any, ordered: bool) -> None:
    async def odd_async(number: int) -> int:
        return odd(number)

    def odd_generator(number: int) -> Iterator[int]:
        yield odd(number)

    offloaded: Any = offload(odd, limit=2)
    fn = {"def": odd, "offloaded": offloaded, "async": odd_async, "generator": odd_generator}[fn]
    async with Runtime() as runtime:
        with pytest.raises(LookupError, match="is odd") as caught:
            await listed(pipe(from_loop(100), add_one, double, lambda n: n + 1, fn, ordered=ordered))
        (note,) = caught.value.__notes__
        assert "in stage 'odd" in note or "odd_" in note
        assert "of the pipe, item " in note
        assert "odd" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        await eventually(lambda: nothing_runs(runtime))
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_of_the_source_says_so() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    async def broken_on_loop() -> AsyncIterator[int]:
        yield 1
        raise OSError("no more")

    for source in (broken(), broken_on_loop()):
        with pytest.raises(OSError, match="no more") as caught:
            await listed(pipe(source, add_one))
        assert "in the source of the pipe, after 1 items" in caught.value.__notes__


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", ["def", "async def", "generator", "async generator", "offloaded"])
async def test_skip_leaves_out_what_fails_and_notes_it(kind: str, ordered: bool) -> None:
    async with Runtime():
        results = pipe(range(1000), as_kind(kind, odd, timeout=60.0), ordered=ordered, on_error="skip")
        found = await listed(results)
    assert sorted(found) == list(range(0, 1000, 2))
    assert sorted(each.number for each in results.skipped) == list(range(1, 1000, 2))
    assert all(each.item == each.number and isinstance(each.error, LookupError) for each in results.skipped)
    assert results.statistics().skipped == 500
    assert results.statistics().stages[1].failed == 500


async def test_a_failed_batch_is_skipped_with_all_its_items() -> None:
    def fails(numbers: list[int]) -> list[int]:
        if 3 in numbers:
            raise LookupError("3")
        return numbers

    async with Runtime():
        results = pipe(from_loop(10), stage(offload(fails, batch=2)), on_error="skip")
        found = await listed(results)
    skipped = {each.item for each in results.skipped}
    assert 3 in skipped
    assert {*found} | skipped == set(range(10))


async def test_a_pipe_whose_task_is_cancelled_does_not_pass_for_complete() -> None:
    held = asyncio.Event()

    async def hold_it(number: int) -> int:
        await held.wait()
        return number

    results = pipe(range(3), hold_it)
    consumer = asyncio.ensure_future(listed(results))
    await turns()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "hybridrt pipe"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def test_a_function_that_cancels_itself_does_not_lose_its_item_unseen() -> None:
    async def cancelled(number: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="the function was cancelled, and the pipe was not"):
        await listed(pipe(range(3), cancelled))


# ---------------------------------------------------------------------- the end


class Source:
    """An asynchronous source that notes whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def numbers(self) -> AsyncIterator[int]:
        try:
            number = 0
            while True:
                yield (number := number + 1)
                await asyncio.sleep(0)
        finally:
            self.closed = True


@pytest.mark.parametrize("leave", ["break", "aclose", "error"])
async def test_leaving_early_ends_everything_and_closes_the_source(leave: str) -> None:
    source = Source()
    async with Runtime() as runtime:
        results = pipe(source.numbers(), double, repeat, add_one)
        if leave == "aclose":
            await anext(results)
            await results.aclose()
            await results.aclose()
        else:
            with contextlib.suppress(ZeroDivisionError):
                async with results:
                    async for _ in results:
                        if leave == "break":
                            break
                        raise ZeroDivisionError
        assert source.closed
        assert len(asyncio.all_tasks()) == 1
        await eventually(lambda: nothing_runs(runtime))


async def test_a_pipe_that_is_dropped_ends() -> None:
    source = Source()
    async with Runtime():
        async for _ in pipe(source.numbers(), double):
            break
        await eventually(lambda: source.closed and len(asyncio.all_tasks()) == 1)


async def test_a_pipe_that_was_never_asked_leaves_nothing() -> None:
    source = Source()
    results = pipe(source.numbers(), double)
    assert results.statistics().bottleneck is None
    await results.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_waits_for_what_runs_and_never_runs_what_is_queued() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        task = asyncio.ensure_future(listed(pipe(range(10), ran.append)))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.release()
        await running
    assert ran == []


async def test_a_deadline_bounds_a_pipe() -> None:
    async with Runtime(), Gate() as gate:

        async def bounded() -> None:
            async with hybridrt.deadline(3600.0) as scope:
                async with pipe(range(5), gate) as results:
                    asyncio.get_running_loop().call_later(0.001, scope._expire)
                    await anext(results)

        with pytest.raises(TimeoutError, match="deadline"):
            await bounded()
        assert len(asyncio.all_tasks()) == 1
        gate.release()


async def test_a_timeout_of_a_stage_ends_the_pipe() -> None:
    async with Runtime(), Gate() as gate:
        with pytest.raises(OffloadTimeoutError, match=r"timeout of 0\.001 s"):
            await listed(pipe(range(5), offload(gate, timeout=0.001)))
        gate.release()


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
async def test_cancelling_at_random_points_leaves_nothing(ordered: bool) -> None:
    opened = closed = 0

    def noted(number: int) -> Iterator[int]:
        nonlocal opened, closed
        opened += 1
        try:
            yield number
            yield number
        finally:
            closed += 1

    batched = offload(lambda numbers: numbers, batch=4)
    async with Runtime() as runtime:
        await cancel_at_random_points(
            runtime,
            lambda: listed(
                pipe(Source().numbers(), double, stage(noted, buffer=3), add_one, batched, ordered=ordered)
            ),
            seed=7,
        )
        await eventually(lambda: opened == closed)


@pytest.mark.race
async def test_no_item_is_lost_or_doubled() -> None:
    async with Runtime():
        found = await listed(pipe(from_loop(30), double, repeat, add_one, ordered=False))
    assert sorted(found) == sorted(each + 1 for number in range(30) for each in repeated(2 * number))


# ---------------------------------------------------------------------- what is told


async def test_progress_hears_of_the_end() -> None:
    heard: list[PipeStatistics] = []
    async with Runtime():
        await listed(pipe(range(500), double, progress=heard.append))
    assert (heard[-1].items_in, heard[-1].items_out) == (500, 500)
    assert [row.name for row in heard[-1].stages] == ["source", "double", "consumer"]
    assert all(row.items_in == row.items_out == 500 for row in heard[-1].stages)


@pytest.mark.slow
async def test_the_statistics_name_the_bottleneck() -> None:
    waits = asyncio.Semaphore(0)

    async def slow(number: int) -> int:
        await waits.acquire()
        return number

    # All on the loop, so that a busy machine slows down all stages alike.
    results = pipe(range(200), add_one, stage(slow, concurrency=1), add_one)
    task = asyncio.ensure_future(listed(results))
    while not task.done():
        waits.release()
        await asyncio.sleep(0.001)
    found = results.statistics()
    assert found.bottleneck == "slow"
    assert "slow" in str(found)
    assert "<- bottleneck" in str(found)


# ---------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: pipe(5, double), "the source of a pipe is an iterable or an asynchronous one, got 5"),  # type: ignore[arg-type]
        (lambda: pipe(from_loop, double), "call it"),  # type: ignore[arg-type]
        (lambda: pipe([1], 5), "a stage of a pipe is a function"),  # type: ignore[arg-type]
        (lambda: pipe([1], double, ordered=1), "ordered must be True or False"),  # type: ignore[arg-type]
        (lambda: pipe([1], double, on_error="stop"), "on_error must be one of 'raise', 'skip'"),  # type: ignore[arg-type]
        (lambda: pipe([1], double, progress=5), "progress is a function"),  # type: ignore[arg-type]
        (lambda: pipe([1], double, progress=asyncio.sleep), "progress is a function .* not awaited"),  # type: ignore[arg-type]
        (lambda: stage(double, concurrency=0), "concurrency is in items at once and must be an int >= 1"),
        (lambda: stage(double, buffer=0), "buffer is in items and must be an int >= 1"),
        (lambda: stage(5), "stage needs a function of one item, got 5"),  # type: ignore[arg-type]
        (lambda: stage(double, name=3), "name must be a str or None, got 3"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_pipe_is_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        make()


async def test_a_pipe_is_iterated_over_once() -> None:
    async with Runtime():
        results = pipe(range(3), double)
        assert isinstance(results, Pipe)
        assert await listed(results) == [0, 2, 4]
        assert await listed(results) == []
