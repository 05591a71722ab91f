"""Cancelling: queued, a call never runs; running, its await ends with it, or at once if it may."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from hybridrt import Runtime, check_cancelled, install, offload, run

from .support import DEADLINE, Gate, cancel_inside, eventually, hold, queued, sole_worker, turns

ABANDONED_OR_NOT = pytest.mark.parametrize("abandon", [False, True], ids=["awaited", "abandoned"])

# ---------------------------------------------------------------------- queued


async def test_a_call_cancelled_while_queued_never_runs() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        task = asyncio.ensure_future(runtime.offload(ran.append, 1))
        await turns()
        assert queued(runtime) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.release()
        await runtime.offload(int)
        assert ran == []


async def test_it_leaves_the_queue_in_the_instant_of_cancel() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(3)]
        await turns()
        tasks[1].cancel()
        assert (queued(runtime), runtime.statistics().cancelled) == (2, 1)
        gate.release()
        await asyncio.wait([holding, *tasks])
        assert ran == [0, 2]


async def test_a_call_is_not_submitted_by_a_task_cancelled_before_its_first_step() -> None:
    async with Runtime() as runtime:
        task = asyncio.ensure_future(runtime.offload(int))
        task.cancel()
        await asyncio.wait({task})
        assert runtime.statistics().submitted == 0


@pytest.mark.parametrize("options", [{"limit": 1}, {"lane": "a lane"}], ids=["limit", "lane"])
async def test_a_call_cancelled_at_a_gate_never_runs(options: dict[str, Any]) -> None:
    async with Runtime() as runtime, Gate() as gate:
        one = offload(gate, **options)
        first = asyncio.ensure_future(runtime.offload(one, 1))
        await gate.entered()
        second, third = (asyncio.ensure_future(runtime.offload(one, n)) for n in (2, 3))
        await turns()
        assert runtime.statistics().queued["gated"] == 2
        second.cancel()
        assert runtime.statistics().queued["gated"] == 1
        gate.release()
        assert await asyncio.gather(first, third) == [1, 3]
        assert second.cancelled()
        assert await gate.entered() == 3


async def test_a_call_cancelled_between_two_gates_leaves_the_first() -> None:
    async with Runtime() as runtime, Gate() as gate:
        both = offload(gate, limit=1, lane="second")
        holding = asyncio.ensure_future(runtime.offload(offload(gate, lane="second"), "lane"))
        await gate.entered()
        between = asyncio.ensure_future(runtime.offload(both, "between"))
        await turns()
        between.cancel()
        free = asyncio.ensure_future(runtime.offload(both.options(lane=None), "free"))
        assert await gate.entered() == "free"
        gate.release()
        assert await asyncio.gather(holding, free) == ["lane", "free"]


async def test_the_message_of_the_cancelling_arrives() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        running = await hold(runtime, gate)
        waiting = asyncio.ensure_future(runtime.offload(int))
        await turns()
        running.cancel("why running")
        waiting.cancel("why queued")
        gate.release()
        for task, message in ((running, "why running"), (waiting, "why queued")):
            with pytest.raises(asyncio.CancelledError, match=message):
                await task


@pytest.mark.race
async def test_a_cancel_at_the_moment_a_worker_frees_up_wins_or_loses_entirely() -> None:
    """Either the call is withdrawn and never runs, or it had been claimed and the await ends with it."""
    async with sole_worker() as runtime, Gate() as gate:
        ran: list[int] = []
        holding = await hold(runtime, gate)
        task = asyncio.ensure_future(runtime.offload(ran.append, 1))
        await asyncio.sleep(0)
        gate.release()
        task.cancel()
        withdrawn = runtime.statistics().cancelled
        await asyncio.wait({task, holding})
        assert task.cancelled()
        assert len(ran) == 1 - withdrawn
        await runtime.offload(int)
        assert len(ran) == 1 - withdrawn


@pytest.mark.race
async def test_cancelling_many_at_once_beside_a_busy_worker_loses_no_call() -> None:
    async with Runtime(max_workers=2) as runtime:
        ran: list[int] = []
        tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        withdrawn = runtime.statistics().cancelled
        await asyncio.wait(tasks)
        assert set(ran) >= set(range(1, 40, 2))
        assert len(ran) == len(set(ran)) == 40 - withdrawn


# ---------------------------------------------------------------------- running


async def test_the_await_of_a_running_call_ends_when_the_call_ends() -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = await hold(runtime, gate)
        task.cancel()
        await turns()
        assert not task.done()
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runtime.statistics().completed == 1
        assert runtime.statistics().abandoned == 0


async def test_cancelling_a_running_call_again_changes_nothing() -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = await hold(runtime, gate)
        for _ in range(3):
            task.cancel()
            await turns()
            assert not task.done()
        gate.release()
        await asyncio.wait({task})
        assert task.cancelled()


@pytest.mark.race
async def test_cancelling_twice_at_the_moment_of_the_claim_is_harmless() -> None:
    async with Runtime(max_workers=2) as runtime:
        tasks = [asyncio.ensure_future(runtime.offload(int)) for _ in range(20)]
        await asyncio.sleep(0)
        for _ in range(3):
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() or task.exception() is None for task in tasks)


async def test_with_abandon_on_cancel_the_await_of_a_running_call_ends_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, abandon_on_cancel=True)))
        await gate.entered()
        task.cancel("at once")
        with pytest.raises(asyncio.CancelledError, match="at once"):
            await task
        statistics = runtime.statistics()
        assert (statistics.abandoned, statistics.abandoned_running) == (1, 1)
        assert [call.abandoned for call in statistics.running] == [True]
        gate.release()
        await eventually(lambda: runtime.statistics().abandoned_running == 0)
        assert runtime.statistics().abandoned == 1


async def wait_in_vain(runtime: Runtime, fn: Any, gate: Gate) -> None:
    """Await a call under a deadline that passes as soon as it runs."""

    async def one() -> None:
        async with asyncio.timeout(None) as deadline:
            call = asyncio.ensure_future(runtime.offload(fn))
            await gate.entered()
            deadline.reschedule(0.0)
            await call

    with pytest.raises(TimeoutError):
        await one()


@pytest.mark.parametrize("options", [{}, {"limit": 1}, {"abandon_on_cancel": None}], ids=str)
async def test_a_runtime_says_what_cancelling_does_where_the_function_does_not(
    options: dict[str, Any],
) -> None:
    async with Runtime(abandon_on_cancel=True) as runtime, Gate() as gate:
        await wait_in_vain(runtime, offload(gate, **options), gate)
        assert runtime.statistics().abandoned_running == 1
        await wait_in_vain(runtime, gate, gate)
        assert runtime.statistics().abandoned_running == 2


async def test_the_option_of_a_function_wins_over_the_runtimes() -> None:
    for runtimes, own in ((True, False), (False, True)):
        async with Runtime(abandon_on_cancel=runtimes) as runtime, Gate() as gate:
            task = asyncio.ensure_future(runtime.offload(offload(gate, abandon_on_cancel=own)))
            await gate.entered()
            task.cancel()
            await turns()
            assert task.done() is own
            gate.release()
            await asyncio.wait({task})
            assert task.cancelled()


async def test_after_a_runtime_that_abandons_calls_are_waited_for_again() -> None:
    async with Runtime(abandon_on_cancel=True):
        pass
    async with Gate() as gate:
        task = asyncio.ensure_future(offload(gate)())
        await gate.entered()
        task.cancel()
        await turns()
        assert not task.done()
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_run_and_install_take_it_too() -> None:
    async def main() -> bool:
        return Runtime.current().abandon_on_cancel

    async def installed() -> bool:
        runtime = install(abandon_on_cancel=True)
        try:
            return await main()
        finally:
            await runtime.aclose()

    assert run(main(), abandon_on_cancel=True)
    assert asyncio.run(installed())


async def test_abandon_on_cancel_does_not_abandon_a_queued_call() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        ran: list[int] = []
        task = asyncio.ensure_future(runtime.offload(offload(ran.append, abandon_on_cancel=True), 1))
        await turns()
        task.cancel()
        await asyncio.wait({task})
        assert (runtime.statistics().cancelled, runtime.statistics().abandoned) == (1, 0)
        gate.release()
        await runtime.offload(int)
        assert ran == []


@pytest.mark.parametrize("policy", ["demand", "paper"])
async def test_the_place_of_an_abandoned_call_is_given_to_another(policy: Any) -> None:
    """More calls get stuck than may run at once; those after them run nevertheless."""
    async with Runtime(policy=policy, max_workers=64) as runtime, Gate() as gate:
        stuck = offload(gate, abandon_on_cancel=True)
        for round in range(5):
            size = runtime.statistics().target
            tasks = [asyncio.ensure_future(runtime.offload(stuck, n)) for n in range(min(size, 8))]
            for _ in tasks:
                await gate.entered()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert runtime.statistics().abandoned_running == (round + 1) * len(tasks)
        assert await runtime.offload(len, "abc") == 3


async def test_abandoned_calls_count_against_the_hard_limit() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(gate, abandon_on_cancel=True)))
        await gate.entered()
        task.cancel()
        await asyncio.wait({task})
        behind = asyncio.ensure_future(runtime.offload(int))
        await turns()
        assert (queued(runtime), runtime.statistics().workers) == (1, 1)
        gate.release()
        assert await behind == 0


# ---------------------------------------------------------------------- the error of a call nobody waits for


@ABANDONED_OR_NOT
async def test_the_error_of_a_cancelled_call_is_logged(
    abandon: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_late(gate: Gate) -> None:
        gate()
        raise LookupError("lost otherwise")

    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(fail_late, abandon_on_cancel=abandon), gate))
        await gate.entered()
        task.cancel()
        await turns()
        gate.release()
        await asyncio.wait({task})
        assert task.cancelled()
        await eventually(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("hybridrt", logging.WARNING)
    assert "fail_late raised after its caller was gone" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


# ---------------------------------------------------------------------- check_cancelled


@ABANDONED_OR_NOT
async def test_check_cancelled_raises_once_nobody_waits(
    abandon: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def work(gate: Gate) -> None:
        check_cancelled()
        seen.append("waited for")
        gate()
        try:
            check_cancelled()
        except asyncio.CancelledError as error:
            seen.append(str(error))
            raise

    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(offload(work, abandon_on_cancel=abandon), gate))
        await gate.entered()
        task.cancel()
        gate.release()
        await asyncio.wait({task})
        assert task.cancelled()
        await eventually(lambda: len(seen) == 2)
    assert seen[0] == "waited for"
    assert seen[1].startswith("no caller waits for ")
    assert seen[1].endswith("work any more")
    assert not caplog.records


async def test_check_cancelled_raises_in_a_call_of_the_default_executor_too() -> None:
    seen = threading.Event()

    def work(gate: Gate) -> None:
        gate()
        try:
            check_cancelled()
        except asyncio.CancelledError:
            seen.set()

    async with Runtime(), Gate() as gate:
        task = asyncio.ensure_future(asyncio.to_thread(work, gate))
        await gate.entered()
        task.cancel()
        await asyncio.wait({task})
        await turns()
        gate.release()
        await eventually(seen.is_set)


async def test_check_cancelled_does_nothing_elsewhere() -> None:
    check_cancelled()
    await offload(check_cancelled)()
    await asyncio.to_thread(check_cancelled)


# ---------------------------------------------------------------------- asyncio's own ways to cancel


async def test_asyncio_timeout_removes_a_queued_call() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await runtime.offload(ran.append, 1)
        assert runtime.statistics().cancelled == 1
        gate.release()
        await runtime.offload(int)
        assert ran == []


async def test_asyncio_timeout_waits_for_a_running_call() -> None:
    scopes: list[asyncio.Timeout] = []

    async def within_a_timeout(gate: Gate) -> None:
        async with asyncio.timeout(DEADLINE) as scope:
            scopes.append(scope)
            await offload(gate)()

    async with Gate() as gate:
        task = asyncio.ensure_future(within_a_timeout(gate))
        await gate.entered()
        scopes[0].reschedule(asyncio.get_running_loop().time() - 1.0)
        await eventually(lambda: task.cancelling() > 0)
        await turns()
        assert not task.done()
        gate.release()
        with pytest.raises(TimeoutError):
            await task


async def test_wait_for_removes_a_queued_call() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(runtime.offload(ran.append, 1), 0.001)
        gate.release()
        await runtime.offload(int)
        assert ran == []


async def test_a_failing_task_group_withdraws_its_queued_calls() -> None:
    ran: list[int] = []

    async def fail() -> None:
        raise LookupError

    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for n in range(5):
                    group.create_task(runtime.offload(ran.append, n))
                await turns()
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await together()
        assert queued(runtime) == 0
        gate.release()
        await runtime.offload(int)
        assert ran == []


async def test_a_log_filter_that_raises_keeps_no_cancelled_call_from_its_end() -> None:
    def refuse(_: logging.LogRecord) -> bool:
        raise LookupError("a filter of the user's")

    def fail() -> None:
        gate(None)
        raise ValueError

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    logging.getLogger("hybridrt").addFilter(refuse)
    try:
        async with Runtime(), Gate() as gate:
            task = asyncio.ensure_future(offload(fail)())
            await cancel_inside(task, gate)
    finally:
        logging.getLogger("hybridrt").removeFilter(refuse)
    assert [type(error) for error in told] == [LookupError]
