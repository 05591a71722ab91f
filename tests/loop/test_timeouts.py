"""`timeout` and `queue_timeout`: what they end, what they leave alone, and what the error says.

The timers are armed on the real loop; most tests fire them by hand, at the moment in question.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import HybridrtError, OffloadTimeoutError, Runtime, check_cancelled, offload

from .support import Gate, Timers, eventually, hold, queued, sole_worker, turns

BOTH = pytest.mark.parametrize("option", ["timeout", "queue_timeout"])


async def missed(task: asyncio.Future[Any]) -> OffloadTimeoutError:
    """Return the error of a call that missed its time."""
    with pytest.raises(OffloadTimeoutError) as caught:
        await task
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, HybridrtError)
    return caught.value


# ---------------------------------------------------------------------- queued


@BOTH
async def test_a_call_that_misses_its_time_in_the_queue_never_runs(option: str) -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        options: dict[str, Any] = {option: 0.001}
        error = await missed(asyncio.ensure_future(runtime.offload(offload(ran.append, **options), 1)))
        assert error.started is False
        assert "append did not start within its " in str(error)
        assert f"{option} of 0.001 s and was removed" in str(error)
        assert (queued(runtime), runtime.statistics().cancelled) == (0, 1)
        gate.release()
        await runtime.offload(int)
        assert ran == []


@BOTH
async def test_the_time_in_a_full_queue_counts(option: str, timers: Timers) -> None:
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        await hold(runtime, gate)
        filling = asyncio.ensure_future(runtime.offload(int))
        options: dict[str, Any] = {option: 5.0}
        beyond = asyncio.ensure_future(runtime.offload(offload(str, **options)))
        await turns()
        assert runtime.statistics().queued["backlog"] == 1
        timers.fire()
        assert (await missed(beyond)).started is False
        assert runtime.statistics().queued["backlog"] == 0
        gate.release()
        assert await filling == 0


@BOTH
async def test_the_time_at_a_gate_counts(option: str, timers: Timers) -> None:
    async with Runtime() as runtime, Gate() as gate:
        options: dict[str, Any] = {option: 5.0}
        one = offload(gate, limit=1)
        first = asyncio.ensure_future(one("first"))
        await gate.entered()
        second = asyncio.ensure_future(one.options(**options)("second"))
        third = asyncio.ensure_future(one("third"))
        await turns()
        timers.fire()
        assert (await missed(second)).started is False
        gate.release()
        assert await asyncio.gather(first, third) == ["first", "third"]
        assert runtime.statistics().queued["gated"] == 0


async def test_a_timeout_of_zero_lets_nothing_start_behind_others() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        error = await missed(asyncio.ensure_future(runtime.offload(offload(int, timeout=0))))
        assert error.started is False


async def test_a_timeout_of_zero_ends_the_await_of_a_call_that_started() -> None:
    async with Runtime() as runtime, Gate() as gate:
        await missed(asyncio.ensure_future(runtime.offload(offload(gate, timeout=0))))


# ---------------------------------------------------------------------- running


async def test_a_call_that_misses_its_timeout_while_it_runs_is_abandoned(timers: Timers) -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, timeout=2.5)))
        await gate.entered()
        timers.fire()
        error = await missed(task)
        assert error.started is True
        assert "still ran after its timeout of 2.5 s; its thread is abandoned" in str(error)
        statistics = runtime.statistics()
        assert (statistics.abandoned, statistics.abandoned_running, statistics.cancelled) == (1, 1, 0)
        gate.release()
        await eventually(lambda: runtime.statistics().abandoned_running == 0)


async def test_the_timeout_is_armed_for_the_time_given(timers: Timers) -> None:
    await offload(int, timeout=2.5, queue_timeout=1.5)()
    assert [delay for delay, _, _ in timers.armed] == [2.5, 1.5]


async def test_a_real_timer_ends_the_await() -> None:
    async with Runtime() as runtime, Gate() as gate:
        await missed(asyncio.ensure_future(runtime.offload(offload(gate, timeout=0.002))))


async def test_a_queue_timeout_leaves_a_running_call_alone(timers: Timers) -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, queue_timeout=0.1), "value"))
        await gate.entered()
        timers.fire()
        await turns()
        assert not task.done()
        gate.release()
        assert await task == "value"


async def test_check_cancelled_raises_after_the_timeout(timers: Timers) -> None:
    raised = threading.Event()

    def work(gate: Gate) -> None:
        gate()
        try:
            check_cancelled()
        except asyncio.CancelledError:
            raised.set()
            raise

    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(work, timeout=5.0), gate))
        await gate.entered()
        timers.fire()
        await missed(task)
        gate.release()
        await eventually(raised.is_set)


async def test_an_error_after_the_timeout_is_logged(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    def fail_late(gate: Gate) -> None:
        gate()
        raise LookupError("lost otherwise")

    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(fail_late, timeout=5.0), gate))
        await gate.entered()
        timers.fire()
        await missed(task)
        gate.release()
        await eventually(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.WARNING, True)
    assert "fail_late raised after its caller was gone" in record.getMessage()


async def test_the_place_of_a_call_that_timed_out_is_given_to_another(timers: Timers) -> None:
    async with Runtime(policy="paper", max_workers=64) as runtime, Gate() as gate:
        stuck = offload(gate, timeout=5.0)
        for _ in range(3):
            tasks = [asyncio.ensure_future(runtime.offload(stuck)) for _ in range(4)]
            for _ in tasks:
                await gate.entered()
            timers.fire()
            await asyncio.wait(tasks)
            assert all([(await missed(task)).started for task in tasks])
        assert await runtime.offload(len, "abc") == 3


# ---------------------------------------------------------------------- in the same turn


def _ended(runtime: Runtime) -> Callable[[], bool]:
    return lambda: runtime.statistics().completed == 1


async def test_a_result_in_the_same_turn_before_the_timeout_wins(timers: Timers) -> None:
    """The worker has delivered, the loop has not settled yet, and the timer fires in between."""
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, timeout=5.0), "value"))
        await gate.entered()
        gate.release()
        wait_without_turning(_ended(runtime))
        timers.fire()
        assert await task == "value"
        assert runtime.statistics().abandoned == 0


async def test_a_result_in_the_same_turn_after_the_timeout_is_dropped(timers: Timers) -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, timeout=5.0), "value"))
        await gate.entered()
        timers.fire()
        gate.release()
        wait_without_turning(_ended(runtime))
        assert (await missed(task)).started is True


async def test_a_cancel_in_the_same_turn_as_the_timeout_wins_over_it(timers: Timers) -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, timeout=5.0), "value"))
        await gate.entered()
        timers.fire()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


async def test_a_timeout_ends_the_wait_of_a_cancelled_running_call(timers: Timers) -> None:
    """Cancelled, the await would last as long as the call; the timeout still holds."""
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, timeout=5.0)))
        await gate.entered()
        task.cancel()
        await turns()
        assert not task.done()
        timers.fire()
        await asyncio.wait({task})
        assert task.cancelled()


def wait_without_turning(condition: Callable[[], bool]) -> None:
    """Keep the loop from turning until other threads have brought something about."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.0005)


async def test_timers_are_cancelled_with_the_call(timers: Timers) -> None:
    await offload(int, timeout=5.0, queue_timeout=5.0)()
    with pytest.raises(ZeroDivisionError):
        await offload(divmod, timeout=5.0)(1, 0)
    assert len(timers.handles) == 3
    assert all(handle.cancelled() for handle in timers.handles)


@pytest.mark.race
async def test_a_timeout_at_any_moment_gives_one_outcome() -> None:
    """The result, or an error that is right about whether the call ran."""
    async with sole_worker() as runtime:
        ran: list[int] = []
        calls = [offload(ran.append, timeout=n / 20_000) for n in range(20)]
        tasks = [asyncio.ensure_future(runtime.offload(call, n)) for n, call in enumerate(calls)]
        await asyncio.wait(tasks)
        removed = {
            n
            for n, task in enumerate(tasks)
            if isinstance(error := task.exception(), OffloadTimeoutError) and not error.started
        }
        assert len(removed) == runtime.statistics().cancelled
        await runtime.offload(int)
        assert set(ran) == set(range(20)) - removed
