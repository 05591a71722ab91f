"""Calls that wait in vain for an isolate: one gets an isolate more, and some run elsewhere."""

from __future__ import annotations

import pytest

from hybridrt import Runtime
from hybridrt.errors import IsolateStartError
from hybridrt.loop.binding import current_binding
from hybridrt.loop.isolated_call import isolated_call
from hybridrt.pool.limiters import WatchedLimiter

from . import far
from .support import FarGate, push, run_isolated


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for half a second."""
    monkeypatch.setattr("hybridrt.pool.rebalance.OVERDRAFT_NS", 1_000_000)


async def test_a_call_that_can_run_elsewhere_does_not_wait_for_long(
    runtime: Runtime, far_gate: FarGate, one_at_a_time: WatchedLimiter
) -> None:
    held = far_gate.push(1)
    await far_gate.entered()
    submitted = runtime.statistics().submitted
    with pytest.raises(IsolateStartError, match="no isolate has come free"):
        await push(far.add, 1, spills=True)
    with pytest.raises(IsolateStartError):  # the next one does not even wait
        isolated_call(current_binding(), far.add, (1,), {}, "process", spills=True)
    assert runtime.statistics().submitted == submitted
    await far_gate.release()
    assert await held == 1
    assert await push(far.add, 1, spills=True) == await run_isolated(far.add, 1)


async def test_a_call_that_was_cancelled_as_it_was_sent_away_is_only_cancelled(
    runtime: Runtime, far_gate: FarGate, one_at_a_time: WatchedLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    held = far_gate.push(1)
    await far_gate.entered()
    call = isolated_call(current_binding(), far.add, (1,), {}, "process", spills=True)
    call.state, call.cancel_requested = 4, True  # it was taken out of the line, and then cancelled
    call.refuse(IsolateStartError("no isolate has come free"))
    await far_gate.release()
    await held
    assert call.cancelled()
    assert caplog.text == ""


async def test_a_call_that_cannot_run_elsewhere_gets_one_more_isolate(
    runtime: Runtime, far_gate: FarGate, one_at_a_time: WatchedLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_at_a_time, "most", 2)
    held = far_gate.push(1)
    await far_gate.entered()
    assert await run_isolated(far.add, 1) == await run_isolated(far.add, 1)
    assert runtime.statistics().overdrafts == 2
    assert not held.done()
    await far_gate.release()
    assert await held == 1
    assert (one_at_a_time.active, one_at_a_time.limit) == (0, 1)


async def test_the_start_of_an_isolate_is_no_part_of_what_a_call_usually_takes(runtime: Runtime) -> None:
    call = push(far.add, 1)
    await call
    assert 0 < call.profile.usual_ns <= call.profile.wall_mean_ns
    call.profile.took(call.profile.usual_ns + 8)
    assert call.profile.usual_ns == call.remote_invocation.took_ns + 1
