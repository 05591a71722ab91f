"""Time that the host or a quota took from a call is not taken for a wait of its own."""

from __future__ import annotations

import pytest

from hybridrt.governor.kept import KeptReader
from hybridrt.observe.kept import Kept

from .support import Stage, named


def test_the_shares_are_those_between_two_readings() -> None:
    machine = iter([(100, 10), (160, 30), None, (200, 40)])
    throttled = iter([0, 300_000_000, 300_000_000, 900_000_000])
    reader = KeptReader(lambda: next(machine), lambda: next(throttled))
    second = 1_000_000_000
    assert reader.read(1 * second, 2) == Kept()
    assert reader.read(2 * second, 2) == Kept(stolen=0.25, throttled=pytest.approx(0.15))
    assert reader.read(3 * second, 2) == Kept()
    assert reader.read(4 * second, 2) == Kept(throttled=pytest.approx(0.3))


@pytest.mark.parametrize(
    ("kept", "waits"),
    [(Kept(), 30_000_000), (Kept(stolen=0.75), 0), (Kept(throttled=0.5), 10_000_000)],
)
def test_what_is_left_of_a_calls_time_is_its_wait(kept: Kept, waits: int) -> None:
    """It computes for 10 of 40 ms, and blocks once; no wait for the GIL is as long as that."""
    stage = Stage()
    stage.budget.gil_load.saw_interval(0, 1)
    stage.budget.kept = kept
    fn = named("computes")
    profile = stage.pool.profiles.of(fn)
    profile.turn_at = 1 << 60
    call = stage.push(fn)
    call.blocks = 1
    stage.compute(call)
    stage.clock.advance(0.01)
    stage.wait(call)
    stage.clock.advance(0.03)
    stage.end(call)
    _, cpu, wait, gil = profile.detailed
    assert cpu == 10_000_000
    assert max(0, wait) + gil == pytest.approx(waits, abs=200_000)
