"""Couriers that go on: with another function, with a call that was sent back, seen late, without threads."""

from __future__ import annotations

import asyncio
import select

import pytest

from hybridrt import WorkerLostError
from hybridrt.loop import courier
from hybridrt.pool import sampler
from hybridrt.pool.isolates import crew
from hybridrt.pool.sampler import Look, sample_pool
from tests.loop.support import eventually, turns

from . import far
from .support import FarGate, crowd, push, run_isolated

pytestmark = [
    pytest.mark.usefixtures("one_at_a_time", "runtime", "steady", "unhurried"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


@pytest.mark.race
async def test_one_that_goes_on_with_another_function_departs_for_that_one(messages: list[int]) -> None:
    adds, echoes = await crowd(far.add), await crowd(far.echo)
    adds._crowd = 0  # it sets out at once
    calls = [push(far.add, 1), push(far.echo, 2)]  # the other waits at the gate
    assert await asyncio.gather(*calls) == [2, 2]
    await turns()
    assert (adds.lingers, echoes.lingers) == (None, None)
    del messages[:]
    assert await asyncio.gather(*(push(far.echo, number) for number in range(5))) == [0, 1, 2, 3, 4]
    assert messages == [5]


@pytest.mark.race
async def test_one_that_departs_when_no_thread_is_to_be_had_departs_once(
    messages: list[int], monkeypatch: pytest.MonkeyPatch, two_at_a_time: None
) -> None:
    await crowd(far.count_calls)
    del messages[:]
    calls = [push(far.count_calls) for _ in range(2)]
    (errand,) = calls[0].pool.crew.errands
    with monkeypatch.context() as patch:
        patch.setattr(courier, "_in_thread", lambda work: False)
        errand.hand_over()
    first, second = await asyncio.gather(*calls)
    await turns()
    assert second == first + 1
    assert messages == [2]
    assert not crew.processes._lent


@pytest.mark.race
async def test_one_that_was_seen_late_and_has_gone_on_is_left_alone(
    messages: list[int], far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await crowd(far.hold_or_end)
    line._crowd = 0
    first = far_gate.push(-1, far.hold_or_end)
    await far_gate.entered()
    calls = [far_gate.push(value, far.hold_or_end) for value in (-1, 1, 2)]  # wait at the gate
    pool, governor = first.pool, first.pool.governor
    now = pool.interpreter.clock.wall_ns() + 300_000_000
    look = Look(
        now=now, slept=False, prompt=False, delay=0, steady=False, process_cpu=0, switch_interval=1, gil=True
    )  # fmt: skip
    with monkeypatch.context() as patch, pool.lock:
        patch.setattr(sampler, "LATE_NS", 250_000_000)
        sample_pool(pool, look, [])
    (late,) = look.late
    await far_gate.release()
    process = await far_gate.entered()
    assert await first == -1
    assert messages[-1] == 3
    governor.hand_over([late])
    await far_gate.release()
    assert await asyncio.gather(*calls) == [-1, 1, 2]
    assert process in {isolate.pid for isolate in crew.processes.isolates()}  # it was not ended


async def test_a_call_that_was_sent_back_takes_nobody_along(
    two_at_a_time: None, far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = far_gate.push()
    await far_gate.entered()
    await run_isolated(far.add, 1)  # so that there are two
    await far_gate.release()
    await held
    line = await crowd(far.hold_or_end)
    crowds = list[list[bool]]()
    set_out = courier.Courier.set_out

    def note(self: courier.Courier) -> None:
        crowds.append([call.alone for call in self.calls()])
        set_out(self)

    monkeypatch.setattr(courier.Courier, "set_out", note)
    line._crowd = 0
    first = far_gate.push(-1, far.hold_or_end)
    await far_gate.entered()
    line._crowd = 1 << 60
    lead, ends = (far_gate.push(value, far.hold_or_end) for value in (1, 0))
    await eventually(lambda: ends.alone)
    others = [far_gate.push(value, far.hold_or_end) for value in (2, 3, 4)]
    await far_gate.release()
    found = await asyncio.gather(first, lead, ends, *others, return_exceptions=True)
    assert isinstance(found.pop(2), WorkerLostError)
    assert found == [-1, 1, 2, 3, 4]
    assert not any(any(crowd) for crowd in crowds if len(crowd) > 1)


@pytest.mark.race
async def test_a_loop_that_was_helped_carries_again_with_its_next_turn(far_gate: FarGate) -> None:
    line = await crowd(far.hold_or_end)
    held = far_gate.push(-1, far.hold_or_end)
    await far_gate.entered()
    (errand,) = held.pool.crew.errands
    errand.hand_over()
    assert line.replies is not None
    assert line.replies.late
    await turns()
    assert not line.replies.late
    await far_gate.release()
    assert await held == -1
