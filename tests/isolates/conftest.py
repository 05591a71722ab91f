"""Fixtures of the tests of isolates."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from hybridrt import Runtime
from hybridrt.isolates import isolate_pool
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.values import Isolation
from tests.pool.support import until

from .support import FarGate

LEAVING_SECONDS = 15.0
"""How long a process that is on its way out may take; only a failing test waits for so long."""


@pytest.fixture(params=["process", "interpreter"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """Name each kind of isolate that there is."""
    if request.param == "interpreter" and sys.version_info < (3, 14):
        pytest.skip("sub-interpreters need Python 3.14")
    return cast(Isolation, request.param)


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    """Open a runtime on the test's loop."""
    async with Runtime() as runtime:
        yield runtime


@pytest.fixture
def far_gate(tmp_path: Path) -> FarGate:
    """Make a gate for one call."""
    return FarGate(tmp_path)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedLimiter]:
    """Let one isolate of each kind do all calls, whatever the host would allow."""
    monkeypatch.setattr(isolate_pool.shared, "host_seen", [])
    gates = [each.limiter for each in isolate_pool._isolate_pools]
    limits = [(gate.limit, gate.most) for gate in gates]
    for gate in gates:
        gate.limit = gate.most = 1
    yield isolate_pool.processes.limiter
    for gate, before in zip(gates, limits, strict=True):
        assert (gate.active, len(gate.waiting)) == (0, 0)
        gate.limit, gate.most = before


@pytest.fixture
def two_at_a_time(one_at_a_time: WatchedLimiter) -> None:
    """Let two processes do all calls."""
    one_at_a_time.limit = 2


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    """Fail a module that leaves a process or an interpreter behind."""
    yield
    isolate_pool.close_isolates()
    left = psutil.wait_procs(psutil.Process().children(recursive=True), LEAVING_SECONDS)[1]
    assert not left, f"processes outlived their tests: {left}"
    assert interpreters() == 1


@pytest.fixture(scope="module")
def kept(nothing_left: None) -> Iterator[None]:
    """Let one process and two sub-interpreters serve all tests of a module, instead of some for each.

    Two, because calls of a test may be in two at once, and the thread of one that it begins outlives it.

    The thread that sees to idle ones would leave if it looked while all are lent, and a test would begin
    another one. So it has looked before the first test, and looks again after the last.
    """
    user: Any = type("User", (), {})()
    isolate_pool._users.add(user)
    with pytest.MonkeyPatch.context() as patch:
        for each in isolate_pool._isolate_pools:
            patch.setattr(each, "_idle_timeout", 3600.0)
            for isolate in [each.lease() for _ in range(1 + (each is isolate_pool.interpreters))]:
                each.give_back(isolate)
            until(lambda each=each: each._changed._waiters, "that thread has looked")
        yield
    isolate_pool._users.discard(user)


def interpreters() -> int:
    """Return how many interpreters this process has."""
    if sys.version_info < (3, 14):
        return 1
    from concurrent import interpreters

    return len(interpreters.list_all())
