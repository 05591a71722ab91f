"""What the governor learns about the GIL in the moment in which it wakes up; played by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hybridrt.governor.gil_evidence import GilEvidence
from hybridrt.values import Kind

from .support import MS, Stage


@pytest.mark.parametrize("another", [False, True])
def test_a_call_that_leaves_the_gil_for_a_moment_at_a_time_is_found_as_the_governor_wakes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """It wants the GIL, and sleeps, 40 us later: before it is known who is busy. Where others compute, too,
    that may as well be the end of a stretch that began when one of them got the GIL.
    """
    fn, clock = stage.learn(Kind.LONG), stage.clock
    call = stage.push(fn)
    probe, until_ns, find = stage.probe_of(call), 0, GilEvidence._find_busy

    def wall_ns() -> int:
        clock.now_ns += 100
        if clock.now_ns >= until_ns:
            probe.turn(computes=False)
        return clock.now_ns

    def find_late(*args: Any) -> Any:
        clock.now_ns += 30_000
        return find(*args)

    if another:
        stage.compute(stage.push(stage.learn(Kind.SHORT, "another")))
    monkeypatch.setattr(clock, "wall_ns", wall_ns)
    monkeypatch.setattr(GilEvidence, "_find_busy", find_late)
    for _ in range(12):
        probe.turn(computes=True)
        until_ns = clock.now_ns + 20_000_000 + 40_000
        stage.step(20 * MS, prompt=True)
    gil = stage.pool.profiles.of(fn).gil
    assert gil.free == (0 if another else 11)  # at the first step it is not known yet
    assert gil.taken == 0
