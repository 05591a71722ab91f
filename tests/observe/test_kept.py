"""For how long calls had no core: the arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.kept import Kept, stolen_share

from .support import MS


@pytest.mark.parametrize(
    ("kept", "wall", "cpu", "lost"),
    [
        pytest.param(Kept(), 10 * MS, 2 * MS, 0, id="nothing is known"),
        pytest.param(Kept(stolen=0.5), 10 * MS, 4 * MS, 4 * MS, id="half of the time is stolen"),
        pytest.param(Kept(stolen=0.5), 10 * MS, 8 * MS, 2 * MS, id="no more than it did not compute"),
        pytest.param(Kept(stolen=0.5), 100 * MS, 0, 0, id="nothing is stolen from a sleeper"),
        pytest.param(Kept(throttled=0.3), 10 * MS, 2 * MS, 3 * MS, id="the quota stopped it"),
        pytest.param(Kept(stolen=0.5, throttled=0.3), 10 * MS, 2 * MS, 5 * MS, id="both"),
    ],
)
def test_a_call_had_no_core_for_its_share(kept: Kept, wall: int, cpu: int, lost: int) -> None:
    assert kept.of(wall, cpu) == pytest.approx(lost, abs=1)


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.integers(0, 10**12), st.integers(0, 10**12))
def test_what_a_call_lost_is_never_negative_nor_more_than_it_did_not_compute(
    stolen: float, throttled: float, wall: int, cpu: int
) -> None:
    assert 0 <= Kept(stolen=stolen, throttled=throttled).of(wall, cpu) <= max(0, wall - cpu)


def test_the_stolen_share_is_of_the_time_that_threads_asked_for() -> None:
    assert stolen_share((100, 10), (160, 30)) == pytest.approx(0.25)
    assert stolen_share((100, 10), (160, 10)) == 0.0
    assert stolen_share((100, 10), (100, 10)) == 0.0
    assert stolen_share((100, 10), (90, 0)) == 0.0
