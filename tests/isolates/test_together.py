"""Several light calls in one message: which go together, and what if their loop stands still."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import pytest

from hybridrt import Runtime
from hybridrt.loop import courier, isolated
from hybridrt.loop.port import current_port
from hybridrt.loop.replies import replies_of
from hybridrt.pool.gates import Gate
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.values import Isolation
from tests.pool.support import until

from . import far
from .support import FarGate, carried_by_loop, crowd, push

pytestmark = [
    pytest.mark.usefixtures("kept", "one_at_a_time", "runtime", "steady", "unhurried"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


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


async def test_calls_that_wait_at_the_gate_go_together(messages: list[int]) -> None:
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
    limited = isolated.isolated_call(current_port(), far.echo, (3,), {}, "process")
    limited.gates = (Gate(1, "limit"), *limited.gates)
    limited.go()
    assert limited not in line.lingers.calls()  # type: ignore[union-attr]
    assert await asyncio.gather(first, other, limited) == [1, 2, 3]
    assert max(messages) == 1


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


async def test_calls_go_together_as_long_as_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_TOGETHER_NS", 400_000)
    line = await crowd(far.echo)
    line._usual_ns = 0
    line.came_again(100_000)
    assert line.together == 3
    line.came_again(400_000)
    assert line.together == 1
    for _ in range(30):
        line.came_again(1000)
    assert line.together == isolated._TOGETHER


async def test_a_worker_leaves_the_light_calls_behind_its_own_to_the_loop(
    messages: list[int], far_gate: FarGate
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
    messages: list[int], far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
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


# ---------------------------------------------------------------------- loops that stand still


@pytest.mark.usefixtures("hurried")
async def test_a_loop_that_stands_still_before_it_sends_them_loses_none(isolation: Isolation) -> None:
    line = await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(3)]
    until(lambda: not calls[0].pool.is_active(), "threads have run them")
    assert not any(call.done() for call in calls)
    assert await asyncio.gather(*calls) == [1, 2, 3]
    await asyncio.sleep(0)
    assert line.lingers is None


@pytest.mark.usefixtures("hurried")
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


@pytest.mark.usefixtures("hurried")
def test_a_loop_that_is_closed_with_calls_that_linger_leaves_nothing_behind(isolation: Isolation) -> None:
    async def leave() -> Any:
        await crowd(far.add, isolation)
        return [push(far.add, number, isolation=isolation) for number in range(3)]

    loop = asyncio.new_event_loop()
    calls = loop.run_until_complete(leave())
    loop.close()
    until(lambda: not calls[0].pool.is_active(), "threads run them")
    until(lambda: calls[0].line.crew.gate.active == 0, "their place is free")


@pytest.mark.usefixtures("hurried")
async def test_many_calls_of_a_loop_that_stands_still_keep_no_place_from_others() -> None:
    line = await crowd(far.echo)
    calls = [push(far.echo, number) for number in range(60)]
    handed_over = list[object]()
    hand_over = courier.Courier.hand_over

    def note(self: courier.Courier) -> None:
        handed_over.append(self)
        hand_over(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(courier.Courier, "hand_over", note)
        until(lambda: not calls[0].pool.is_active(), "threads have run them")
    assert line.replies is not None
    assert line.replies.late
    assert len(set(handed_over)) == 1
    assert await asyncio.gather(*calls) == list(range(60))
    line.replies = replies_of(asyncio.get_running_loop())
    assert line.replies is not None
    await asyncio.sleep(0)
    assert not line.replies.late


def test_pools_that_do_not_measure_leave_all_calls_to_threads(
    messages: list[int], monkeypatch: pytest.MonkeyPatch, far_gate: FarGate
) -> None:
    async def main() -> None:
        async with Runtime():
            await crowd(far.echo)
            held = far_gate.push("held")
            await far_gate.entered()
            calls = [push(far.echo, number) for number in range(4)]
            await far_gate.release()
            assert await asyncio.gather(held, *calls) == ["held", 0, 1, 2, 3]

    monkeypatch.setenv("HYBRIDRT_MEASURE", "0")
    asyncio.run(main())
    assert not messages


async def test_a_call_made_while_a_thread_takes_over_goes_by_itself() -> None:
    line = await crowd(far.add)
    first = push(far.add, 1)
    lingering = line.lingers
    assert lingering is not None
    lingering.hand_over()
    until(lambda: not lingering.open, "the thread has closed it")
    second = push(far.add, 2)
    assert second not in lingering.calls()
    assert await asyncio.gather(first, second) == [2, 3]
