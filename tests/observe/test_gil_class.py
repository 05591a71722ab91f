"""The GIL class of a function, learned from a sleeper that wakes beside its calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.gil_class import GilLedger, evidence_of
from hybridrt.values import GilClass

US = 1_000
MS = 1_000_000
TIGHT = 100 * US
WIDE = 5 * MS


def ledger(*, free: int = 0, delays: tuple[int, ...] = (), interval: int = TIGHT) -> GilLedger:
    """Return what was learned of free wake-ups and of waits for the GIL, in nanoseconds."""
    found = GilLedger()
    for _ in range(free):
        found.saw_free()
    for delay in delays:
        found.saw_taken(delay, interval)
    return found


@pytest.mark.parametrize(
    ("found", "name"),
    [
        pytest.param(ledger(), GilClass.UNKNOWN, id="nothing seen"),
        pytest.param(ledger(free=3), GilClass.UNKNOWN, id="too little seen"),
        pytest.param(ledger(free=4), GilClass.RELEASES, id="always free"),
        pytest.param(ledger(free=9, delays=(200 * US,) * 3), GilClass.RELEASES, id="the loop ran, too"),
        pytest.param(ledger(delays=(200 * US,) * 4), GilClass.COOPERATES, id="came within two intervals"),
        pytest.param(ledger(delays=(14 * MS,) * 4), GilClass.HOLDS, id="came when the call was over"),
        pytest.param(ledger(delays=(9 * MS, *(200 * US,) * 2, 8 * MS)), GilClass.HOLDS, id="partly C"),
        pytest.param(ledger(delays=(6 * MS,) * 9, interval=WIDE), GilClass.UNKNOWN, id="long interval"),
        pytest.param(ledger(delays=(60 * MS,) * 9, interval=WIDE), GilClass.HOLDS, id="longer yet"),
    ],
)  # fmt: skip
def test_the_class_follows_from_what_the_sleeper_met(found: GilLedger, name: GilClass) -> None:
    assert found.name(waits=False) is name


@pytest.mark.parametrize(
    ("found", "may_hold"),
    [
        pytest.param(ledger(), True, id="nothing seen"),
        pytest.param(ledger(delays=(200 * US,) * 3), True, id="too little seen"),
        pytest.param(ledger(delays=(200 * US,) * 4), False, id="cooperates"),
        pytest.param(ledger(delays=(14 * MS,) * 4), True, id="holds"),
        pytest.param(ledger(delays=(6 * MS,) * 9, interval=WIDE), True, id="long interval"),
    ],
)  # fmt: skip
def test_a_function_may_hold_the_gil_until_it_is_known_not_to(found: GilLedger, *, may_hold: bool) -> None:
    assert found.may_hold is may_hold


def test_two_free_wake_ups_may_be_mistakes_and_three_are_none() -> None:
    assert [ledger(free=free, delays=(200 * US,) * 7).may_release for free in (2, 3)] == [False, True]


def test_a_function_that_mostly_blocks_waits_whatever_it_does_with_the_gil() -> None:
    assert ledger(free=20).name(waits=True) is GilClass.WAITS


def test_a_function_that_changes_is_learned_anew() -> None:
    found = ledger(free=1000)
    for _ in range(60):
        found.saw_taken(14 * MS, TIGHT)
    assert found.name(waits=False) is GilClass.HOLDS
    for _ in range(120):
        found.saw_free()
    assert found.name(waits=False) is GilClass.RELEASES


def test_a_function_that_releases_keeps_its_class_until_most_wake_ups_meet_the_gil_taken() -> None:
    found = ledger(delays=(TIGHT,) * 10)
    for _ in range(18):
        found.saw_free()
    assert not found.releases  # 18 of 28
    found.saw_free()
    assert found.releases
    for _ in range(18):  # 19 of 47
        assert found.releases
        found.saw_taken(TIGHT, TIGHT)
    found.saw_taken(TIGHT, TIGHT)
    assert not found.releases


def test_a_function_whose_wake_ups_have_faded_is_not_said_to_release_the_gil() -> None:
    """Looks that saw its calls blocked have taken their place."""
    found = ledger(free=8)
    for _ in range(200):
        found.saw_waiting()
    assert (found.share, found.releases) == (None, False)
    assert found.name(waits=False) is GilClass.UNKNOWN


def test_the_share_of_the_gil_is_known_after_four_wake_ups() -> None:
    assert ledger(free=3).share is None
    assert ledger(free=3, delays=(TIGHT,)).share == pytest.approx(0.25)


def test_the_evidence_is_in_the_public_view() -> None:
    found = ledger(free=2, delays=(200 * US, 9 * MS))
    found.saw_waiting()
    counts = (found.waiting, found.free, found.taken, found.yielded, found.held)
    view = evidence_of(*counts, found.longest_hold_ns)
    assert (view.waiting, view.free, view.taken, view.yielded, view.held) == (1, 2, 2, 1, 1)
    assert view.longest_hold == pytest.approx(0.009)


@given(st.lists(st.one_of(st.none(), st.integers(0, 100 * MS)), max_size=300))
def test_the_counts_stay_bounded_and_add_up(seen: list[int | None]) -> None:
    found = GilLedger()
    for delay in seen:
        if delay is None:
            found.saw_free()
        else:
            found.saw_taken(delay, TIGHT)
    assert found.free + found.taken + found.waiting <= 64
    assert found.held + found.yielded <= found.taken + 1  # each is halved by itself
