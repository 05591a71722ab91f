"""What goes into a call and what comes out of it: errors, context variables, references, threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from hybridrt import Runtime, offload

from .support import DEADLINE, sole_worker

VARIABLE = contextvars.ContextVar("variable", default="unset")


class Stop(BaseException):
    """An exception that `except Exception` does not see."""


@offload
def fail(error: BaseException) -> NoReturn:
    raise error


@offload
def thread_name() -> str:
    return threading.current_thread().name


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "error", [LookupError("x"), Stop("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr
)
async def test_an_error_arrives_as_it_was_raised(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        await fail(error)
    assert caught.value is error


async def test_the_traceback_shows_where_the_function_raised() -> None:
    with pytest.raises(LookupError) as caught:
        await fail(LookupError("x"))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "fail"
    assert frames[0] == test_the_traceback_shows_where_the_function_raised.__name__


async def test_stop_iteration_arrives_as_the_cause_of_a_runtime_error() -> None:
    error = StopIteration(7)
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        await fail(error)
    assert caught.value.__cause__ is error


async def test_stop_async_iteration_arrives_as_it_is() -> None:
    with pytest.raises(StopAsyncIteration):
        await fail(StopAsyncIteration())


async def test_a_cancelled_error_cancels_the_task_that_awaits() -> None:
    task = asyncio.ensure_future(fail(asyncio.CancelledError()))
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_cancelled_error_keeps_its_message() -> None:
    with pytest.raises(asyncio.CancelledError, match=r"^why$"):
        await fail(asyncio.CancelledError("why"))


async def test_a_call_after_an_error_works() -> None:
    async with sole_worker() as runtime:
        with pytest.raises(Stop):
            await runtime.offload(fail, Stop())
        assert await runtime.offload(len, "abc") == 3
        assert (runtime.statistics().failed, runtime.statistics().completed) == (1, 1)


async def test_errors_of_calls_that_run_in_batches_reach_their_own_callers() -> None:
    @offload
    def even(number: int) -> int:
        if number % 2:
            raise LookupError(number)
        return number

    answers = await asyncio.gather(*map(even, range(500)), return_exceptions=True)
    assert answers[::2] == list(range(0, 500, 2))
    assert [repr(error) for error in answers[1::2]] == [f"LookupError({n})" for n in range(1, 500, 2)]


# ---------------------------------------------------------------------- context variables


async def test_context_variables_travel_into_the_call() -> None:
    VARIABLE.set("of the task")
    assert await offload(VARIABLE.get)() == "of the task"


async def test_what_a_call_sets_does_not_come_back() -> None:
    VARIABLE.set("of the task")
    await offload(VARIABLE.set)("of the call")
    assert VARIABLE.get() == "of the task"


async def test_a_call_sees_the_variables_of_its_await_and_not_of_its_making() -> None:
    coro = offload(VARIABLE.get)()
    VARIABLE.set("of the await")
    assert await coro == "of the await"


async def test_calls_of_one_worker_do_not_see_each_others_variables() -> None:
    async with sole_worker() as runtime:
        await runtime.offload(VARIABLE.set, "of another call")
        assert await runtime.offload(VARIABLE.get) == "unset"


async def test_tasks_bring_their_own_variables() -> None:
    async def through(value: int) -> str:
        VARIABLE.set(str(value))
        return await offload(VARIABLE.get)()

    assert await asyncio.gather(*map(through, range(100))) == [str(n) for n in range(100)]


# ---------------------------------------------------------------------- references


class Thing:
    """Something that can be watched."""


@pytest.mark.usefixtures("without_gc")
async def test_arguments_and_result_die_with_the_await() -> None:
    async with sole_worker() as runtime:
        thing = Thing()
        watch = weakref.ref(thing)
        assert await runtime.offload(lambda x: x, thing) is thing
        del thing
        await runtime.offload(int)  # the worker is past the first call
        assert watch() is None


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("options", [{}, {"timeout": DEADLINE}], ids=["plain", "special"])
async def test_a_handled_error_dies_with_all_it_held(options: dict[str, float]) -> None:
    def fail_with(thing: Thing) -> NoReturn:
        raise LookupError

    async with sole_worker() as runtime:
        thing = Thing()
        watch = weakref.ref(thing)
        with contextlib.suppress(LookupError):
            await runtime.offload(offload(fail_with, **options), thing)  # type: ignore[call-overload]
        del thing
        await runtime.offload(int)
        assert watch() is None


@pytest.mark.usefixtures("without_gc")
async def test_a_call_cancelled_while_queued_lets_its_arguments_go_at_once() -> None:
    async with sole_worker() as runtime:
        gate = threading.Event()
        holding = asyncio.ensure_future(runtime.offload(gate.wait, DEADLINE))
        thing = Thing()
        watch = weakref.ref(thing)
        task = asyncio.ensure_future(runtime.offload(id, thing))
        del thing
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        del task
        assert watch() is None
        gate.set()
        await holding


# ---------------------------------------------------------------------- without a runtime


async def test_without_a_runtime_calls_run_on_a_private_executor() -> None:
    assert (await thread_name()).startswith("hybridrt-private")


async def test_without_a_runtime_the_loops_default_executor_is_left_alone() -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "mine") as mine:
        loop.set_default_executor(mine)
        await thread_name()
        assert await asyncio.to_thread(thread_name.sync) == "mine_0"


async def test_within_a_runtime_calls_run_on_its_executor() -> None:
    async with Runtime():
        assert (await thread_name()).startswith("hybridrt_")
    assert (await thread_name()).startswith("hybridrt-private")


def test_two_loops_in_two_threads_share_the_private_executor() -> None:
    """Each loop's call waits for the other's: both run at once, and both results find their loop."""
    meeting = threading.Barrier(2)

    @offload
    def meet(name: str) -> tuple[str, str]:
        meeting.wait(DEADLINE)
        return name, threading.current_thread().name.partition("_")[0]

    answers: dict[str, tuple[str, str]] = {}

    def loop(name: str) -> None:
        answers[name] = asyncio.run(meet(name))

    threads = [threading.Thread(target=loop, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {name: (name, "hybridrt-private") for name in ("a", "b")}


def test_one_loop_after_the_other_uses_the_private_executor() -> None:
    for _ in range(3):
        assert asyncio.run(thread_name()).startswith("hybridrt-private")


def test_a_runtime_serves_its_own_loop_alone() -> None:
    other = []

    async def main() -> str:
        async with Runtime():
            await asyncio.to_thread(lambda: other.append(asyncio.run(thread_name())))
            return await thread_name()

    assert asyncio.run(main()).startswith("hybridrt_")
    assert other[0].startswith("hybridrt-private")


def test_a_closed_loop_is_not_kept() -> None:
    """A loop, with all its callbacks hold, lives no longer than its last use."""
    loops = [weakref.ref(asyncio.run(_loop_after_a_call())) for _ in range(20)]
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


async def _loop_after_a_call() -> asyncio.AbstractEventLoop:
    await thread_name()
    return asyncio.get_running_loop()
