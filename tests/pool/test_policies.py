"""Policies in a real executor: one of the user's own, one that fails, and the one that goes by bytes."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Reason, Runtime
from hybridrt.measure.threads import ThreadProbe
from hybridrt.policies import Limits, State, Window


class Sized:
    """Wants eight threads from the first window on."""

    interval = 0.01
    governs = "all"

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.asked = threading.Event()

    def start(self, limits: Limits) -> State:
        return State(workers=1)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        self.windows.append(window)
        self.asked.set()
        return replace(state, workers=8, reason=Reason.POLICY)


class Failing(Sized):
    def decide(self, limits: Limits, state: State, window: Window) -> State:
        self.asked.set()
        raise ArithmeticError("no idea")


def test_a_policy_of_the_users_own_sizes_the_pool() -> None:
    policy = Sized()
    with AdaptiveThreadPoolExecutor(policy=policy) as executor:
        together = threading.Barrier(8)  # passes with eight threads at once only
        for call in [executor.submit(together.wait, 30) for _ in range(8)]:
            call.result()
        told = executor.statistics()
    assert (told.policy, told.target, told.policy_error) == ("Sized", 8, None)
    assert told.decisions[-1].reason is Reason.POLICY


def test_a_policy_that_raises_leaves_the_pool_at_its_size_and_working() -> None:
    policy = Failing()
    with AdaptiveThreadPoolExecutor(policy=policy) as executor:
        gate = threading.Event()
        held = executor.submit(gate.wait, 30)
        queued = [executor.submit(int) for _ in range(3)]
        assert policy.asked.wait(30)
        gate.set()
        assert held.result()
        assert [call.result() for call in queued] == [0, 0, 0]
        told = executor.statistics()
    assert (told.target, told.policy_error) == (1, "ArithmeticError: no idea")
    assert "policy stopped: ArithmeticError: no idea" in str(told)


def test_a_first_state_that_is_none_is_refused_at_construction() -> None:
    class Wrong(Sized):
        def start(self, limits: Limits) -> Any:
            return 4

    with pytest.raises(TypeError, match=r"returns a hybridrt\.policies\.State, got 4"):
        AdaptiveThreadPoolExecutor(policy=Wrong())
    with pytest.raises(ValueError, match="'demand', 'paper', 'throughput', got 'fast'"):
        AdaptiveThreadPoolExecutor(policy="fast")  # type: ignore[arg-type]


async def test_a_runtime_takes_a_policy_too() -> None:
    async with Runtime(policy=Sized()) as runtime:
        assert await runtime.offload(int) == 0
        assert runtime.statistics().policy == "Sized"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bytes by thread are counted on Linux only")
def test_bytes_are_counted_by_thread(tmp_path: Path) -> None:
    probe = ThreadProbe()
    before = probe.io_bytes()
    assert before is not None
    path = tmp_path / "bytes"
    path.write_bytes(bytes(100_000))
    path.read_bytes()
    after = probe.io_bytes()
    assert after is not None
    assert 200_000 <= after - before < 300_000
    probe.close()
    assert probe.io_bytes() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bytes by thread are counted on Linux only")
def test_a_policy_that_asks_for_bytes_gets_their_rate(tmp_path: Path) -> None:
    class Reading(Sized):
        reads_bytes = True

    policy = Reading()
    with AdaptiveThreadPoolExecutor(policy=policy) as executor:
        while not any(window.bytes_rate for window in policy.windows):
            executor.submit((tmp_path / "bytes").write_bytes, os.urandom(100_000)).result()
    assert all(window.bytes_rate is not None for window in policy.windows[1:])


def test_the_pool_that_goes_by_bytes_runs_its_calls() -> None:
    with AdaptiveThreadPoolExecutor(policy="throughput") as executor:
        assert list(executor.map(str, range(100))) == [str(number) for number in range(100)]
        assert executor.statistics().policy == "throughput"
