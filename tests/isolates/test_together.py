"""Several light calls in one message: which go together, and what becomes of those that do not come back."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import threading
from typing import Any

import psutil
import pytest

from hybridrt import Runtime, RuntimeClosedError, WorkerLostError
from hybridrt.loop import courier, isolated
from hybridrt.pool.gates import Gate
from hybridrt.pool.isolates import crew
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE, eventually
from tests.pool.support import until

from . import far
from .support import FarGate, carried_by_loop, closes_after, crowd, push

pytestmark = [
    pytest.mark.usefixtures("kept", "runtime", "steady"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many calls each message of a courier has."""
    sizes = list[int]()
    set_out = courier.Courier.set_out

    def note(self: courier.Courier) -> None:
        sizes.append(len(self.calls()))
        set_out(self)

    monkeypatch.setattr(courier.Courier, "set_out", note)
    return sizes


# ---------------------------------------------------------------------- who goes along


async def test_calls_of_one_turn_go_together_and_wake_no_worker(
    runtime: Runtime, messages: list[int], isolation: Isolation
) -> None:
    await crowd(far.count_calls, isolation)
    before = runtime.statistics()
    calls = [push(far.count_calls, isolation=isolation) for _ in range(5)]
    assert all(map(carried_by_loop, calls))
    running = runtime.statistics().running
    assert [row.thread for row in running] == 5 * ["event loop"]
    counted = await asyncio.gather(*calls)
    assert counted == [counted[0] + number for number in range(5)]
    assert messages == [5]
    statistics = runtime.statistics()
    assert statistics.submitted == before.submitted + 5
    assert statistics.completed == before.completed + 5
    assert statistics.workers == before.workers
    assert not calls[0].pool.is_active()
    (row,) = (row for row in statistics.functions if "count_calls" in row.name)
    assert row.calls == 5


async def test_calls_that_wait_at_the_gate_go_together(messages: list[int], one_at_a_time: Gate) -> None:
    line = await crowd(far.echo)
    line._crowd = 0
    calls = [push(far.echo, number) for number in range(6)]
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4, 5]
    assert messages == [1, 5]


async def test_after_a_batch_the_next_one_gathers_whom_that_wakes(messages: list[int]) -> None:
    await crowd(far.echo)

    async def ask() -> None:
        for number in range(3):
            assert await push(far.echo, number) == number

    await asyncio.gather(*(ask() for _ in range(4)))
    assert messages == [4, 4, 4]


async def test_a_caller_alone_is_not_made_to_wait_for_long(messages: list[int]) -> None:
    line = await crowd(far.echo)
    line._crowd = 2
    lingered = list[bool]()
    for number in range(4):
        call = push(far.echo, number)
        lingered.append(line.lingers is not None)
        await call
    assert lingered == [True, True, False, False]
    assert messages == [1, 1, 1, 1]


async def test_no_more_go_together_than_are_light(messages: list[int]) -> None:
    await crowd(far.echo)
    texts = [number * "x" for number in range(LIGHT // 3, LIGHT // 3 + 4)]
    assert await asyncio.gather(*(push(far.echo, text) for text in texts)) == texts
    assert max(messages) == 2


async def test_no_more_go_together_than_are_brief(messages: list[int]) -> None:
    line = await crowd(far.echo)
    line.together = 2
    assert await asyncio.gather(*(push(far.echo, number) for number in range(5))) == [0, 1, 2, 3, 4]
    assert max(messages) == 2


async def test_calls_of_another_function_or_with_a_limit_of_their_own_go_by_themselves(
    messages: list[int],
) -> None:
    await crowd(far.add)
    line = await crowd(far.echo)
    first, other = push(far.echo, 1), push(far.add, 1)
    assert first in line.lingers.calls()  # type: ignore[union-attr]
    assert other not in line.lingers.calls()  # type: ignore[union-attr]
    limited = isolated.isolated_call(first.line._loop and _port(), far.echo, (3,), {}, "process")
    limited.gates = (Gate(1, "limit"), *limited.gates)
    limited.go()
    assert limited not in line.lingers.calls()  # type: ignore[union-attr]
    assert await asyncio.gather(first, other, limited) == [1, 2, 3]
    assert max(messages) == 1


def _port() -> Any:
    from hybridrt.loop.port import current_port

    return current_port()


async def test_they_are_measured_as_one(messages: list[int], isolation: Isolation) -> None:
    line = await crowd(far.compute, isolation)
    line.is_measured = True
    told = list[Crossing | None]()
    calls = [push(far.compute, isolation=isolation, on_crossing=told.append) for _ in range(4)]
    await asyncio.gather(*calls)
    assert messages == [4]
    crossing, *others = sorted(told, key=lambda crossing: crossing is None)
    assert others == [None, None, None]
    assert crossing is not None
    assert 0 < crossing.child_cpu_ns < calls[0].wall_ns
    assert crossing.child_wall_ns < crossing.wall_ns
    assert crossing.host_cpu_ns == line.cpu_ns == calls[3].cpu_ns > 0
    assert crossing.bytes_in < LIGHT // 4


async def test_calls_go_together_as_long_as_that_takes_no_time() -> None:
    line = await crowd(far.echo)
    line._usual_ns = 0
    line.came_again(isolated._TOGETHER_NS // 4)
    assert line.together == 3
    line.came_again(isolated._TOGETHER_NS)
    assert line.together == 1
    for _ in range(30):
        line.came_again(1000)
    assert line.together == isolated._TOGETHER


async def test_a_worker_leaves_the_light_calls_behind_its_own_to_the_loop(
    messages: list[int], one_at_a_time: Gate, far_gate: FarGate
) -> None:
    await crowd(far.echo)
    held = far_gate.push("held")
    await far_gate.entered()
    calls = [push(far.echo, number) for number in range(4)]
    assert not any(map(carried_by_loop, (held, *calls)))
    await far_gate.release()
    assert await asyncio.gather(held, *calls) == ["held", 0, 1, 2, 3]
    assert messages == [4]


async def test_a_worker_runs_them_if_their_loop_is_gone(
    messages: list[int], one_at_a_time: Gate, far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await crowd(far.echo)
    held = far_gate.push("held")
    await far_gate.entered()
    calls = [push(far.echo, number) for number in range(3)]

    gone = asyncio.new_event_loop()
    gone.close()
    monkeypatch.setattr(line.replies, "loop", gone)
    await far_gate.release()
    assert await asyncio.gather(held, *calls) == ["held", 0, 1, 2]
    assert not messages


# ---------------------------------------------------------------------- not all come back


async def test_one_that_raises_fails_alone(isolation: Isolation) -> None:
    await crowd(far.divide, isolation)
    calls = [push(far.divide, value, isolation=isolation) for value in (1.0, 2.0, 0.0, 4.0)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [found[0], found[1], found[3]] == [1.0, 0.5, 0.25]
    assert isinstance(found[2], ZeroDivisionError)
    assert calls[0].pool.tally.failed == 1


async def test_the_first_that_raises_fails_alone() -> None:
    await crowd(far.divide)
    calls = [push(far.divide, value) for value in (0.0, 1.0, 2.0)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert found[1:] == [1.0, 0.5]
    assert isinstance(found[0], ZeroDivisionError)
    assert not crew.processes._lent


async def test_one_that_returns_much_comes_by_itself(isolation: Isolation) -> None:
    await crowd(far.make_bytes, isolation)
    sizes = (1, LIGHT + 1, 2)
    calls = [push(far.make_bytes, size, isolation=isolation) for size in sizes]
    assert [len(value) for value in await asyncio.gather(*calls)] == list(sizes)


async def test_texts_that_are_longer_packed_than_they_seem_come_through_a_thread() -> None:
    await crowd(far.echo)
    texts = ["\N{SNOWMAN}" * 700, "\N{SNOWMAN}" * 800]
    assert await asyncio.gather(*(push(far.echo, text) for text in texts)) == texts


async def test_one_that_ends_its_process_fails_alone() -> None:
    await crowd(far.end_at_zero)
    calls = [push(far.end_at_zero, value) for value in (1, 0, 2)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [found[0], found[2]] == [1, 2]
    assert isinstance(found[1], WorkerLostError)
    assert (found[1].started, found[1].exitcode) == (True, 3)


async def test_a_process_that_is_killed_fails_none_of_them(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (1, 0, 2)]
    os.kill(await far_gate.entered(), signal.SIGKILL)
    await far_gate.entered()
    await far_gate.release()
    assert await asyncio.gather(*calls) == [1, 0, 2]


async def test_one_that_takes_long_keeps_nobody_waiting(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (1, 0, 2)]
    victim = psutil.Process(await far_gate.entered())
    assert [await calls[0], await calls[2]] == [1, 2]
    assert not calls[1].done()
    await asyncio.to_thread(victim.wait, DEADLINE)
    await far_gate.entered()
    await far_gate.release()
    assert await calls[1] == 0


# ---------------------------------------------------------------------- nobody waits any more


async def test_abandoning_the_first_kills_the_process_and_the_others_run_again(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1, 2)]
    victim = psutil.Process(await far_gate.entered())
    calls[0].expire(0.5)
    assert await asyncio.gather(*calls[1:]) == [1, 2]
    assert isinstance(calls[0].exception(), TimeoutError)
    await asyncio.to_thread(victim.wait, DEADLINE)
    await eventually(lambda: not calls[0].pool.is_active())


async def test_abandoning_another_leaves_the_process_alone() -> None:
    await crowd(far.echo)
    pids = [isolate.pid for isolate in crew.processes.isolates()]  # type: ignore[attr-defined]
    calls = [push(far.echo, number) for number in range(3)]
    calls[1].abandon_on_cancel = True
    calls[1].cancel()
    assert calls[1].cancelled()
    assert [await calls[0], await calls[2]] == [0, 2]
    assert [isolate.pid for isolate in crew.processes.isolates()] == pids  # type: ignore[attr-defined]
    assert not calls[0].pool.is_active()


async def test_one_that_was_cancelled_does_not_run_again(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1, 2)]
    await far_gate.entered()
    calls[1].cancel()
    assert not calls[1].done()
    assert await calls[2] == 2
    with pytest.raises(asyncio.CancelledError):
        await calls[1]
    await far_gate.entered()
    await far_gate.release()
    assert await calls[0] == 0
    assert calls[0].pool.tally.cancelled == 1


async def test_one_that_is_abandoned_before_it_sets_out_takes_nobody_with_it() -> None:
    await crowd(far.echo)
    calls = [push(far.echo, number) for number in range(3)]
    calls[0].expire(0.0)
    assert await asyncio.gather(*calls[1:]) == [1, 2]
    await eventually(lambda: not calls[0].pool.is_active() and not crew.processes._lent)


async def test_closing_at_the_deadline_gives_all_of_them_up(
    runtime: Runtime, far_gate: FarGate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridrt.pool.sampler.LATE_NS", 1 << 60)
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1)]
    await far_gate.entered()
    runtime.shutdown_timeout = 0.0
    await runtime.aclose()
    for call in calls:
        with pytest.raises(RuntimeClosedError):
            await call
    assert caplog.text.count("in another interpreter; the runtime closes and leaves its isolate behind") == 2
    await eventually(lambda: not calls[0].pool.crew.errands)


async def test_closing_waits_for_all_of_them(
    runtime: Runtime, far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridrt.pool.sampler.LATE_NS", 1 << 60)
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1)]
    await far_gate.entered()
    assert await closes_after(runtime, calls[0], far_gate) == 0
    assert await calls[1] == 1


# ---------------------------------------------------------------------- loops that stand still


async def test_a_loop_that_stands_still_before_it_sends_them_loses_none(isolation: Isolation) -> None:
    line = await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(3)]
    until(lambda: not calls[0].pool.is_active(), "threads have run them")
    assert not any(call.done() for call in calls)
    assert await asyncio.gather(*calls) == [1, 2, 3]
    await asyncio.sleep(0)
    assert line.lingers is None


async def test_a_loop_that_stands_still_while_they_come_back_gets_them_from_a_thread(
    isolation: Isolation, messages: list[int]
) -> None:
    await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(3)]
    isolates = set(calls[0].carrier.crew.isolates())
    await asyncio.sleep(0)
    assert messages == [3]
    until(lambda: not calls[0].pool.is_active(), "a thread reads the reply")
    assert await asyncio.gather(*calls) == [1, 2, 3]
    assert set(calls[0].carrier.crew.isolates()) == isolates


def test_a_loop_that_is_closed_with_calls_that_linger_leaves_nothing_behind(isolation: Isolation) -> None:
    async def leave() -> Any:
        await crowd(far.add, isolation)
        return [push(far.add, number, isolation=isolation) for number in range(3)]

    loop = asyncio.new_event_loop()
    calls = loop.run_until_complete(leave())
    loop.close()
    until(lambda: not calls[0].pool.is_active(), "threads run them")
    until(lambda: calls[0].line.crew.gate.active == 0, "their place is free")


async def test_a_call_made_while_a_thread_takes_over_goes_by_itself() -> None:
    line = await crowd(far.add)
    first = push(far.add, 1)
    lingering = line.lingers
    assert lingering is not None
    thread = threading.Thread(target=lingering.hand_over)
    thread.start()
    thread.join()
    until(lambda: not lingering.open, "the thread has closed it")
    second = push(far.add, 2)
    assert second not in lingering.calls()
    assert await asyncio.gather(first, second) == [2, 3]


async def test_nothing_is_logged_of_all_this(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hybridrt"):
        await test_one_that_ends_its_process_fails_alone()
        await test_the_first_that_raises_fails_alone()
    assert not caplog.text
