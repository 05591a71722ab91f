"""Whether a running call waits or computes, from two readings of its clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.verdict import Reading, Verdict, is_still, judge

MS = 1_000_000
INTERVAL = 5 * MS
"""CPython's switch interval."""

SLEEPER = Reading(
    interval=4 * MS,
    cpu=0,
    still=2,
    still_for=6 * MS,
    prompt=True,
    schedule_ins=None,
    process_cpu=0,
    switch_interval=INTERVAL,
)
"""A sleeping call in a quiet process, at the second look."""
GIL_WAITER = replace(SLEEPER, prompt=False, schedule_ins=1, process_cpu=4 * MS)
"""A call that waits for the GIL: no CPU, but the kernel wakes it to ask again."""


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        pytest.param(SLEEPER, Verdict.WAITS, id="a sleeper in a quiet process"),
        pytest.param(replace(SLEEPER, still=1), Verdict.UNSURE, id="still at one look only"),
        pytest.param(replace(SLEEPER, cpu=50_000), Verdict.WAITS, id="a wake-up's worth of CPU"),
        pytest.param(replace(SLEEPER, cpu=4 * MS), Verdict.COMPUTES, id="on a core all the time"),
        pytest.param(replace(SLEEPER, cpu=1 * MS), Verdict.COMPUTES, id="on a core a quarter of the time"),
        pytest.param(replace(SLEEPER, cpu=1 * MS - 1), Verdict.UNSURE, id="on a core a little less"),
        pytest.param(GIL_WAITER, Verdict.UNSURE, id="a GIL waiter"),
        pytest.param(
            replace(GIL_WAITER, still=500, still_for=10_000 * MS), Verdict.UNSURE, id="for ten seconds"
        ),
        pytest.param(
            replace(GIL_WAITER, schedule_ins=0, still_for=10 * MS),
            Verdict.WAITS,
            id="never woken for two intervals",
        ),
        pytest.param(
            replace(GIL_WAITER, schedule_ins=0, still_for=10 * MS - 1), Verdict.UNSURE, id="not woken yet"
        ),
        pytest.param(
            replace(GIL_WAITER, schedule_ins=None, still_for=40 * MS),
            Verdict.WAITS,
            id="blind, eight intervals",
        ),
        pytest.param(
            replace(GIL_WAITER, schedule_ins=None, still_for=40 * MS - 1), Verdict.UNSURE, id="blind, less"
        ),
        pytest.param(replace(SLEEPER, cpu=None), Verdict.WAITS, id="no clock, a quiet process"),
        pytest.param(
            replace(SLEEPER, cpu=None, process_cpu=1 * MS - 1),
            Verdict.WAITS,
            id="no clock, an almost quiet process",
        ),
        pytest.param(
            replace(SLEEPER, cpu=None, process_cpu=1 * MS),
            Verdict.COMPUTES,
            id="no clock, a computing process",
        ),
    ],
)
def test_a_reading_has_its_verdict(reading: Reading, verdict: Verdict) -> None:
    assert judge(reading) is verdict


@pytest.mark.parametrize(
    ("interval", "cpu", "still"),
    [
        (1 * MS, 20_000, True),
        (1 * MS, 20_001, False),
        (100 * MS, 50_000, True),
        (100 * MS, 50_001, False),
        (1, 0, True),
    ],
)
def test_a_clock_stands_still_within_two_percent_and_fifty_microseconds(
    interval: int, cpu: int, still: bool
) -> None:
    assert is_still(interval, cpu) is still


_spans = st.integers(0, 10_000 * MS)
readings = st.builds(
    Reading,
    interval=st.integers(1, 1000 * MS),
    cpu=st.none() | _spans,
    still=st.integers(0, 1000),
    still_for=_spans,
    prompt=st.booleans(),
    schedule_ins=st.none() | st.integers(0, 1000),
    process_cpu=_spans,
    switch_interval=st.integers(1000, 1000 * MS),
)


@given(readings)
def test_a_gil_waiter_is_never_called_waiting(reading: Reading) -> None:
    """It is woken at least every switch interval, and the observer was not let in at once either."""
    asked_again = reading.schedule_ins or 0
    waiter = replace(reading, cpu=0, prompt=False, schedule_ins=1 + asked_again)
    assert judge(waiter) is not Verdict.WAITS


@given(readings)
def test_a_sleeper_in_a_quiet_process_is_called_waiting(reading: Reading) -> None:
    sleeper = replace(reading, cpu=0, prompt=True, still=max(2, reading.still))
    assert judge(sleeper) is Verdict.WAITS


@given(readings)
def test_a_call_that_moves_its_clock_is_never_called_waiting(reading: Reading) -> None:
    moved = replace(reading, cpu=reading.interval // 50 + 50_001)
    assert judge(moved) is not Verdict.WAITS


@given(readings)
def test_one_look_at_a_clock_proves_no_waiting(reading: Reading) -> None:
    assert judge(replace(reading, cpu=reading.cpu or 0, still=1)) is not Verdict.WAITS


@given(readings)
def test_the_same_reading_gives_the_same_verdict(reading: Reading) -> None:
    assert judge(reading) is judge(replace(reading))
