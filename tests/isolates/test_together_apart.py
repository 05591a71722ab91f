"""Callers that have called apart come together again: a courier lingers on while another one is out."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import pytest

from hybridrt.loop import courier, isolated
from hybridrt.loop.isolated import Line

from . import far
from .support import FarGate, crowd, run_isolated

pytestmark = [
    pytest.mark.usefixtures("kept", "two_at_a_time", "runtime", "steady", "unhurried"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


@pytest.fixture
def without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let couriers linger on for as long as another is out."""
    monkeypatch.setattr(courier, "LINGER", 3600.0)


async def hold_one(far_gate: FarGate) -> tuple[Any, Line]:
    """Return a call that is out, and the line that it went by; another isolate is warm."""
    held = far_gate.push()
    await far_gate.entered()
    await run_isolated(far.add, 1, isolation="process")
    await far_gate.release()
    await held
    line = await crowd(far.hold_zero)
    out = far_gate.push(0, far.hold_zero)
    await far_gate.entered()
    return out, line


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("without_end")
async def test_who_calls_beside_others_goes_with_them_when_they_call_again(
    messages: list[int], far_gate: FarGate
) -> None:
    out, _ = await hold_one(far_gate)

    async def again() -> int:
        await out
        value: int = await far_gate.push(2, far.hold_zero)
        return value

    calling = asyncio.create_task(again())
    late = far_gate.push(1, far.hold_zero)
    await turns(5)
    assert messages == [1]
    await far_gate.release()
    assert (await late, await calling) == (1, 2)
    assert messages == [1, 2]


@pytest.mark.usefixtures("without_end")
async def test_it_sets_out_when_they_have_come_back_and_call_no_more(
    messages: list[int], far_gate: FarGate
) -> None:
    out, _ = await hold_one(far_gate)
    late = far_gate.push(1, far.hold_zero)
    await turns(2)
    await far_gate.release()
    assert (await out, await late) == (0, 1)
    assert messages == [1, 1]


async def test_it_waits_for_a_millisecond_at_most(messages: list[int], far_gate: FarGate) -> None:
    out, _ = await hold_one(far_gate)
    assert await far_gate.push(1, far.hold_zero) == 1
    assert not out.done()
    await far_gate.release()
    assert await out == 0
    assert messages == [1, 1]


@pytest.mark.usefixtures("without_end")
async def test_one_that_is_full_sets_out(messages: list[int], far_gate: FarGate) -> None:
    out, line = await hold_one(far_gate)
    line.together = 3
    late = [far_gate.push(1, far.hold_zero)]
    await turns(2)
    late += [far_gate.push(value, far.hold_zero) for value in (2, 3)]
    assert await asyncio.gather(*late) == [1, 2, 3]
    assert messages == [1, 3]
    await far_gate.release()
    assert await out == 0


@pytest.mark.usefixtures("without_end")
async def test_calls_that_take_some_time_go_out_side_by_side(messages: list[int], far_gate: FarGate) -> None:
    out, line = await hold_one(far_gate)
    line._usual_ns = isolated._TINY_NS
    assert await far_gate.push(1, far.hold_zero) == 1
    assert messages == [1, 1]
    await far_gate.release()
    assert await out == 0


@pytest.mark.usefixtures("without_end")
async def test_one_that_was_handed_over_meanwhile_does_not_set_out_again(
    messages: list[int], far_gate: FarGate
) -> None:
    out, line = await hold_one(far_gate)
    late = far_gate.push(1, far.hold_zero)
    await turns(2)
    lingering = line.lingers
    assert lingering is not None
    lingering.hand_over()
    assert await late == 1
    await far_gate.release()
    assert await out == 0
    await turns(2)
    assert line.lingers is None
    assert messages == [1]
