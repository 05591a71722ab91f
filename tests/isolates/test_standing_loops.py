"""Loops that stand still or are closed, and what else keeps a loop from carrying calls itself."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import pytest

from hybridrt.loop import courier, isolated, replies
from hybridrt.loop.replies import replies_of
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.values import Isolation
from tests.pool.support import until

from . import far
from .support import FarGate, carried_by_loop, lighten, push

pytestmark = [
    pytest.mark.usefixtures("kept", "runtime", "steady"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


async def test_a_thread_takes_over_when_the_loop_stands_still(isolation: Isolation) -> None:
    await lighten(far.add, isolation)
    call = push(far.add, 1, isolation=isolation)
    (errand,) = call.pool.crew.errands
    until(lambda: not call.pool.crew.errands, "the governor hands the call over")
    assert errand.call is None
    assert not call.done()
    assert await call == 2


def test_a_loop_that_is_closed_with_a_call_under_way_leaves_nothing_behind(
    far_gate: FarGate, isolation: Isolation
) -> None:
    async def leave() -> Any:
        await lighten(far.hold, isolation)
        return far_gate.push(isolation=isolation)

    loop = asyncio.new_event_loop()
    call = loop.run_until_complete(leave())
    loop.close()
    assert carried_by_loop(call)
    asyncio.run(far_gate.entered())
    asyncio.run(far_gate.release())
    until(lambda: not call.pool.crew.errands, "a thread brings the call back")
    until(lambda: call.line.crew.gate.active == 0, "its place is free")
    assert not call.pool.is_active()


async def test_shutting_the_executor_down_on_the_loop_itself_does_not_wait_for_the_loop() -> None:
    from hybridrt import AdaptiveThreadPoolExecutor
    from hybridrt.loop.port import Port

    port = Port(asyncio.get_running_loop(), AdaptiveThreadPoolExecutor())
    await lighten(far.add)
    first = isolated.isolated_call(port, far.add, (1,), {}, "process")
    first.go()
    await first
    line = first.line  # type: ignore[attr-defined]
    line._brief, line.replies = 1 << 60, replies_of(port.loop)
    second = isolated.isolated_call(port, far.add, (2,), {}, "process")
    second.go()
    assert carried_by_loop(second)
    port.executor.shutdown()
    assert await second == 3


async def test_after_the_governor_has_failed_threads_carry_all_calls(far_gate: FarGate) -> None:
    await lighten(far.hold)
    held = far_gate.push("done")
    assert carried_by_loop(held)
    governor = held.pool.governor
    governor._fail(RuntimeError("out of order"))
    try:
        await far_gate.entered()
        second = push(far.add, 1)
        assert not carried_by_loop(second)
        await far_gate.release()
        assert await asyncio.gather(held, second) == ["done", 2]
    finally:
        governor.error, held.pool.interpreter.permits.lifted = None, False


async def test_without_a_thread_to_be_had_the_loop_sees_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    await lighten(far.make_bytes)
    monkeypatch.setattr(courier, "_in_thread", lambda work: False)
    call = push(far.make_bytes, LIGHT + 1)
    (errand,) = call.pool.crew.errands
    errand.hand_over()
    assert carried_by_loop(call)
    assert await call == bytes(LIGHT + 1)


async def test_a_loop_that_watches_no_descriptors_leaves_all_calls_to_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(replies, "_replies", {})
    monkeypatch.setattr(replies.select, "epoll", refuse)
    assert replies_of(asyncio.get_running_loop()) is None
    await lighten(far.add)
    call = push(far.add, 1)
    assert not carried_by_loop(call)
    assert await call == 2
