"""Loop delay: the lateness of beats, weighted by the time each of them stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.loop_delay import DelayWindow

PERIOD = 0.010


def window_of(*lates: float, window: float = 60.0) -> DelayWindow:
    """Return a window with a beat every period, each so late."""
    delays, now = DelayWindow(window), 0.0
    for late in lates:
        now += PERIOD + late
        delays.record(now, late, PERIOD)
    return delays


def test_without_a_beat_there_is_no_delay() -> None:
    assert DelayWindow().summary() is None


def test_punctual_beats_have_no_delay() -> None:
    summary = window_of(*[0.0] * 100).summary()
    assert summary is not None
    assert (summary.p50, summary.p99, summary.max) == (0.0, 0.0, 0.0)
    assert summary.window == pytest.approx(1.0)


def test_one_stall_of_a_second_counts_for_a_second_not_for_one_beat() -> None:
    """Among a hundred punctual beats, a second together, it is half of the time."""
    summary = window_of(*[0.0] * 100, 1.0).summary()
    assert summary is not None
    assert (summary.p50, summary.p99, summary.max) == (1.0, 1.0, 1.0)


def test_a_stall_of_less_than_a_hundredth_of_the_time_is_not_the_99th_percentile() -> None:
    summary = window_of(*[0.0] * 1000, 0.05).summary()
    assert summary is not None
    assert (summary.p50, summary.p99, summary.max) == (0.0, 0.0, 0.05)


def test_beats_older_than_the_window_do_not_count() -> None:
    summary = window_of(5.0, *[0.0] * 200, window=1.0).summary()
    assert summary is not None
    assert summary.max == 0.0
    assert summary.window == pytest.approx(1.0, abs=2 * PERIOD)


def test_the_number_of_beats_kept_is_bounded() -> None:
    delays = DelayWindow(window=1e9, size=10)
    for number in range(1000):
        delays.record(number, 1.0, 0.0)
    summary = delays.summary()
    assert summary is not None
    assert summary.window == 10.0


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50))
def test_the_percentiles_are_ordered_and_were_seen(lates: list[float]) -> None:
    summary = window_of(*lates, window=1e9).summary()
    assert summary is not None
    assert summary.p50 <= summary.p99 <= summary.max == max(lates)
    assert {summary.p50, summary.p99} <= set(lates)
