"""`anyio.to_thread.run_sync` under a runtime: anyio's promises, kept by other threads.

A test with `runtime` runs twice: on the runtime's threads, and, to show that it tells anyio's own
behaviour, on those of anyio.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from hybridrt import AnyioStatistics, Runtime, testing
from hybridrt.integrations import anyio as ours
from tests.loop.support import DEADLINE, Gate, eventually, hold, queued, sole_worker, turns

run_sync = anyio.to_thread.run_sync
variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(params=[True, False], ids=["ours", "anyio's"])
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """A runtime that has anyio's calls, and one that has not."""
    async with Runtime(govern_anyio=request.param) as runtime:
        yield runtime
        seen = runtime.statistics().anyio
        assert (seen is not None and seen.calls > 0) == request.param


def figures(runtime: Runtime) -> AnyioStatistics:
    """Return what the statistics say of anyio's calls."""
    found = runtime.statistics().anyio
    assert found is not None
    return found


def default_limiter() -> anyio.CapacityLimiter:
    return anyio.to_thread.current_default_thread_limiter()


def crowd(gate: Gate, size: int, **options: Any) -> list[asyncio.Task[Any]]:
    """Begin `size` calls of a gate."""
    return [asyncio.ensure_future(run_sync(gate, n, **options)) for n in range(size)]


async def inside(gate: Gate, size: int) -> None:
    """Wait until `size` calls are inside of a gate at once."""
    for _ in range(size):
        await asyncio.wait_for(gate.entered(), DEADLINE)


def thread_name() -> str:
    return threading.current_thread().name


# ---------------------------------------------------------------------- where calls run


async def test_a_call_runs_on_a_thread_of_the_runtime_and_is_booked_under_its_name() -> None:
    async with Runtime() as runtime:
        assert (await run_sync(thread_name)).startswith("hybridrt")
        booked = {row.name: row.calls for row in runtime.statistics().functions}
        assert booked == {f"{__name__}:thread_name": 1}
        assert figures(runtime) == AnyioStatistics(calls=1, in_flight=0, stopped=None)


@pytest.mark.slow
async def test_a_hundred_calls_that_wait_for_each_other_are_all_in_flight_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        tasks = crowd(gate, 100)
        await inside(gate, 100)
        assert (figures(runtime).in_flight, default_limiter().borrowed_tokens) == (100, 0)
        gate.release()
        assert await asyncio.gather(*tasks) == [*range(100)]
        assert (figures(runtime).calls, figures(runtime).in_flight) == (100, 0)


async def test_left_to_anyio_they_run_on_its_threads() -> None:
    async with Runtime(govern_anyio=False) as runtime:
        assert not (await run_sync(thread_name)).startswith("hybridrt")
        assert runtime.statistics().anyio is None


async def test_the_environment_leaves_them_to_anyio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDRT_GOVERN_ANYIO", "0")
    async with Runtime() as runtime:
        assert not (await run_sync(thread_name)).startswith("hybridrt")
        assert (runtime.govern_anyio, runtime.statistics().anyio) == (False, None)


async def test_a_runtime_that_runs_calls_in_place_leaves_them_to_anyio() -> None:
    async with testing.InlineRuntime() as runtime:
        assert not (await run_sync(thread_name)).startswith("hybridrt")
        assert runtime.statistics().anyio is None


async def test_after_the_runtime_closed_they_run_on_anyios_threads() -> None:
    runtime = Runtime()
    async with runtime:
        await run_sync(int)
    assert not (await run_sync(thread_name)).startswith("hybridrt")
    assert figures(runtime) == AnyioStatistics(calls=1, in_flight=0, stopped="the runtime closed")


async def test_once_the_executor_takes_no_more_they_run_on_anyios_threads() -> None:
    async with Runtime() as runtime:
        runtime.executor.shutdown(wait=False)
        assert not (await run_sync(thread_name)).startswith("hybridrt")


async def test_a_call_that_waits_for_a_token_while_the_executor_closes_runs_on_anyios_threads() -> None:
    limiter = anyio.CapacityLimiter(1)
    async with Runtime() as runtime:
        async with limiter:
            task = asyncio.create_task(run_sync(thread_name, limiter=limiter))
            await eventually(lambda: limiter.statistics().tasks_waiting == 1)
            runtime.executor.shutdown(wait=False)
        assert not (await task).startswith("hybridrt")


async def test_a_call_that_begins_as_the_runtime_closes_runs() -> None:
    """As the clean-up of a request that the server cancels before it closes the runtime."""
    async with Runtime():
        task = asyncio.create_task(run_sync(thread_name))
        await turns(1)
    assert (await task) != ""


async def test_each_loop_has_its_own() -> None:
    def of_another_loop() -> str:
        return asyncio.run(run_sync(thread_name))

    async with Runtime():
        assert not (await run_sync(of_another_loop)).startswith("hybridrt")
        assert (await run_sync(thread_name)).startswith("hybridrt")


async def test_what_is_left_at_close_is_told_so_at_the_deadline() -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.0):
            (task,) = crowd(gate, 1)
            await inside(gate, 1)
        with pytest.raises(RuntimeError, match="the runtime closed while"):
            await task


# ---------------------------------------------------------------------- limiters


async def test_a_limiter_that_is_given_bounds_the_calls(runtime: Runtime) -> None:
    own = anyio.CapacityLimiter(2)
    async with Gate() as gate:
        tasks = crowd(gate, 5, limiter=own)
        await inside(gate, 2)
        await eventually(lambda: own.statistics().tasks_waiting == 3)
        assert (own.borrowed_tokens, gate.is_empty()) == (2, True)
        gate.release()
        await asyncio.gather(*tasks)


async def test_the_default_limiter_bounds_them_where_the_program_has_lowered_it(runtime: Runtime) -> None:
    default_limiter().total_tokens = 1
    async with Gate() as gate:
        tasks = crowd(gate, 3)
        await inside(gate, 1)
        await eventually(lambda: default_limiter().statistics().tasks_waiting == 2)
        gate.release()
        await asyncio.gather(*tasks)


async def test_the_default_limiter_given_by_name_is_the_default() -> None:
    async with Runtime(), Gate() as gate:
        tasks = crowd(gate, 41, limiter=default_limiter())
        await inside(gate, 41)
        gate.release()
        await asyncio.gather(*tasks)


# ---------------------------------------------------------------------- what the function sees


async def test_context_variables_go_along_and_do_not_come_back(runtime: Runtime) -> None:
    def look() -> str:
        seen = variable.get()
        variable.set("of the thread")
        return seen

    variable.set("of the task")
    assert await run_sync(look) == "of the task"
    assert variable.get() == "of the task"


async def test_the_function_may_call_back_into_the_loop(runtime: Runtime) -> None:
    loop_thread = threading.get_ident()

    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        return 2 * number

    def work() -> tuple[int, bool]:
        doubled = anyio.from_thread.run(double, 4)
        return doubled, anyio.from_thread.run_sync(threading.get_ident) == loop_thread

    assert await run_sync(work) == (8, True)


async def test_what_it_raises_over_there_reaches_it(runtime: Runtime) -> None:
    async def fail() -> None:
        raise LookupError("over there")

    def work() -> str:
        with pytest.raises(LookupError, match="over there"):
            anyio.from_thread.run(fail)
        return "seen"

    assert await run_sync(work) == "seen"


async def test_it_may_run_a_loop_of_its_own(runtime: Runtime) -> None:
    async def inner() -> str:
        return await run_sync(lambda: "inner")

    assert await run_sync(anyio.run, inner) == "inner"


async def test_a_call_may_wait_for_one_that_it_makes_through_the_loop(runtime: Runtime) -> None:
    def outer() -> str:
        inner = anyio.from_thread.run(run_sync, lambda: "inner")
        anyio.from_thread.check_cancelled()
        return str(inner)

    assert await run_sync(outer) == "inner"


async def test_a_thread_that_has_served_anyio_does_not_pass_for_one_of_its_threads_afterwards() -> None:
    def look() -> None:
        with pytest.raises(RuntimeError, match="worker thread"):
            anyio.from_thread.check_cancelled()

    async with sole_worker() as runtime:
        await run_sync(anyio.from_thread.check_cancelled)
        await runtime.offload(look)


# ---------------------------------------------------------------------- what comes back


async def test_what_the_function_raises_reaches_the_caller(runtime: Runtime) -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await run_sync(fail)


async def test_stop_iteration_comes_as_the_cause_of_a_runtime_error(runtime: Runtime) -> None:
    with pytest.raises(RuntimeError, match="coroutine raised StopIteration") as caught:
        await run_sync(next, iter(()))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_the_function_gets_its_arguments_as_they_are(runtime: Runtime) -> None:
    def take(*args: object) -> tuple[object, ...]:
        return args

    assert await run_sync(take, 1, "two", None) == (1, "two", None)


async def test_each_call_lets_the_loop_turn_once_at_least(runtime: Runtime) -> None:
    turned = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    await run_sync(int)
    assert turned


# ---------------------------------------------------------------------- cancel scopes


async def test_a_running_call_keeps_its_scope_until_it_ends_and_its_value_is_not_lost(
    runtime: Runtime,
) -> None:
    kept: list[object] = []
    async with Gate() as gate:

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                kept.append(await run_sync(gate, "value"))
                await anyio.lowlevel.checkpoint()
                kept.append("not cancelled")

        scope = anyio.CancelScope()
        task = asyncio.ensure_future(ask(scope))
        await inside(gate, 1)
        scope.cancel()
        await turns()
        assert not task.done()
        gate.release()
        await task
        assert (kept, scope.cancelled_caught) == (["value"], True)
        assert task.cancelling() == 0


async def test_a_cancelled_scope_does_not_keep_the_loop_busy_until_the_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    cancel = ours.ScopedCall.cancel

    def note(call: ours.ScopedCall, msg: Any = None) -> bool:
        asked.append(call)
        return cancel(call, msg)

    monkeypatch.setattr(ours.ScopedCall, "cancel", note)
    async with Runtime(), Gate() as gate, anyio.create_task_group() as group:
        group.start_soon(run_sync, gate)
        await inside(gate, 1)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await turns(50)
            assert len(asked) == 1
            gate.release()


async def test_abandoned_by_its_scope_the_await_ends_at_once_and_the_thread_goes_on(
    runtime: Runtime,
) -> None:
    ended = threading.Event()

    async with Gate() as gate:

        def work() -> None:
            gate()
            ended.set()

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                await run_sync(work, abandon_on_cancel=True)

        scope = anyio.CancelScope()
        task = asyncio.ensure_future(ask(scope))
        await inside(gate, 1)
        scope.cancel()
        await task
        assert (scope.cancelled_caught, ended.is_set()) == (True, False)
        gate.release()
        await eventually(ended.is_set)


async def test_cancelled_by_asyncio_the_await_ends_at_once(runtime: Runtime) -> None:
    async with Gate() as gate:
        (task,) = crowd(gate, 1)
        await inside(gate, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.release()


async def test_a_cancel_of_asyncio_is_heard_after_that_of_a_scope(runtime: Runtime) -> None:
    async with Gate() as gate:

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                await run_sync(gate)

        scope = anyio.CancelScope()
        task = asyncio.ensure_future(ask(scope))
        await inside(gate, 1)
        scope.cancel()
        await turns()
        task.cancel("of asyncio")
        with pytest.raises(asyncio.CancelledError, match="of asyncio"):
            await task
        gate.release()


@pytest.mark.parametrize("abandon", [False, True])
async def test_a_call_whose_scope_is_cancelled_while_it_is_queued_never_runs(abandon: bool) -> None:
    ran: list[bool] = []
    async with sole_worker() as runtime, Gate() as gate:
        held = await hold(runtime, gate)
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await run_sync(ran.append, True, abandon_on_cancel=abandon)

            group.start_soon(ask)
            await eventually(lambda: queued(runtime) == 1)
            group.cancel_scope.cancel()
        assert queued(runtime) == 0
        gate.release()
        await held
        assert (ran, runtime.statistics().cancelled) == ([], 1)


async def test_a_shielded_call_that_is_queued_runs() -> None:
    ran: list[bool] = []
    async with sole_worker() as runtime, Gate() as gate:
        held = await hold(runtime, gate)
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                with anyio.CancelScope(shield=True):
                    await run_sync(ran.append, True)

            group.start_soon(ask)
            await eventually(lambda: queued(runtime) == 1)
            group.cancel_scope.cancel()
            gate.release()
        await held
        assert ran == [True]


async def test_a_call_under_a_scope_that_is_cancelled_already_never_starts(runtime: Runtime) -> None:
    ran: list[bool] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_sync(ran.append, True)
    assert (ran, scope.cancelled_caught) == ([], True)
    await run_sync(int)


@pytest.mark.parametrize("abandon", [False, True])
async def test_the_function_hears_that_its_scope_was_cancelled(runtime: Runtime, abandon: bool) -> None:
    heard = threading.Event()
    async with Gate() as gate:

        def work() -> None:
            anyio.from_thread.check_cancelled()
            gate()
            try:
                anyio.from_thread.check_cancelled()
            except asyncio.CancelledError:
                heard.set()
                raise

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                await run_sync(work, abandon_on_cancel=abandon)

        scope = anyio.CancelScope()
        task = asyncio.ensure_future(ask(scope))
        await inside(gate, 1)
        scope.cancel()
        gate.release()
        await task
        assert scope.cancelled_caught
        await eventually(heard.is_set)


async def test_it_does_not_hear_of_a_scope_that_it_is_shielded_from(runtime: Runtime) -> None:
    async with Gate() as gate, anyio.create_task_group() as group:

        def work() -> str:
            gate()
            anyio.from_thread.check_cancelled()
            return "went on"

        async def ask() -> None:
            with anyio.CancelScope(shield=True):
                assert await run_sync(work) == "went on"

        group.start_soon(ask)
        await inside(gate, 1)
        group.cancel_scope.cancel()
        gate.release()


async def test_what_it_runs_on_the_loop_is_cancelled_with_its_scope(runtime: Runtime) -> None:
    entered = asyncio.Event()

    async def rest() -> None:
        entered.set()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(run_sync, anyio.from_thread.run, rest)
            await entered.wait()
            scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.race
async def test_a_scope_that_is_cancelled_while_its_call_starts_loses_nothing() -> None:
    """Either the call never ran, or its value came back."""
    ran: list[int] = []
    came: list[int] = []

    def work(number: int) -> int:
        ran.append(number)
        return number

    async def ask(number: int) -> None:
        came.append(await run_sync(work, number))

    async with Runtime(max_workers=2) as runtime:
        for begun in range(4):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(ask, 10 * begun + number)
                await turns(begun + 1)
                group.cancel_scope.cancel()
        assert sorted(ran) == sorted(came)
        assert figures(runtime).in_flight == 0


async def test_nothing_of_a_call_is_kept() -> None:
    class Result:
        pass

    async with Runtime(), Gate() as gate:
        task = asyncio.ensure_future(run_sync(gate, Result()))
        result = weakref.ref(await gate.entered())
        gate.release()
        await task
        watched = weakref.ref(task)
        del task
        await eventually(lambda: gc.collect() >= 0 and (watched(), result()) == (None, None))
