"""Functions whose calls wait for the GIL in a crowd, which hides what they do by themselves."""

from __future__ import annotations

import itertools

from hybridrt.observe.functions import Profile
from hybridrt.values import Kind

from .support import MS, US, asked


def test_in_a_crowd_for_the_gil_the_wait_of_quieter_times_holds() -> None:
    profile = asked(17, 10 * MS, 5 * MS)
    profile.saw_waiting(first=False)
    for _ in range(64):  # what looks like blocking may all have been waiting for the GIL
        profile.record(100 * MS, 5 * MS, 0, 0, 95 * MS)
    assert (profile.kind, profile.wait_mean_ns) == (Kind.WAITING, 5 * MS)
    for _ in range(16 * 8):  # alone again, it turns out to compute
        profile.record(10 * MS, 10 * MS, 0, 0, 0)
    assert profile.kind is Kind.SHORT


def test_a_function_whose_first_call_was_kept_from_running_is_found_out_in_the_crowd_it_makes() -> None:
    """The first call seemed to wait, so all of them start at once: only now and then one gets through."""
    profile = Profile("key", "module:name")
    profile.saw_waiting()
    profile.record(60 * MS, 5 * MS, 0, 0, 0)
    assert profile.kind is Kind.WAITING
    for call in range(16 * 20):
        wait = 0 if call % 16 == 0 else 95 * MS
        profile.record(wait + 5 * MS, 5 * MS, 0, 0, wait)
    assert profile.kind is Kind.SHORT


def test_short_calls_keep_the_wait_of_quieter_times_though_one_hardly_blocks() -> None:
    profile = asked(17, 900 * US, 300 * US)
    for call in range(16 * 20):
        wait = 0 if call % 16 == 0 else 5 * MS
        profile.record(wait + 300 * US, 300 * US, 0, 0, wait)
    assert (profile.kind, profile.wait_mean_ns) == (Kind.WAITING, 600 * US)


def test_a_call_kept_from_a_core_while_it_was_asked_raises_no_doubt() -> None:
    profile = asked(17, 10 * MS, 5 * MS)
    profile.saw_waiting(first=False)
    for call in range(16 * 12):
        delay = 95 * MS if call % 16 == 0 else 0
        profile.record(100 * MS, 5 * MS, 0, delay, 95 * MS - delay)
    assert (profile.kind, profile.wait_mean_ns) == (Kind.WAITING, 5 * MS)


IN_A_CROWD = (700 * MS, 10 * MS, 0, 0, 490 * MS)
"""A call that a hundred others keep from the GIL, by a bound that is too low."""


def test_a_large_crowd_is_taken_apart_whatever_it_seems_to_wait() -> None:
    profile = asked(17, 30 * MS, 10 * MS)
    assert profile.kind is Kind.WAITING
    for _ in range(16):
        profile.record(*IN_A_CROWD)
    assert profile.kind is Kind.SHORT
    for _ in range(90):  # those that still run
        profile.record(*IN_A_CROWD)
        assert profile.kind is Kind.SHORT
    for _ in range(64):
        profile.record(10 * MS, 10 * MS, 0, 0, 0)
        assert profile.kind is Kind.SHORT


def test_a_small_crowd_is_taken_apart_if_only_what_was_seen_before_it_says_that_its_calls_wait() -> None:
    """The machine stood still in one call, so six of them start at once, and each waits for the GIL."""
    profile = asked(17, 10 * MS, 10 * MS)
    profile.record(5_000 * MS, 10 * MS, 0, 0, 0)
    kinds = set()
    for _ in range(16 * 40):
        wait = 50 * MS if profile.kind is Kind.WAITING else 0
        profile.record(wait + 10 * MS, 10 * MS, 0, 0, wait)
        kinds.add(profile.kind)
    assert Kind.WAITING in kinds
    assert profile.kind is Kind.SHORT


def test_a_crowd_stays_together_if_one_of_its_calls_was_seen_to_wait() -> None:
    profile = asked(17, 30 * MS, 10 * MS)
    profile.saw_waiting()
    for _ in range(16 * 4):
        profile.record(*IN_A_CROWD)
        assert profile.kind is Kind.WAITING


def test_a_crowd_is_taken_apart_although_one_of_its_calls_was_seen_to_wait_long_ago() -> None:
    profile = asked(17, 30 * MS, 10 * MS)
    profile.saw_waiting()
    for _ in range(16 * 17):
        profile.record(*IN_A_CROWD)
    assert profile.kind is Kind.SHORT


def test_short_calls_that_wait_stay_together_however_long_they_wait_for_the_gil_besides() -> None:
    profile = asked(17, 20 * MS, 150 * US)
    for _ in range(16 * 200):
        profile.record(22 * MS, 150 * US, 0, 0, 3 * MS)
        assert profile.kind is Kind.WAITING
    for _ in range(16 * 200):  # so many at once that the bound says nothing
        profile.record(2 * MS, 150 * US, 0, 0, 3 * MS)
        assert profile.kind is Kind.WAITING


def test_short_calls_that_computed_beside_a_busy_loop_wait_once_they_do() -> None:
    profile = asked(17, 300 * US, 300 * US)
    for _ in range(16 * 70):
        profile.record(3_100 * US, 300 * US, 0, 0, 2_800 * US)
    assert profile.kind is Kind.SHORT
    for _ in range(16 * 8):
        profile.record(10 * MS, 300 * US, 0, 0, 2_800 * US)
    assert profile.kind is Kind.WAITING


def taken_apart_at(profile: Profile, turns: int) -> list[int]:
    """Return the turns at which a crowd is taken apart whose calls do wait."""
    taken_apart = []
    for turn in range(turns):
        crowded = profile.kind is Kind.WAITING
        for _ in range(16):
            profile.record(*(IN_A_CROWD if crowded else (60 * MS, 10 * MS, 0, 0, 0)))
        if crowded and profile.kind is Kind.SHORT:
            taken_apart.append(turn)
    return taken_apart


def test_a_crowd_of_calls_that_do_wait_is_taken_apart_ever_more_rarely() -> None:
    taken_apart = taken_apart_at(asked(17, 60 * MS, 10 * MS), 600)
    gaps = [after - before for before, after in itertools.pairwise(taken_apart)]
    assert 3 <= len(gaps) <= 5
    assert all(after > 3 * before for before, after in itertools.pairwise(gaps))


def test_calls_that_have_computed_since_are_taken_apart_soon_when_they_wait_again() -> None:
    profile = asked(17, 60 * MS, 10 * MS)
    taken_apart_at(profile, 600)
    for _ in range(16 * 20):
        profile.record(10 * MS, 10 * MS, 0, 0, 0)
    for _ in range(16 * 2):
        profile.record(60 * MS, 10 * MS, 0, 0, 0)
    assert profile.kind is Kind.WAITING
    assert taken_apart_at(profile, 20) != []


def test_a_function_met_in_a_crowd_only_is_not_taken_for_waiting() -> None:
    assert asked(64, 100 * MS, 5 * MS, gil_wait=95 * MS).kind is Kind.SHORT
