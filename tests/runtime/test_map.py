"""`Runtime.map`: ordered, bounded, lazy; the first error ends it."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from hybridrt import Runtime, offload
from tests.loop.support import DEADLINE, Gate, cancel_inside, eventually, hold, sole_worker, turns


async def asynchronous(items: Any) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(0)
        yield item


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


class Double:
    async def __call__(self, number: int) -> int:
        return 2 * number


FUNCTIONS = {
    "def": lambda number: 2 * number,
    "async def": double,
    "offloaded": offload(lambda number: 2 * number),
    "partial": partial(int.__mul__, 2),
    "async partial": partial(double),
    "async object": Double(),
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("source", [list, iter, asynchronous, set], ids=["list", "iterator", "async", "set"])
async def test_the_results_are_in_the_order_of_the_items(fn: Any, source: Any) -> None:
    async with Runtime() as runtime:
        assert await runtime.map(fn, source(range(100)), limit=7) == list(range(0, 200, 2))


async def test_results_that_come_in_another_order_are_ordered() -> None:
    turn = [threading.Event() for _ in range(5)]
    turn[4].set()

    def last_first(number: int) -> int:
        turn[number].wait(DEADLINE)
        turn[number - 1].set()
        return number

    async with Runtime() as runtime:
        assert await runtime.map(last_first, range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "source", [[], (), iter(()), asynchronous(())], ids=["list", "tuple", "iterator", "async"]
)
async def test_of_nothing_comes_nothing(source: Any) -> None:
    async with Runtime() as runtime:
        assert (
            await runtime.map(double, source if not isinstance(source, AsyncIterator) else asynchronous(()))
            == []
        )


async def test_a_def_runs_in_threads_and_an_async_def_on_the_loop() -> None:
    async def here(_: int) -> int:
        return threading.get_ident()

    async with Runtime() as runtime:
        assert set(await runtime.map(here, range(3))) == {threading.get_ident()}
        assert threading.get_ident() not in await runtime.map(lambda _: threading.get_ident(), range(3))


async def test_no_more_than_the_limit_are_in_work_at_once() -> None:
    inside, most = 0, 0

    async def count(_: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await turns(3)
        inside -= 1

    async with Runtime() as runtime:
        await runtime.map(count, range(50), limit=4)
    assert (inside, most) == (0, 4)


async def test_no_more_calls_than_the_limit_are_submitted_at_once() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        mapping = asyncio.ensure_future(runtime.map(abs, range(50), limit=4))
        await turns()
        assert runtime.statistics().queued["queue"] == 4
        gate.release()
        assert await mapping == list(range(50))


async def test_items_are_taken_only_as_places_come_free() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    async with Runtime() as runtime, Gate() as gate:
        mapping = asyncio.ensure_future(runtime.map(gate, items(), limit=2))
        assert {await gate.entered(), await gate.entered()} == {0, 1}
        await turns()
        assert taken == [0, 1]
        gate.release()
        assert await mapping == list(range(20))


async def test_the_first_error_ends_an_endless_map() -> None:
    async def fail_at_ten(number: int) -> int:
        if number == 10:
            raise LookupError(number)
        return number

    async with Runtime() as runtime:
        with pytest.raises(LookupError, match="10"):
            await runtime.map(fail_at_ten, itertools.count(), limit=3)


async def test_the_first_error_ends_a_map_of_more_items_than_len_can_say() -> None:
    def fail(number: int) -> None:
        raise LookupError(number)

    async with Runtime() as runtime:
        with pytest.raises(LookupError):
            await runtime.map(fail, range(10**20), limit=1)


async def test_an_asynchronous_generator_is_closed_when_its_map_fails() -> None:
    source = asynchronous(range(100))

    async def fail(number: int) -> None:
        raise LookupError(number)

    async with Runtime() as runtime:
        with pytest.raises(LookupError):
            await runtime.map(fail, source, limit=1)
    assert await anext(source, None) is None


async def test_what_the_finally_of_a_source_raises_is_noted_in_the_error_of_the_item() -> None:
    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise OSError("the disk is full")

    async def fail(number: int) -> None:
        raise LookupError(number)

    async with Runtime() as runtime:
        with pytest.raises(LookupError) as raised:
            await runtime.map(fail, source(), limit=1)
    assert raised.value.__notes__ == [
        "Closing the source of the map raised OSError('the disk is full'), too."
    ]


async def test_an_asynchronous_generator_is_closed_when_its_map_is_cancelled() -> None:
    source, entered = asynchronous(range(100)), asyncio.Event()

    async def wait(number: int) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with Runtime() as runtime:
        mapping = asyncio.ensure_future(runtime.map(wait, source, limit=1))
        await entered.wait()
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping
    assert await anext(source, None) is None


async def test_the_first_error_cancels_and_awaits_the_others() -> None:
    seen: list[str] = []
    inside = asyncio.Event()

    async def work(number: int) -> None:
        if number == 0:
            await inside.wait()
            raise LookupError
        try:
            inside.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await turns()
            seen.append("cancelled")
            raise

    async with Runtime() as runtime:
        with pytest.raises(LookupError):
            await runtime.map(work, range(2))
    assert seen == ["cancelled"]


async def test_calls_still_queued_at_the_first_error_never_run() -> None:
    ran: list[int] = []

    def work(number: int) -> None:
        ran.append(number)
        raise LookupError(number)

    async with sole_worker() as runtime:
        with pytest.raises((LookupError, ExceptionGroup)):
            await runtime.map(work, range(1000), limit=10)
    assert len(ran) <= 10


async def test_the_error_of_an_item_has_no_group_around_it() -> None:
    error = LookupError("x")

    def fail(_: int) -> None:
        raise error

    async with Runtime() as runtime:
        with pytest.raises(LookupError) as caught:
            await runtime.map(fail, [1])
    assert caught.value is error
    assert caught.value.__cause__ is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@pytest.mark.parametrize("limit", [1, 2])
def test_the_error_of_an_item_is_the_only_one_where_tasks_begin_as_they_are_made(limit: int) -> None:
    async def fail(number: int) -> None:
        raise LookupError(number)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with Runtime() as runtime:
            with pytest.raises(LookupError, match="1"):
                await runtime.map(fail, [1, 2, 3], limit=limit)
            await turns()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_the_error_of_an_item_keeps_its_cause(kind: str) -> None:
    cause = KeyError("cause")

    def fail(_: int) -> None:
        raise LookupError from cause

    async def fail_on_the_loop(_: int) -> None:
        fail(1)

    async with Runtime() as runtime:
        with pytest.raises(LookupError) as caught:
            await runtime.map(fail if kind == "def" else fail_on_the_loop, [1])
    assert caught.value.__cause__ is cause
    assert caught.value.__context__ is None


async def test_the_error_of_an_item_keeps_what_it_was_raised_for() -> None:
    async def fail(number: int) -> None:
        try:
            raise KeyError
        except KeyError:
            raise LookupError  # noqa: B904  # what is tested

    async with Runtime() as runtime:
        with pytest.raises(LookupError) as caught:
            await runtime.map(fail, [1])
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


async def test_several_errors_come_as_a_group() -> None:
    meeting = asyncio.Barrier(2)

    async def fail(number: int) -> None:
        try:
            await meeting.wait()
        finally:
            raise LookupError(number)

    async with Runtime() as runtime:
        with pytest.raises(ExceptionGroup) as caught:
            await runtime.map(fail, range(2))
    assert sorted(error.args[0] for error in caught.value.exceptions) == [0, 1]


async def test_a_group_that_a_function_raises_comes_as_it_is() -> None:
    group = ExceptionGroup("of the function", [LookupError()])

    def fail(_: int) -> None:
        raise group

    async with Runtime() as runtime:
        with pytest.raises(ExceptionGroup) as caught:
            await runtime.map(fail, [1])
    assert caught.value is group


async def test_an_error_of_the_items_ends_the_map() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    async with Runtime() as runtime:
        with pytest.raises(LookupError, match="no more"):
            await runtime.map(abs, items())


async def test_a_function_that_is_cancelled_does_not_lose_its_item_silently() -> None:
    """As with `gather`: the result would be a list that is too short."""

    async def cancelled_at_three(number: int) -> int:
        if number == 3:
            raise asyncio.CancelledError
        return number

    async with Runtime() as runtime:
        with pytest.raises(asyncio.CancelledError):
            await runtime.map(cancelled_at_three, range(4), limit=1)
        with pytest.raises(asyncio.CancelledError):
            await runtime.map(cancelled_at_three, range(6), limit=2)


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_source_that_is_cancelled_does_not_pass_for_its_end(limit: int) -> None:
    async def cancelled_after_two() -> AsyncIterator[int]:
        yield 0
        yield 1
        raise asyncio.CancelledError

    async with Runtime() as runtime:
        with pytest.raises(asyncio.CancelledError):
            await runtime.map(double, cancelled_after_two(), limit=limit)


async def test_cancelling_the_map_cancels_what_is_in_work() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        mapping = asyncio.ensure_future(runtime.map(abs, range(50), limit=4))
        await turns()
        mapping.cancel()
        assert await asyncio.wait({mapping}) == ({mapping}, set())
        assert mapping.cancelled()
        assert runtime.statistics().cancelled == 4
        assert not holding.done()


async def test_an_asynchronous_iterator_is_never_asked_twice_at_a_time() -> None:
    asked = 0

    class Source:
        def __init__(self) -> None:
            self.left = 30

        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> int:
            nonlocal asked
            asked += 1
            assert asked == 1, "asked again before it had answered"
            await turns(2)
            asked -= 1
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    async with Runtime() as runtime:
        assert await runtime.map(double, Source(), limit=8) == [2 * n for n in range(29, -1, -1)]


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError), (1.5, TypeError)]
)
async def test_a_wrong_limit_is_told_at_once(limit: Any, error: type[Exception]) -> None:
    async with Runtime() as runtime:
        with pytest.raises(error, match=r"limit is in items at once and must be an int >= 1, got "):
            await runtime.map(abs, [1], limit=limit)


async def test_what_a_function_returns_to_be_awaited_is_awaited_on_the_loop() -> None:
    async def add(number: int, more: int) -> int:
        assert asyncio.get_running_loop() is loop
        return number + more

    loop = asyncio.get_running_loop()
    async with Runtime() as runtime:
        assert await runtime.map(lambda number: add(number, 10), [1, 2, 3]) == [11, 12, 13]


async def test_what_would_have_been_awaited_is_closed_where_the_map_is_cancelled(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async def fetch(number: int) -> int:
        return number

    async with Runtime() as runtime, Gate() as gate:
        mapping = runtime.map(lambda number: fetch(gate(number)), [1])
        await cancel_inside(asyncio.ensure_future(mapping), gate)
    assert [str(each.message) for each in recwarn] == []


async def test_nothing_is_no_function() -> None:
    async with Runtime() as runtime:
        with pytest.raises(TypeError, match="offload needs a synchronous function, got None"):
            await runtime.map(None, [1])  # type: ignore[call-overload]


async def test_a_generator_function_is_refused() -> None:
    def generator(_: int) -> Iterator[int]:
        yield 1

    async with Runtime() as runtime:
        with pytest.raises(TypeError, match="generator function"):
            await runtime.map(generator, [1])


async def test_a_map_uses_the_runtime_it_belongs_to() -> None:
    async with Runtime() as runtime:
        await runtime.map(offload(abs), range(10))
        await runtime.map(abs, range(10))
        assert runtime.statistics().completed == 20
        await eventually(lambda: runtime.statistics().running == ())


@pytest.mark.usefixtures("without_gc")
async def test_what_a_map_that_fails_was_given_dies_with_its_error() -> None:
    def fail(numbers: frozenset[int]) -> None:
        raise LookupError("none")

    async with Runtime() as runtime:
        numbers = frozenset([1, 2])
        watch = weakref.ref(numbers)
        with pytest.raises(LookupError):
            await runtime.map(fail, [numbers])
        del numbers
        await eventually(lambda: watch() is None)


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_what_a_map_was_given_dies_with_the_task_that_it_has_ended(end: str) -> None:
    async def work(numbers: frozenset[int]) -> None:
        if end == "failed":
            raise LookupError("none")
        await asyncio.Event().wait()

    async with Runtime() as runtime:
        numbers = frozenset([1, 2])
        watch = weakref.ref(numbers)
        task = asyncio.ensure_future(runtime.map(work, [numbers]))
        del numbers
        await turns()
        task.cancel()
        with suppress(LookupError, asyncio.CancelledError):
            await task
        del task
        await turns()
        assert watch() is None
