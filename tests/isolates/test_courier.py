"""Light calls that the loop itself carries to isolates: what it carries, and what it leaves to threads."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from typing import Any

import psutil
import pytest

from hybridrt import NotPortableError, OffloadTimeoutError, Runtime, RuntimeClosedError, WorkerLostError
from hybridrt.loop import isolated
from hybridrt.pool.gates import Gate
from hybridrt.pool.isolates import crew
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE, eventually

from . import far
from .support import FarGate, cancel_kills, carried_by_loop, closes_after, lighten, push, run_isolated

pytestmark = [
    pytest.mark.usefixtures("kept", "runtime", "steady"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


def kill(process: psutil.Process) -> None:
    process.kill()
    process.wait(DEADLINE)


async def test_a_light_call_is_carried_by_the_loop_and_wakes_no_worker(
    runtime: Runtime, isolation: Isolation
) -> None:
    await lighten(far.add, isolation)
    started = runtime.statistics().submitted
    call = push(far.add, 40, 2, isolation=isolation)
    assert carried_by_loop(call)
    assert [row.thread for row in runtime.statistics().running] == ["event loop"]
    assert not call.pool.governor.parked
    assert await call == 42
    statistics = runtime.statistics()
    assert (statistics.submitted, statistics.completed) == (started + 1, started + 1)
    assert not statistics.running
    assert not call.pool.is_active()


async def test_calls_one_after_the_other_use_one_isolate(isolation: Isolation) -> None:
    await lighten(far.count_calls, isolation)
    counted = [await run_isolated(far.count_calls, isolation=isolation) for _ in range(5)]
    assert counted == [counted[0] + number for number in range(5)]


async def test_an_exception_arrives_as_through_a_thread(isolation: Isolation) -> None:
    await lighten(far.fail_unpicklably, isolation)
    call = push(far.fail_unpicklably, isolation=isolation)
    assert carried_by_loop(call)
    with pytest.raises(RuntimeError, match="LocalError") as caught:
        await call
    assert "in fail_unpicklably" in str(caught.value.__cause__)
    assert call.pool.tally.failed == 1


async def test_stop_iteration_arrives_as_the_cause_of_a_runtime_error(isolation: Isolation) -> None:
    await lighten(far.raise_stop_iteration, isolation)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_isolated(far.raise_stop_iteration, isolation=isolation)


async def test_a_large_result_is_read_by_a_thread(isolation: Isolation) -> None:
    line = await lighten(far.make_bytes, isolation)
    call = push(far.make_bytes, 3_000_000, isolation=isolation)
    assert carried_by_loop(call)
    assert await call == bytes(3_000_000)
    assert line.replies is None
    assert not carried_by_loop(push(far.make_bytes, 1, isolation=isolation))


async def test_a_result_of_a_class_is_put_together_by_a_thread(isolation: Isolation) -> None:
    await lighten(far.make_marked, isolation)
    call = push(far.make_marked, isolation=isolation)
    assert carried_by_loop(call)
    assert (await call).rebuilt_in != threading.get_ident()


async def test_an_argument_that_cannot_be_packed_after_all_is_told_and_costs_no_isolate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lighten(far.echo)
    idle = crew.processes.isolates()
    monkeypatch.setattr(isolated, "weigh_call", lambda args, kwargs: 0)
    with pytest.raises(NotPortableError, match=r"argument 1 of .*far:echo is a lock"):
        await run_isolated(far.echo, threading.Lock())
    assert crew.processes.isolates() == idle


async def test_a_result_that_cannot_be_carried_back_is_told(isolation: Isolation) -> None:
    await lighten(far.make_lock, isolation)
    with pytest.raises(Exception, match=r"result of .*far:make_lock"):
        await run_isolated(far.make_lock, isolation=isolation)


@pytest.mark.parametrize(
    "argument", [bytes(LIGHT + 1), far.Brittle(), [[]] * 100], ids=["long", "ours", "many"]
)
async def test_a_heavy_argument_goes_through_a_thread(argument: Any) -> None:
    await lighten(far.echo)
    call = push(far.echo, argument)
    assert not carried_by_loop(call)
    await asyncio.wait({call})


async def test_hooks_hear_of_isolated_calls_in_a_thread() -> None:
    await lighten(far.add)
    call = push(far.add, 1)
    call.pool.hooks.on_event = lambda event: None
    second = push(far.add, 2)
    assert not carried_by_loop(second)
    call.pool.hooks.on_event = None
    assert await asyncio.gather(call, second) == [2, 3]


# ---------------------------------------------------------------------- one after the other


async def test_queued_calls_follow_one_another_on_the_loop_in_their_order(one_at_a_time: Gate) -> None:
    await lighten(far.echo)
    ended = list[int]()
    calls = [push(far.echo, number) for number in range(6)]
    workers = len(calls[0].pool.crew.workers)
    for call in calls:
        call.add_done_callback(lambda call: ended.append(call.result()))
    assert [carried_by_loop(call) for call in calls] == [True] + 5 * [False]
    for call in calls:
        await call
        assert len(call.pool.crew.errands) <= 1
    await asyncio.sleep(0)
    assert ended == [0, 1, 2, 3, 4, 5]
    assert len(calls[0].pool.crew.workers) == workers


async def test_a_heavy_call_in_between_gets_a_worker(one_at_a_time: Gate) -> None:
    await lighten(far.echo)
    calls = [push(far.echo, value) for value in (1, bytes(LIGHT + 1), 2)]
    assert await asyncio.gather(*calls) == [1, bytes(LIGHT + 1), 2]


async def test_there_are_never_more_isolates_than_places(one_at_a_time: Gate) -> None:
    await lighten(far.echo)
    before = len(crew.processes.isolates())
    for number in range(5):
        values = [number, bytes(LIGHT + 1), number]
        assert await asyncio.gather(*[push(far.echo, value) for value in values]) == values
    assert len(crew.processes.isolates()) == before


async def test_a_call_cancelled_while_queued_behind_an_errand_never_runs(one_at_a_time: Gate) -> None:
    await lighten(far.count_calls)
    before = await run_isolated(far.count_calls)
    first, second, third = (push(far.count_calls) for _ in range(3))
    second.cancel()
    assert await first == before + 1
    assert await third == before + 2
    assert second.cancelled()


async def test_the_pool_of_another_loop_gets_its_turn(one_at_a_time: Gate, far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push("mine")
    assert carried_by_loop(held)
    other = threading.Thread(target=lambda: results.append(asyncio.run(run_isolated(far.add, 1))))
    results = list[int]()
    other.start()
    await eventually(lambda: bool(one_at_a_time.waiting))
    await far_gate.entered()
    await far_gate.release()
    assert await held == "mine"
    await asyncio.to_thread(other.join)
    assert results == [2]


# ---------------------------------------------------------------------- nobody waits any more


async def test_cancelling_waits_for_the_end(far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push()
    task = asyncio.ensure_future(_wait_for(held))
    await far_gate.entered()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    await far_gate.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await run_isolated(far.add, 1) == 2


async def _wait_for(call: Any) -> Any:
    return await call


async def test_a_timeout_kills_the_process(far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push()
    victim = psutil.Process(await far_gate.entered())
    held.expire(0.5)
    with pytest.raises(OffloadTimeoutError, match="its process is ended"):
        await held
    await asyncio.to_thread(victim.wait, DEADLINE)
    await eventually(lambda: not held.pool.crew.errands)
    assert await run_isolated(far.add, 1) == 2


async def test_cancelling_kills_the_process_where_the_call_may_be_abandoned(far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push()
    await cancel_kills(held, far_gate)
    await eventually(lambda: not held.pool.crew.errands)


async def test_a_call_abandoned_as_soon_as_it_is_sent_leaves_nothing_behind() -> None:
    await lighten(far.add)
    call = push(far.add, 1)
    assert carried_by_loop(call)
    call.expire(0.0)
    with pytest.raises(OffloadTimeoutError):
        await call
    await eventually(lambda: not call.pool.crew.errands and not crew.processes._lent)
    assert await run_isolated(far.add, 1) == 2


@pytest.mark.parametrize("by_loop", [True, False])
async def test_closing_at_the_deadline_gives_it_up(
    runtime: Runtime, far_gate: FarGate, caplog: pytest.LogCaptureFixture, by_loop: bool
) -> None:
    if by_loop:
        await lighten(far.hold)
    held = far_gate.push()
    assert carried_by_loop(held) == by_loop
    await far_gate.entered()
    runtime.shutdown_timeout = 0.0
    await runtime.aclose()
    with pytest.raises(RuntimeClosedError, match=r"closed while .*far:hold .*ran"):
        await held
    assert "far:hold [process] still runs after" in caplog.text
    assert "in another interpreter; the runtime closes and leaves its isolate behind" in caplog.text
    await eventually(lambda: not held.pool.crew.errands)


async def test_closing_waits_for_it(runtime: Runtime, far_gate: FarGate, isolation: Isolation) -> None:
    await lighten(far.hold, isolation)
    held = far_gate.push("done", isolation=isolation)
    assert carried_by_loop(held)
    await far_gate.entered()
    assert await closes_after(runtime, held, far_gate) == "done"


# ---------------------------------------------------------------------- isolates that die


async def test_an_isolate_that_died_idle_is_replaced_and_the_call_does_not_hear_of_it() -> None:
    await lighten(far.pid)
    first = await run_isolated(far.pid)
    kill(psutil.Process(first))
    second = await run_isolated(far.pid)
    assert second not in (first, os.getpid())


async def test_one_that_dies_in_the_middle_fails_its_call(far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push()
    assert carried_by_loop(held)
    victim = await far_gate.entered()
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=rf"worker process {victim} .*SIGKILL .*far:hold") as caught:
        await held
    assert (caught.value.started, caught.value.exitcode) == (True, -signal.SIGKILL)
    assert await run_isolated(far.add, 1) == 2
