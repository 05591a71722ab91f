"""A call that computes in an isolate has no permit to compute here."""

from __future__ import annotations

import asyncio

import pytest

from hybridrt import offload
from hybridrt.isolates.isolate_pool import processes, used_by
from hybridrt.isolates.reference import refer
from hybridrt.isolates.remote_invocation import RemoteInvocation
from hybridrt.pool.permits import NONE
from hybridrt.pool.state import Worker
from hybridrt.pool.worker import current_worker
from hybridrt.runtime import Runtime
from tests.pool.support import until

from . import far
from .support import FarGate

pytestmark = pytest.mark.usefixtures("kept")


async def test_a_permit_for_large_arguments_goes_back_once_they_are_sent(
    monkeypatch: pytest.MonkeyPatch, runtime: Runtime, far_gate: FarGate
) -> None:
    """The sampler would take it back, some steps later; so it does not look here."""
    monkeypatch.setattr("hybridrt.governor.governor.sample_pool", lambda *_: False)
    used_by(runtime.executor._pool)
    carrying: list[Worker] = []
    held_before = []

    @offload
    def carry(*args: str) -> object:
        worker = current_worker()
        assert worker is not None
        carrying.append(worker)
        held_before.append(worker.permit != NONE)  # as a call of an unknown function
        return RemoteInvocation(refer(far.hold), processes)(*args)

    call = asyncio.ensure_future(carry(far_gate._entered, far_gate._release))
    await far_gate.entered()
    await asyncio.to_thread(until, lambda: not any(worker.permit for worker in carrying), "it is given back")
    await far_gate.release()
    await call
    assert held_before == [True]
