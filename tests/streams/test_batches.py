"""Batched functions: what goes together, what each caller gets, and who is dropped."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import UserDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridrt
from hybridrt import Batched, BatchStatistics, OffloadTimeoutError, Runtime, offload
from hybridrt.batches.figures import BatchFigures, gain
from hybridrt.batches.gatherer import Gatherer, Item
from hybridrt.loop.completions import completions_of
from hybridrt.testing import InlineRuntime

from ..isolates import far
from ..loop.support import DEADLINE, Gate, Timers, eventually, hold, queued, sole_worker, turns
from .support import POINTS, Thing, nothing_runs

CALLER = ContextVar("CALLER", default=0)


class Doubler:
    """Doubles numbers, and notes in which batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def double(self, numbers: list[int]) -> list[int]:
        self.batches.append(list(numbers))
        return [2 * number for number in numbers]


class Held(Doubler):
    """Waits at a gate in each batch."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def double(self, numbers: list[int]) -> list[int]:
        self.gate(numbers)
        return super().double(numbers)


def figures_of(runtime: Runtime) -> BatchStatistics:
    """Return the statistics of the only batched function."""
    (found,) = [row.batches for row in runtime.statistics().functions if row.batches is not None]
    return found


# ---------------------------------------------------------------------- what goes together


async def test_calls_made_together_go_together_and_each_gets_its_own() -> None:
    doubler = Doubler()
    double = offload(doubler.double, batch=8)
    async with Runtime():
        assert await asyncio.gather(*map(double, range(20))) == [2 * number for number in range(20)]
    assert doubler.batches == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


async def test_a_lone_caller_waits_for_no_others() -> None:
    doubler = Doubler()
    double = offload(doubler.double, batch=64)
    async with Runtime():
        assert [await double(number) for number in range(3)] == [0, 2, 4]
    assert doubler.batches == [[0], [1], [2]]


async def test_what_gathers_while_a_batch_runs_goes_next() -> None:
    async with Runtime(), Gate() as gate:
        held = Held(gate)
        double = offload(held.double, batch=64)
        first = asyncio.ensure_future(double(0))
        await gate.entered()
        rest = [asyncio.ensure_future(double(number)) for number in range(1, 6)]
        await turns()
        assert gate.is_empty()
        gate.release()
        assert await asyncio.gather(first, *rest) == [0, 2, 4, 6, 8, 10]
    assert held.batches == [[0], [1, 2, 3, 4, 5]]


class Looked(dict[Item, None]):
    """Counts the keys that were looked at."""

    count = 0

    def __iter__(self) -> Iterator[Item]:
        for item in super().__iter__():
            self.count += 1
            yield item


async def test_a_batch_looks_at_its_own_calls_and_not_at_all_that_wait() -> None:
    async def same(numbers: list[int]) -> list[int]:
        return numbers

    loop = asyncio.get_running_loop()
    gatherer = Gatherer(
        loop, "same", same, size=4, wait=None, most=1, figures=BatchFigures(), on_idle=lambda: None
    )
    gatherer._waiting = waiting = Looked()
    items = [gatherer.add(number) for number in range(400)]
    assert await asyncio.gather(*items) == [*range(400)]
    assert waiting.count <= 400


async def test_a_batch_has_the_context_of_its_first_call_also_after_another_batch() -> None:
    async with Runtime(), Gate() as gate:
        seen = []

        def see(numbers: list[int]) -> list[int]:
            gate(numbers)
            seen.append(CALLER.get())
            return numbers

        number = offload(see, batch=2)

        async def call(caller: int) -> int:
            CALLER.set(caller)
            return await number(caller)

        first = asyncio.ensure_future(call(1))
        await gate.entered()
        rest = [asyncio.ensure_future(call(caller)) for caller in (2, 3, 4)]
        await turns()
        gate.release()
        assert await asyncio.gather(first, *rest) == [1, 2, 3, 4]
    assert seen == [1, 2, 4]


async def test_limit_is_the_number_of_batches_at_once() -> None:
    async with Runtime(), Gate() as gate:
        double = offload(Held(gate).double, batch=1, limit=2)
        calls = [asyncio.ensure_future(double(number)) for number in range(3)]
        assert sorted([*await gate.entered(), *await gate.entered()]) == [0, 1]
        await turns()
        assert gate.is_empty()
        gate.release()
        assert await asyncio.gather(*calls) == [0, 2, 4]


async def test_with_batch_wait_a_batch_waits_for_more_until_it_is_full() -> None:
    doubler = Doubler()
    double = offload(doubler.double, batch=3, batch_wait=3600.0)
    async with Runtime():
        calls = [asyncio.ensure_future(double(number)) for number in range(2)]
        await turns()
        assert doubler.batches == []
        assert await double(2) == 4
        assert await asyncio.gather(*calls) == [0, 2]
    assert doubler.batches == [[0, 1, 2]]


async def test_when_batch_wait_is_over_what_is_there_goes() -> None:
    doubler = Doubler()
    async with Runtime():
        assert await offload(doubler.double, batch=3, batch_wait=0.001)(1) == 2
    assert doubler.batches == [[1]]


async def test_objects_have_batches_of_their_own() -> None:
    class Scaled:
        def __init__(self, factor: int) -> None:
            self.factor = factor
            self.sizes: list[int] = []

        @offload(batch=10)
        def scale(self, numbers: list[int]) -> list[int]:
            self.sizes.append(len(numbers))
            return [self.factor * number for number in numbers]

    two, three = Scaled(2), Scaled(3)
    async with Runtime():
        found = await asyncio.gather(two.scale(1), three.scale(1), two.scale(2), three.scale(2))
    assert (found, two.sizes, three.sizes) == ([2, 3, 4, 6], [2], [2])


async def test_it_works_without_a_runtime_in_place_and_through_a_runtime() -> None:
    double = offload(Doubler().double, batch=4)
    assert await double(1) == 2
    async with InlineRuntime() as runtime:
        assert await asyncio.gather(double(1), runtime.offload(double, 2)) == [2, 4]
    async with Runtime() as runtime:
        assert await runtime.map(double, range(10), limit=4) == [2 * number for number in range(10)]


@pytest.mark.slow
async def test_a_pure_batch_may_run_in_an_isolate() -> None:
    async with Runtime():
        echo: Batched[int, int] = offload(far.echo, pure=True, where="isolate", batch=4)
        assert await asyncio.gather(*map(echo, range(6))) == list(range(6))


def test_two_loops_gather_apart() -> None:
    doubler = Doubler()
    double = offload(doubler.double, batch=8)

    async def both() -> list[int]:
        return await asyncio.gather(double(1), double(2))

    assert asyncio.run(both()) == asyncio.run(both()) == [2, 4]
    assert doubler.batches == [[1, 2], [1, 2]]
    assert [len(here) for here in double._gatherers.values()] == [0]


def test_loops_that_do_not_run_are_not_all_kept() -> None:
    double = offload(Doubler().double, batch=8)
    loops = [asyncio.new_event_loop() for _ in range(30)]
    for loop in loops:
        assert loop.run_until_complete(double(1)) == 2
    assert len(double._gatherers) < 20
    for loop in loops:
        loop.close()


def test_sync_is_a_batch_of_one() -> None:
    assert offload(Doubler().double, batch=8).sync(4) == 8


# ---------------------------------------------------------------------- what fails


def shorter(numbers: list[int]) -> list[int]:
    return numbers[1:]


def fails(numbers: list[int]) -> list[int]:
    raise LookupError("not these")


def a_set(numbers: list[int]) -> Any:
    return set(numbers)


def a_mapping(numbers: list[int]) -> Any:
    return UserDict.fromkeys(numbers)


class Table:
    """Has rows, gives its columns, as a data frame does."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        return iter(("name", "age"))

    def __getitem__(self, column: str) -> list[int]:
        raise KeyError(column)


def a_table(numbers: list[int]) -> Any:
    return Table()


class Frame(Table):
    """Has as many columns as rows."""

    columns = ("name", "age", "town")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def a_frame(numbers: list[int]) -> Any:
    return Frame()


@pytest.mark.parametrize(
    ("fn", "kind", "told"),
    [
        (shorter, ValueError, r"shorter got a list of 3 items and must return as many results, .* got 2"),
        (a_set, TypeError, r"a_set got a list of 3 items .* got set"),
        (a_mapping, TypeError, r"a_mapping got a list of 3 items .* got UserDict"),
        (a_table, ValueError, r"a_table got a list of 3 items .* got 2"),
        (a_frame, TypeError, r"a_frame got a list of 3 items .* got Frame"),
        (fails, LookupError, "not these"),
    ],
)
async def test_an_error_fails_its_batch_and_no_other(fn: Any, kind: type[Exception], told: str) -> None:
    async with Runtime() as runtime:
        batched: Batched[int, int] = offload(fn, batch=3)
        errors: Sequence[Any] = await asyncio.gather(*map(batched, range(3)), return_exceptions=True)
        for error in errors:
            assert isinstance(error, kind)
            with pytest.raises(kind, match=told):
                raise error
        assert "raised by a batch of 3 calls" in errors[0].__notes__[0]
        assert figures_of(runtime).failed == 1


async def test_an_error_that_takes_no_note_fails_its_batch_too() -> None:
    @dataclass(frozen=True)
    class FrozenError(Exception):
        text: str

    def fails(numbers: list[int]) -> list[int]:
        raise FrozenError("not these")

    async with Runtime(), asyncio.timeout(DEADLINE):
        batched = offload(fails, batch=3)
        errors = await asyncio.gather(batched(1), batched(2), return_exceptions=True)
        assert [type(error) for error in errors] == [FrozenError, FrozenError]


async def test_an_array_is_as_good_as_a_list() -> None:
    async with Runtime():
        batched = offload(lambda numbers: bytes(numbers), batch=3)
        assert await asyncio.gather(batched(1), batched(2)) == [1, 2]


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("fn", [list, fails, shorter])
async def test_what_a_batch_was_called_with_dies_with_it(fn: Any) -> None:
    async with sole_worker() as runtime:
        batched: Batched[Any, Any] = offload(fn, batch=3)
        thing = Thing()
        watch = weakref.ref(thing)
        with suppress(LookupError, ValueError):
            await batched(thing)
        del thing
        await runtime.offload(int)  # the worker is past the batch
        assert watch() is None


# ---------------------------------------------------------------------- who is dropped


async def test_a_call_that_is_cancelled_while_it_gathers_is_left_out() -> None:
    async with Runtime() as runtime, Gate() as gate:
        held = Held(gate)
        double = offload(held.double, batch=8)
        first = asyncio.ensure_future(double(0))
        await gate.entered()
        rest = [asyncio.ensure_future(double(number)) for number in (1, 2, 3)]
        await turns()
        rest[1].cancel()
        await turns()
        assert rest[1].cancelled()
        gate.release()
        assert await asyncio.gather(first, rest[0], rest[2]) == [0, 2, 6]
        assert figures_of(runtime).dropped == 1
    assert held.batches == [[0], [1, 3]]


async def test_a_call_that_is_cancelled_in_its_batch_does_not_end_it_for_the_others() -> None:
    async with Runtime(), Gate() as gate:
        double = offload(Held(gate).double, batch=8)
        calls = [asyncio.ensure_future(double(number)) for number in range(2)]
        await gate.entered()
        calls[0].cancel()
        await turns()
        assert calls[0].cancelled()
        gate.release()
        assert await calls[1] == 2


async def test_a_batch_that_all_have_left_is_withdrawn_from_the_queue() -> None:
    doubler = Doubler()
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        calls = [asyncio.ensure_future(offload(doubler.double, batch=8)(number)) for number in range(2)]
        await turns()
        for call in calls:
            call.cancel()
        await turns()
        assert queued(runtime) == 0
        gate.release()
        await running
    assert doubler.batches == []


async def test_a_timeout_is_for_each_call(timers: Timers) -> None:
    async with Runtime(), Gate() as gate:
        double = offload(Held(gate).double, batch=1, timeout=5.0)
        calls = [asyncio.ensure_future(double(number)) for number in range(2)]
        await gate.entered()
        timers.fire()
        errors: Sequence[Any] = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [OffloadTimeoutError] * 2
        assert [error.started for error in errors] == [True, False]
        gate.release()


async def test_a_call_whose_batch_has_ended_is_not_late_because_the_loop_was_busy(timers: Timers) -> None:
    async with Runtime(), Gate() as gate:
        double = offload(Held(gate).double, batch=8, timeout=5.0)
        task = asyncio.ensure_future(double(4))
        await gate.entered()
        gate.release()
        ended = completions_of(asyncio.get_running_loop())._done
        while not ended:  # the loop stands still
            time.sleep(0.001)  # noqa: ASYNC251
        timers.fire()
        assert await task == 8


async def test_a_deadline_ends_its_own_call_and_not_the_batch() -> None:
    async with Runtime(), Gate() as gate:
        double = offload(Held(gate).double, batch=8)

        async def hurried() -> int:
            async with hybridrt.deadline(3600.0) as scope:
                asyncio.get_running_loop().call_later(0.001, scope._expire)
                return await double(1)

        calls = [asyncio.ensure_future(hurried()), asyncio.ensure_future(double(2))]
        await gate.entered()
        with pytest.raises(TimeoutError, match="deadline"):
            await calls[0]
        gate.release()
        assert await calls[1] == 4


@pytest.mark.slow
async def test_cancelling_at_random_points_leaves_nothing() -> None:
    double = offload(Doubler().double, batch=3)

    async def some() -> None:
        while True:
            await asyncio.gather(*map(double, range(5)))

    async with Runtime() as runtime:
        before = asyncio.all_tasks()
        for seed in range(POINTS):
            task = asyncio.ensure_future(some())
            for _ in range(seed % 17):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await eventually(lambda: asyncio.all_tasks() == before and nothing_runs(runtime))
    assert not any(double._gatherers.values())


@pytest.mark.race
async def test_no_result_is_mixed_up() -> None:
    double = offload(Doubler().double, batch=3, limit=2)
    async with Runtime():
        assert await asyncio.gather(*map(double, range(12))) == [2 * number for number in range(12)]


# ---------------------------------------------------------------------- what is told


async def test_the_statistics_have_the_sizes_and_the_gain() -> None:
    double = offload(Doubler().double, batch=8)
    async with Runtime() as runtime:
        await asyncio.gather(*map(double, range(20)))
        found = figures_of(runtime)
    assert (found.batches, found.items, found.size_max) == (3, 20, 8)
    assert found.size_mean == pytest.approx(20 / 3)
    assert found.gain is not None
    assert found.gain >= 1.0
    assert found.wait_mean is not None


async def test_the_gain_is_told_where_the_time_of_the_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of uvloop does for a millisecond."""
    loop = asyncio.get_running_loop()
    double = offload(Doubler().double, batch=8)
    async with Runtime() as runtime:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", partial(float, loop.time()))
            await asyncio.gather(*map(double, range(20)))
        assert figures_of(runtime).gain is not None


@given(st.floats(0, 10), st.floats(0.001, 10), st.lists(st.integers(1, 100), min_size=2, max_size=20))
def test_the_gain_is_that_of_the_line_through_the_times(fixed: float, each: float, sizes: list[int]) -> None:
    times = [fixed + each * size for size in sizes]
    weighted = sum(time * size for time, size in zip(times, sizes, strict=True))
    squares = sum(size * size for size in sizes)
    found = gain(len(sizes), sum(sizes), squares, sum(times), weighted)
    if len(set(sizes)) == 1:
        assert found is None
    else:
        assert found == pytest.approx((fixed + each) * sum(sizes) / sum(times), rel=1e-3)
        assert found >= 1.0 - 1e-3


# ---------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": 0}, "batch must be an int >= 1 or None"),
        ({"batch": 4, "batch_wait": -1.0}, "batch_wait is in seconds and must be a number >= 0 or None"),
        ({"batch_wait": 1.0}, "batch_wait goes with batch"),
        ({"batch": 4, "where": "inline"}, "batch has no meaning"),
    ],
)
def test_options_that_make_no_batch_are_refused(options: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        offload(len, **options)


def test_whether_it_is_batched_is_settled_at_decoration() -> None:
    with pytest.raises(ValueError, match="settled where it is decorated"):
        offload(len).options(batch=3)
    double = offload(Doubler().double, batch=8)
    with pytest.raises(ValueError, match="settled where it is decorated"):
        double.options(batch=None)
    assert isinstance(double.options(batch=2, limit=3), Batched)


def test_a_generator_function_has_no_batches() -> None:
    def generates(numbers: list[int]) -> Any:
        yield from numbers

    with pytest.raises(ValueError, match="batch is for a function that returns a list"):
        offload(generates, batch=3)


async def test_more_than_one_item_is_refused() -> None:
    async with Runtime() as runtime:
        double: Any = offload(Doubler().double, batch=3)
        with pytest.raises(TypeError):
            await double(1, 2)
        with pytest.raises(TypeError, match="batched and takes one item, got 2 arguments"):
            await runtime.offload(double, 1, 2)


async def test_a_batch_whose_task_is_cancelled_before_it_begins_leaves_the_function_usable() -> None:
    loop, here, doubler = asyncio.get_running_loop(), asyncio.current_task(), Doubler()

    def cancel_all_others() -> None:
        for task in asyncio.all_tasks() - {here}:
            task.cancel()

    async with Runtime():
        double = offload(doubler.double, batch=4)
        task = asyncio.ensure_future(double(1))
        await turns(1)  # the next turn starts the batch, and its task has not begun then
        loop.call_soon(cancel_all_others)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await double(2) == 4
    assert doubler.batches == [[2]]


async def test_a_task_factory_that_knows_no_context_serves() -> None:
    async def ask() -> tuple[int, int]:
        CALLER.set(5)
        return await offload(lambda numbers: [(2 * n, CALLER.get()) for n in numbers], batch=8)(1)

    loop = asyncio.get_running_loop()
    if type(loop).__module__.startswith("uvloop"):
        pytest.skip("uvloop gives a context to each task factory")
    loop.set_task_factory(lambda loop, coro: asyncio.Task(coro, loop=loop))
    assert await ask() == (2, 5)
    loop.set_task_factory(None)


async def test_a_task_factory_that_fails_fails_the_calls_of_its_batch() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LookupError("no task")

    double = offload(Doubler().double, batch=8)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(refuse)
    with pytest.raises(LookupError, match="no task"):
        await double(1)
    loop.set_task_factory(None)
    assert await asyncio.gather(double(1), double(2)) == [2, 4]
