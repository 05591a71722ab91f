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


@pytest.mark.parametrize(
    ("part", "others", "runnable", "taken"),
    [
        pytest.param(0.5, 0.0, False, 15, id="they share it"),
        pytest.param(0.7, 0.0, False, 0, id="together they compute for longer than one could"),
        pytest.param(0.5, 0.5, False, 0, id="another had it, as a busy loop"),
        pytest.param(0.5, 0.0, True, 0, id="they only lack a core"),
    ],
)
def test_calls_of_one_function_that_share_the_gil_do_not_leave_it_to_others(
    stage: Stage, part: float, others: float, runnable: bool, taken: int
) -> None:
    """Two run at once, because the function left the GIL before."""
    fn, governor, spent = stage.learn(Kind.FREE), stage.budget.governor, 0.0
    first, second = stage.push_many(2, fn)
    for call in (first, second):
        stage.probe_of(call).runnable = runnable
    for _ in range(16):
        governor.step(stage.clock.now_ns, int(spent * 1e9), prompt=False, delay_ns=1_000_000)
        for computing, share in (
            ((first,), 1 - part),
            ((first, second), 2 * part - 1),
            ((second,), 1 - part),
        ):
            stage.wait(first, second)
            stage.compute(*computing)
            stage.clock.advance(share * 20 * MS)
        spent += (2 * part + others) * 20 * MS
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.taken, gil.releases) == (taken, not taken)
