"""The lateness of a loop is shared out among the functions that computed meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.delay_shares import DelayShares

times = st.floats(0.0, 10.0)


def test_a_loop_that_was_never_late_blames_nobody() -> None:
    assert DelayShares().shares() == {}


def test_functions_that_had_the_gil_for_longer_than_the_lateness_bear_it_by_their_parts() -> None:
    shares = DelayShares()
    shares.record(0.0, 0.1, {"long": 0.3, "short": 0.1})
    assert shares.shares() == pytest.approx({"long": 0.75, "short": 0.25})


def test_what_no_function_has_computed_is_no_function_s() -> None:
    shares = DelayShares()
    shares.record(0.0, 0.1, {"some": 0.02})
    assert shares.shares() == pytest.approx({"some": 0.2})


def test_what_was_long_ago_counts_less() -> None:
    shares = DelayShares()
    shares.record(0.0, 0.1, {"before": 0.1})
    shares.record(61.0, 0.1, {"now": 0.1})
    assert shares.shares() == pytest.approx({"before": 1 / 3, "now": 2 / 3})


def test_what_was_before_a_long_quiet_counts_next_to_nothing() -> None:
    shares = DelayShares()
    shares.record(0.0, 0.1, {"before": 0.1})
    shares.record(3 * 60.0, 0.1, {"now": 0.1})
    assert shares.shares() == pytest.approx({"before": 1 / 9, "now": 8 / 9})
    shares.record(1e9, 0.1, {"now": 0.1})
    assert shares.shares() == {"before": 0.0, "now": 1.0}


def test_only_so_many_functions_are_told_apart() -> None:
    shares = DelayShares()
    for number in range(2_000):
        shares.record(0.0, 0.01, {f"f{number}": 0.01, "most": 0.01})
    assert "most" in shares.shares()
    assert len(shares.shares()) <= 513


@given(st.lists(st.tuples(times, times, st.dictionaries(st.sampled_from("abc"), times)), max_size=20))
def test_no_more_than_all_of_it_is_shared_out(beats: list[tuple[float, float, dict[str, float]]]) -> None:
    shares = DelayShares()
    for at, late, computed in beats:
        shares.record(at, max(late, 0.001), computed)
    assert sum(shares.shares().values()) <= 1.0 + 1e-9
