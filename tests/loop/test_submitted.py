"""`run_in_executor` and `to_thread` on our executor: asyncio gets its future right away."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import threading
import weakref
from typing import Any, NoReturn

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime

from .support import DEADLINE, Gate, queued, sole_worker


def fail(error: BaseException) -> NoReturn:
    raise error


async def test_results_and_errors_arrive() -> None:
    loop = asyncio.get_running_loop()
    async with Runtime():
        assert await loop.run_in_executor(None, pow, 2, 8) == 256
        assert await asyncio.to_thread(sorted, [2, 1], reverse=True) == [2, 1]
        error = LookupError("x")
        with pytest.raises(LookupError) as caught:
            await loop.run_in_executor(None, fail, error)
        assert caught.value is error


async def test_a_run_in_executor_that_the_program_has_set_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, seen = asyncio.get_running_loop(), list[object]()
    own = loop.run_in_executor

    def traced(executor: Any, fn: Any, *args: Any) -> Any:
        seen.append(fn)
        return own(executor, fn, *args)

    monkeypatch.setattr(loop, "run_in_executor", traced)
    async with Runtime():
        assert await loop.run_in_executor(None, len, "abc") == 3
        assert await asyncio.to_thread(max, 1, 2) == 2
    assert len(seen) == 2


async def test_cancelling_a_queued_call_withdraws_it() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        holding = asyncio.ensure_future(asyncio.to_thread(gate))
        await gate.entered()
        future = asyncio.get_running_loop().run_in_executor(None, ran.append, 1)
        future.cancel()
        assert (queued(runtime), runtime.statistics().cancelled) == (0, 1)
        with pytest.raises(asyncio.CancelledError):
            await future
        gate.release()
        await holding
        assert await asyncio.to_thread(len, "abc") == 3
        assert ran == []


async def test_cancelling_a_running_call_ends_the_await_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(asyncio.to_thread(gate))
        await gate.entered()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(runtime.statistics().running) == 1
        gate.release()


async def test_a_call_that_is_dropped_by_a_shutdown_is_cancelled_as_in_the_stdlib() -> None:
    executor = AdaptiveThreadPoolExecutor(1)
    async with Gate() as gate:
        loop = asyncio.get_running_loop()
        holding = loop.run_in_executor(executor, gate, "value")
        await gate.entered()
        dropped = loop.run_in_executor(executor, int)
        executor.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(asyncio.CancelledError):
            await dropped
        gate.release()
        assert await holding == "value"
    executor.shutdown()


async def test_submit_on_the_loops_thread_gives_a_concurrent_future() -> None:
    with AdaptiveThreadPoolExecutor(1) as executor:
        future = executor.submit(len, "abc")
        assert isinstance(future, concurrent.futures.Future)
        assert await asyncio.wrap_future(future) == 3
        assert future.result(0) == 3


async def test_a_submitted_future_can_be_waited_for_in_a_thread() -> None:
    with AdaptiveThreadPoolExecutor(1) as executor:
        future = executor.submit(len, "abc")
        assert future.result(30) == 3


async def test_a_done_callback_of_a_submitted_future_runs() -> None:
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    with AdaptiveThreadPoolExecutor(1) as executor:
        executor.submit(len, "abc").add_done_callback(lambda _: loop.call_soon_threadsafe(called.set))
        await called.wait()


async def test_done_callbacks_run_on_the_worker_whether_asyncio_waits_beside_them_or_not() -> None:
    ran_on: list[int] = []

    def note(_: object) -> None:
        ran_on.append(threading.get_ident())

    with AdaptiveThreadPoolExecutor(1) as executor:
        worker = await asyncio.wrap_future(executor.submit(threading.get_ident))
        async with Gate() as gate:
            executor.submit(gate)
            await gate.entered()
            alone, before, after = (executor.submit(int) for _ in range(3))
            alone.add_done_callback(note)
            before.add_done_callback(note)
            awaited = [asyncio.wrap_future(before), asyncio.wrap_future(after)]
            after.add_done_callback(note)
            gate.release()
        assert await asyncio.gather(*awaited) == [0, 0]
    assert ran_on == [worker] * 3


async def test_another_loops_thread_may_submit_to_the_same_executor() -> None:
    async with Runtime() as runtime:

        async def elsewhere() -> int:
            return await asyncio.get_running_loop().run_in_executor(runtime.executor, len, "abc")

        assert await asyncio.to_thread(asyncio.run, elsewhere()) == 3


async def test_gather_and_wait_take_them() -> None:
    loop = asyncio.get_running_loop()
    async with Runtime():
        futures = [loop.run_in_executor(None, abs, -n) for n in range(100)]
        assert await asyncio.gather(*futures) == list(range(100))
        done, _ = await asyncio.wait([loop.run_in_executor(None, abs, -n) for n in range(5)])
        assert {future.result() for future in done} == set(range(5))


async def test_a_name_that_hangs_does_not_hold_the_lane_of_the_others() -> None:
    """Name resolution through `run_in_executor` of asyncio still has its lane."""
    async with sole_worker() as runtime, Gate() as gate:
        holding = asyncio.ensure_future(asyncio.to_thread(gate))
        await gate.entered()
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        assert found
        assert len(runtime.statistics().running) == 1
        gate.release()
        await holding


async def test_what_it_returned_lives_no_longer_than_its_future() -> None:
    class Thing:
        pass

    async with sole_worker():
        thing = await asyncio.to_thread(Thing)
        watch = weakref.ref(thing)
        await asyncio.to_thread(threading.get_ident)
        del thing
        gc.collect()
        assert watch() is None


# ---------------------------------------------------------------------- awaited by another loop


def test_a_future_may_be_awaited_on_another_loop_than_the_one_it_was_submitted_from() -> None:
    entered, opened = threading.Event(), threading.Event()

    def work() -> str:
        entered.set()
        assert opened.wait(DEADLINE)
        return "value"

    async def submit() -> concurrent.futures.Future[str]:
        return executor.submit(work)

    async def wait(future: concurrent.futures.Future[str]) -> str:
        awaited = asyncio.wrap_future(future)
        opened.set()
        return await asyncio.wait_for(awaited, DEADLINE)

    with AdaptiveThreadPoolExecutor() as executor:
        future = asyncio.run(submit())
        assert entered.wait(DEADLINE)
        assert asyncio.run(wait(future)) == "value"


def test_a_future_reaches_another_loop_while_the_one_it_was_submitted_from_stands_still() -> None:
    opened = threading.Event()

    async def wait(future: concurrent.futures.Future[bool]) -> bool:
        awaited = asyncio.wrap_future(future)
        opened.set()
        return await awaited

    async def main() -> bool:
        future = executor.submit(opened.wait, DEADLINE)
        return concurrent.futures.ThreadPoolExecutor(1).submit(asyncio.run, wait(future)).result(DEADLINE)

    with AdaptiveThreadPoolExecutor() as executor:
        assert asyncio.run(main())


def test_a_cancel_reaches_another_loop_after_the_one_it_was_submitted_from_has_closed() -> None:
    opened = threading.Event()

    async def submit() -> concurrent.futures.Future[bool]:
        executor.submit(opened.wait, DEADLINE)
        return executor.submit(opened.wait, DEADLINE)

    async def wait(future: concurrent.futures.Future[bool]) -> None:
        awaited = asyncio.wrap_future(future)
        assert future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaited

    with AdaptiveThreadPoolExecutor(1) as executor:
        future = asyncio.run(submit())
        asyncio.run(asyncio.wait_for(wait(future), DEADLINE))
        opened.set()


class Weighty:
    """Something that a call takes or returns."""


@pytest.mark.parametrize("ends", ["returns", "is cancelled"])
async def test_a_future_that_is_kept_keeps_neither_arguments_nor_context(ends: str) -> None:
    variable: contextvars.ContextVar[Weighty] = contextvars.ContextVar("variable")
    given, seen = Weighty(), Weighty()
    alive = [weakref.ref(given), weakref.ref(seen)]
    async with sole_worker(), Gate() as gate:
        held = asyncio.ensure_future(asyncio.to_thread(gate))
        await gate.entered()
        variable.set(seen)
        future = asyncio.get_running_loop().run_in_executor(None, id, given)
        variable.set(Weighty())
        del given, seen
        if ends == "is cancelled":
            future.cancel()
        gate.release()
        await asyncio.wait({future})
        await held
        gc.collect()
        assert [ref() for ref in alive] == [None, None]
        assert future.done()
