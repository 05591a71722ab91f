"""The breaker and the bucket as pure functions of time."""

from __future__ import annotations

import pytest
from gateway.breaker import CLOSED, Breaker, Circuit, admit, began, failed, may_admit, succeeded
from gateway.buckets import Bucket, take
from hypothesis import given
from hypothesis import strategies as st


def after(failures: int, now: float = 0.0) -> Breaker:
    """Return a breaker after some failures in a row."""
    breaker = CLOSED
    for _ in range(failures):
        breaker = failed(breaker, now, failures_max=3, open_seconds=10.0)
    return breaker


@pytest.mark.parametrize(("failures", "state"), [(0, "CLOSED"), (2, "CLOSED"), (3, "OPEN"), (9, "OPEN")])
def test_it_opens_after_failures_in_a_row(failures: int, state: str) -> None:
    assert after(failures).state is Circuit[state]


def test_a_success_in_between_starts_the_count_anew() -> None:
    assert succeeded() == CLOSED
    assert failed(succeeded(), 0.0, failures_max=2, open_seconds=1.0).state is Circuit.CLOSED


def test_open_it_refuses_for_its_time_and_then_lets_one_try() -> None:
    opened = after(3, now=100.0)
    assert not may_admit(opened, 109.9)
    assert may_admit(opened, 110.0)
    trial = admit(opened, 110.0, open_seconds=10.0)
    assert trial.state is Circuit.HALF_OPEN
    assert not may_admit(trial, 119.9)
    assert may_admit(trial, 120.0)  # the first trial never told how it ended
    assert failed(trial, 111.0, failures_max=3, open_seconds=10.0).state is Circuit.OPEN


def test_an_answer_that_begins_ends_a_trial_and_forgets_no_failure() -> None:
    trial = began(admit(after(3), 10.0, open_seconds=10.0))
    assert trial.state is Circuit.CLOSED
    assert failed(trial, 11.0, failures_max=3, open_seconds=10.0).state is Circuit.OPEN
    assert (began(after(2)), began(after(3))) == (after(2), after(3))


def test_a_closed_one_admits_without_a_change() -> None:
    assert admit(after(2), 5.0, open_seconds=10.0) == after(2)


@given(
    rate=st.floats(0.1, 100),
    burst=st.floats(1, 50),
    steps=st.lists(st.floats(0, 5), min_size=1, max_size=200),
)
def test_in_any_time_no_more_are_taken_than_burst_and_rate_allow(
    rate: float, burst: float, steps: list[float]
) -> None:
    bucket, now, taken = Bucket(burst, 0.0), 0.0, 0
    for step in steps:
        now += step
        bucket, wait = take(bucket, now, rate=rate, burst=burst)
        taken += not wait
    assert taken <= burst + now * rate + 1e-6


@given(rate=st.floats(0.1, 100), burst=st.floats(1, 50), tokens=st.floats(0, 0.99))
def test_after_the_wait_that_it_names_a_token_is_there(rate: float, burst: float, tokens: float) -> None:
    bucket, wait = take(Bucket(tokens, 0.0), 0.0, rate=rate, burst=burst)
    assert wait > 0
    assert take(bucket, wait * (1 + 1e-9) + 1e-9, rate=rate, burst=burst)[1] == 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    assert take(Bucket(0.0, 100.0), 50.0, rate=1.0, burst=5.0)[1] == 1.0
