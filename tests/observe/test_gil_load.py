"""How contended the GIL is, by the wake-ups of a sleeper."""

from __future__ import annotations

import pytest

from hybridrt.observe.gil_load import GilLoad

US = 1_000
MS = 1_000_000


def test_nothing_is_known_before_the_first_wake_up() -> None:
    load = GilLoad(5 * MS)
    assert (load.share, load.wait_mean) == (None, None)


def test_the_wait_is_right_from_the_first_wake_up_on() -> None:
    busy, mixed = GilLoad(5 * MS), GilLoad(5 * MS)
    busy.woke(5 * MS, free=False)
    assert (busy.share, busy.wait_mean) == (1.0, 0.005)
    mixed.woke(0, free=True)
    assert (mixed.share, mixed.wait_mean) == (0.0, None)
    for load in (busy, mixed):
        load.woke(5 * MS, free=False)
        assert load.wait_mean == pytest.approx(0.005)


def test_share_and_wait_follow_the_last_twenty_wake_ups_or_so() -> None:
    load = GilLoad(5 * MS)
    for _ in range(100):
        load.woke(4 * MS, free=False)
    assert (load.share, load.wait_mean) == (pytest.approx(1.0), pytest.approx(0.004, rel=0.01))
    for _ in range(100):
        load.woke(0, free=True)
    assert load.share == pytest.approx(0.0, abs=0.01)
    assert (load.wakes, load.taken) == (200, 100)


def test_the_longest_interval_in_force_since_a_call_began_bounds_its_waits() -> None:
    load = GilLoad(5 * MS)
    load.saw_interval(10 * MS, 100 * US)
    load.saw_interval(20 * MS, 100 * US)
    load.saw_interval(30 * MS, 1 * MS)
    load.saw_interval(40 * MS, 200 * US)
    assert load.longest_wait_since(50 * MS) == 300 * US
    assert load.longest_wait_since(35 * MS) == 1100 * US
    assert load.longest_wait_since(15 * MS) == 1100 * US
    assert load.longest_wait_since(9 * MS) == 5100 * US


def test_where_changes_are_forgotten_the_longest_of_the_others_counts() -> None:
    load = GilLoad(5 * MS)
    for number in range(200):
        load.saw_interval(number * MS, (1 + number % 2) * MS)
    assert load.longest_wait_since(1 * MS) == 2100 * US


def test_a_wait_is_no_longer_than_twice_what_the_sleeper_waits_where_the_gil_is_mostly_free() -> None:
    load = GilLoad(5 * MS)
    for _ in range(100):
        load.woke(0, free=True)
    assert load.wait_since(0) < 100 * US
    for _ in range(100):
        load.woke(20 * MS, free=False)
    assert load.wait_since(0) == 5100 * US
