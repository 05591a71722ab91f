"""Closing by a deadline: what ends ends, what does not is named and left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

import hybridrt
from hybridrt import Runtime, RuntimeClosedError, check_cancelled, offload
from tests.loop.support import DEADLINE, Gate, eventually, hold, sole_worker, turns


def closed_records(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_the_close_waits_for_queued_and_running_calls(caplog: pytest.LogCaptureFixture) -> None:
    async with sole_worker() as runtime, Gate() as gate:
        tasks = [asyncio.ensure_future(runtime.offload(gate, n)) for n in range(3)]
        tasks.append(asyncio.ensure_future(asyncio.to_thread(gate, 3)))
        await gate.entered()
        closing = asyncio.ensure_future(runtime.aclose())
        await turns()
        assert not closing.done()
        gate.release()
        await closing
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3]
    assert closed_records(caplog) == []


async def test_a_second_close_waits_for_the_first_to_be_done() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        task = await hold(runtime, gate)
        closes = [asyncio.ensure_future(runtime.aclose()) for _ in range(3)]
        await turns()
        assert not any(close.done() for close in closes)
        gate.release()
        await asyncio.gather(*closes[1:])
        assert (task.done(), runtime.statistics().workers) == (True, 0)
        await closes[0]
        await runtime.aclose()


async def test_a_second_close_that_is_cancelled_does_not_disturb_the_first() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        task = await hold(runtime, gate, "value")
        first, second = (asyncio.ensure_future(runtime.aclose()) for _ in range(2))
        await turns()
        second.cancel()
        await asyncio.wait({second})
        await turns()
        assert (second.cancelled(), first.done(), task.done()) == (True, False, False)
        gate.release()
        await first
        assert await task == "value"


async def test_a_second_close_is_done_when_the_first_is_cancelled() -> None:
    async with Gate() as gate:
        async with sole_worker() as runtime:
            task = await hold(runtime, gate)
            first, second = (asyncio.ensure_future(runtime.aclose()) for _ in range(2))
            await turns()
            first.cancel()
            await second
            assert isinstance(await asyncio.gather(task, return_exceptions=True), list)
            assert first.cancelled()
        gate.release()


async def test_a_background_task_that_closes_its_runtime_again_does_not_wait_for_itself() -> None:
    again = asyncio.Event()

    async def close_again(runtime: Runtime) -> str:
        await again.wait()
        await runtime.aclose()
        return "closed"

    async with Runtime() as runtime:
        task = runtime.background(close_again(runtime))
        first = asyncio.ensure_future(runtime.aclose())
        await turns()
        again.set()
        await first
        assert await task == "closed"


async def test_a_closing_runtime_takes_no_more_calls() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        closing = asyncio.ensure_future(runtime.aclose())
        await turns()
        with pytest.raises(RuntimeClosedError):
            await runtime.offload(int)
        with pytest.raises(RuntimeClosedError):
            await offload(int)()
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(int)
        gate.release()
        await closing


async def test_a_call_that_is_stuck_at_the_deadline_fails_and_is_left_behind() -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01) as runtime:
            task = await hold(runtime, gate)
        with pytest.raises(RuntimeClosedError, match=r"the runtime closed while .*Gate.* ran"):
            await task
        statistics = runtime.statistics()
        assert (statistics.abandoned, statistics.abandoned_running) == (1, 1)
        gate.release()
        await eventually(lambda: runtime.statistics().workers == 0)


@pytest.mark.blocks_the_loop
async def test_the_log_names_the_function_and_line_that_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    def stuck(gate: Gate) -> None:
        gate()

    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01) as runtime:
            task = asyncio.ensure_future(runtime.offload(stuck, gate))
            await gate.entered()
        await asyncio.wait({task})
        assert isinstance(task.exception(), RuntimeClosedError)
    (text,) = closed_records(caplog)
    assert f"{__name__}:{stuck.__qualname__} still runs" in text
    assert "threading.py:" in text  # where it stands: in Event.wait
    assert " in wait" in text
    assert "leaves its thread hybridrt_0 behind" in text


@pytest.mark.blocks_the_loop
async def test_calls_of_a_function_that_are_stuck_at_one_line_are_named_in_one_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hundred records about one wait would hide the others."""

    def stuck(gate: Gate) -> None:
        gate()

    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01, max_workers=4) as runtime:
            tasks = [asyncio.ensure_future(runtime.offload(stuck, gate)) for _ in range(2)]
            for _ in tasks:
                await gate.entered()
            workers = runtime.executor._pool.roster.workers
            await eventually(lambda: all(worker.position().endswith(" in wait") for worker in workers))
        await asyncio.wait(tasks)
        assert all(isinstance(task.exception(), RuntimeClosedError) for task in tasks)
    (text,) = closed_records(caplog)
    assert text.startswith(f"2 calls of {__name__}:{stuck.__qualname__} still run, the oldest after ")
    assert " in wait; the runtime closes and leaves them behind" in text


async def test_a_stuck_call_of_the_default_executor_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01):
            task = asyncio.ensure_future(asyncio.to_thread(gate, "value"))
            await gate.entered()
        (text,) = closed_records(caplog)
        assert "Gate" in text.partition(" still runs")[0]
        gate.release()
        await asyncio.wait({task})


async def test_calls_still_queued_at_the_deadline_fail_and_never_run() -> None:
    ran: list[int] = []
    async with Gate() as gate:
        async with sole_worker(shutdown_timeout=0.01, queue_max=2) as runtime:
            await hold(runtime, gate)
            tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(4)]
            await turns()
        for task in tasks:
            with pytest.raises(RuntimeClosedError, match="closed"):
                await task
        assert runtime.statistics().cancelled == 4
        gate.release()
        await eventually(lambda: runtime.statistics().workers == 0)
        assert ran == []


@pytest.mark.parametrize("options", [{"lane": "closing"}, {"limit": 1}], ids=["lane", "limit"])
async def test_calls_at_a_gate_at_the_deadline_fail(options: dict[str, object]) -> None:
    async with Gate() as gate:
        one = offload(gate, **options)  # type: ignore[call-overload]
        async with Runtime(shutdown_timeout=0.01) as runtime:
            tasks = [asyncio.ensure_future(runtime.offload(one, n)) for n in range(3)]
            await gate.entered()
            await turns()
        await asyncio.wait(tasks)
        assert {type(task.exception()) for task in tasks} == {RuntimeClosedError}
        assert gate.is_empty()
        gate.release()
        await eventually(lambda: runtime.statistics().workers == 0)
    assert await offload(len, lane="closing")("abc") == 3  # the lane is open again


async def test_check_cancelled_raises_in_a_call_that_was_left_behind() -> None:
    raised = threading.Event()

    def work(gate: Gate) -> None:
        gate()
        try:
            check_cancelled()
        except asyncio.CancelledError:
            raised.set()

    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01) as runtime:
            task = asyncio.ensure_future(runtime.offload(work, gate))
            await gate.entered()
        await asyncio.wait({task})
        assert isinstance(task.exception(), RuntimeClosedError)
        gate.release()
        await eventually(raised.is_set)


async def test_a_cancelled_task_hears_of_its_cancelling_and_not_of_the_close() -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01) as runtime:
            task = await hold(runtime, gate)
            task.cancel("why")
            await turns()
            assert not task.done()
        with pytest.raises(asyncio.CancelledError, match="why"):
            await task


async def test_an_abandoned_call_is_left_behind_as_well(caplog: pytest.LogCaptureFixture) -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.01) as runtime:
            task = asyncio.ensure_future(runtime.offload(offload(gate, abandon_on_cancel=True)))
            await gate.entered()
            task.cancel()
        assert task.cancelled()
        assert len(closed_records(caplog)) == 1


async def test_cancelling_the_close_leaves_the_rest_behind_at_once() -> None:
    async with Gate() as gate:
        runtime = Runtime()
        async with runtime:
            task = await hold(runtime, gate)
            closing = asyncio.ensure_future(runtime.aclose())
            await turns()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            with pytest.raises(RuntimeClosedError):
                await task


async def test_a_shutdown_timeout_of_zero_gives_no_time_at_all() -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0) as runtime:
            task = await hold(runtime, gate)
        with pytest.raises(RuntimeClosedError):
            await task


async def test_background_tasks_and_calls_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls do not get the time again that the background tasks have used up."""
    waits: list[float] = []
    wait = asyncio.wait

    async def note(things: object, *, timeout: float | None = None) -> object:
        waits.append(-1.0 if timeout is None else timeout)
        return await wait(things, timeout=timeout)  # type: ignore[type-var]

    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.05) as runtime:
            runtime.background(asyncio.sleep(DEADLINE))
            task = await hold(runtime, gate)
            monkeypatch.setattr(asyncio, "wait", note)
        monkeypatch.undo()
        with pytest.raises(RuntimeClosedError):
            await task
    assert waits[0] > 0.0
    assert waits[-1] < 0.04


async def test_after_a_close_with_stuck_calls_the_loop_works_on() -> None:
    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0) as runtime:
            task = await hold(runtime, gate)
        await asyncio.wait({task})
        assert isinstance(task.exception(), RuntimeClosedError)
        assert await asyncio.to_thread(len, "abc") == 3
        async with Runtime() as another:
            assert await another.offload(len, "ab") == 2
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_permit_held_by_another_runtime_is_waited_for() -> None:
    """Two runtimes share one permit: the call of the closing one is queued, without a worker."""
    release, computing = threading.Event(), threading.Event()

    def compute() -> None:
        computing.set()
        while not release.is_set():
            sum(range(1000))

    async def elsewhere() -> None:
        async with Runtime():
            await offload(compute)()

    other = asyncio.ensure_future(asyncio.to_thread(asyncio.run, elsewhere()))
    await eventually(computing.is_set)
    async with Runtime() as runtime:
        task = asyncio.ensure_future(runtime.offload(time.process_time))
        await turns()
        closing = asyncio.ensure_future(runtime.aclose())
        await turns()
        release.set()
        await closing
    assert isinstance(await task, float)
    await other


async def test_a_close_on_another_loop_is_refused_and_the_runtime_stays_open() -> None:
    async with Runtime(shutdown_timeout=0.1) as runtime:
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, runtime.aclose())
        assert await runtime.offload(int, "42") == 42


def test_a_runtime_whose_loop_has_ended_closes_on_another_one_without_a_wait() -> None:
    async def open_one() -> Runtime:
        return hybridrt.install(shutdown_timeout=DEADLINE)

    async def close(runtime: Runtime) -> None:
        await asyncio.wait_for(runtime.aclose(), DEADLINE / 10)
        assert runtime.statistics().workers == 0

    asyncio.run(close(asyncio.run(open_one())))
