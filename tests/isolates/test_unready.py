"""Calls that are abandoned while their isolate is made ready: the next ones find one that is."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.isolates.isolate_pool import close_isolates, processes
from tests.loop.support import Timers, eventually

from ..loop.conftest import timers
from . import far
from .support import FarGate

__all__ = ["timers"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_at_a_time")]
FORCED: Any = {"pure": True, "where": "isolate", "isolation": "process"}


@pytest.fixture
def gated(far_gate: FarGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make a module whose import waits at the gate in isolates, none of which is there yet."""
    close_isolates()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gated.py").write_text(
        "from hybridrt.isolates.child import inside\n"
        "from tests.isolates.far import hold\n"
        f"if inside(): hold({far_gate._entered!r}, {far_gate._release!r})\n"
        "def work(): return 1\n"
    )
    yield importlib.import_module("gated")
    del sys.modules["gated"]
    close_isolates()


async def abandon(call: asyncio.Future[Any], far_gate: FarGate) -> None:
    """Cancel a call at the gate that may be abandoned."""
    await far_gate.entered()
    call.cancel()
    await asyncio.wait({call})


async def test_after_a_call_that_was_abandoned_while_its_module_was_imported_isolates_are_made_ready(
    gated: Any, far_gate: FarGate, runtime: Runtime
) -> None:
    fn = offload(gated.work, abandon_on_cancel=True, **FORCED)
    await abandon(asyncio.ensure_future(fn()), far_gate)
    assert fn._router is not None
    assert fn._router.warming
    await far_gate.entered()
    await far_gate.release()
    assert await fn() == 1
    await eventually(lambda: not processes.limiter.active)


async def test_after_a_call_that_was_abandoned_in_its_function_none_are_made_ready(
    far_gate: FarGate, runtime: Runtime
) -> None:
    fn = offload(far.hold, abandon_on_cancel=True, **FORCED)
    await abandon(asyncio.ensure_future(fn(far_gate._entered, far_gate._release)), far_gate)
    assert fn._router is not None
    assert not fn._router.warming
    await eventually(lambda: not processes.limiter.active)


async def test_what_an_isolate_imports_counts_for_no_timeout_of_a_call_that_warms_it(
    gated: Any, far_gate: FarGate, runtime: Runtime, timers: Timers
) -> None:
    fn = offload(gated.work, timeout=5.0, **FORCED)
    warming = asyncio.ensure_future(runtime.warm(fn))
    await far_gate.entered()
    assert not timers.armed
    await far_gate.release()
    await warming
