"""What kind a function is, learned from its finished calls and from looks at its running ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.observe.functions import (
    ALL_DETAILED_NS,
    BATCH_CALL_NS,
    BATCH_MAX,
    BATCH_NS,
    DETAILED_NS,
    LONG_NS,
    MARKS,
    WINDOW,
    Profile,
    copy_of,
    summary_of,
)
from hybridrt.values import Kind

from .support import MS, US, asked


def profile_of(*calls: tuple[int, int]) -> Profile:
    """Return a profile that has taken in calls of (wall, cpu) nanoseconds."""
    profile = Profile("key", "module:name")
    for wall, cpu in calls:
        profile.record(wall, cpu, 0)
    return profile


def test_a_function_without_a_call_is_unknown() -> None:
    assert profile_of().kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("wall", "cpu", "kind"),
    [
        pytest.param(20 * MS, 1 * MS, Kind.WAITING, id="mostly blocked"),
        pytest.param(10 * MS, 3 * MS, Kind.WAITING, id="blocked for seven tenths"),
        pytest.param(10 * MS, 4 * MS, Kind.SHORT, id="blocked for six tenths"),
        pytest.param(2 * MS, 1 * MS, Kind.SHORT, id="blocked for a half, as two computing calls read"),
        pytest.param(1 * MS, 1 * MS, Kind.SHORT, id="computes briefly"),
        pytest.param(49 * US, 0, Kind.SHORT, id="blocked for less than the clocks can tell"),
        pytest.param(51 * US, 0, Kind.WAITING, id="blocked for just longer"),
        pytest.param(LONG_NS - 1, LONG_NS - 1, Kind.SHORT, id="computes for just less than 20 ms"),
        pytest.param(LONG_NS, LONG_NS, Kind.LONG, id="computes for 20 ms"),
        pytest.param(1000 * MS, 900 * MS, Kind.LONG, id="computes for long and waits a little"),
        pytest.param(1 * MS, 2 * MS, Kind.SHORT, id="more CPU than wall, as coarse clocks say"),
    ],
)
def test_the_first_call_gives_a_kind_if_one_was_seen_to_wait(wall: int, cpu: int, kind: Kind) -> None:
    profile = profile_of()
    profile.saw_waiting(first=False)
    profile.record(wall, cpu, 0)
    assert profile.kind is kind


def test_one_short_call_waits_whether_or_not_it_was_seen_to() -> None:
    assert profile_of((1000 * US, 300 * US)).kind is Kind.WAITING


def test_calls_that_are_not_short_and_were_not_seen_wait_by_a_window_of_them() -> None:
    calls = [(20 * MS, 1 * MS)] * 17
    assert [profile_of(*calls[:count]).kind for count in (1, 16, 17)] == [
        Kind.SHORT,
        Kind.SHORT,
        Kind.WAITING,
    ]


def test_a_wait_for_the_gil_is_not_taken_for_waiting_while_one_call_ran_undisturbed() -> None:
    """Beside seven others a computing call is off its core for seven eighths of the time."""
    disturbed = [(80 * MS, 10 * MS)] * 15
    assert profile_of((10 * MS, 10 * MS), *disturbed, (10 * MS, 10 * MS)).kind is Kind.SHORT


def test_an_undisturbed_call_counts_in_the_window_after_its_own_too_and_no_longer() -> None:
    profile = profile_of((10 * MS, 10 * MS))
    for _ in range(16):
        profile.record(80 * MS, 10 * MS, 0)
    assert profile.kind is Kind.SHORT
    for _ in range(16):
        profile.record(80 * MS, 10 * MS, 0)
    assert profile.kind is Kind.WAITING


@given(
    st.integers(LONG_NS, 1000 * MS),
    st.lists(st.integers(0, 10_000 * MS), min_size=16, max_size=80),
    st.integers(0, 15),
)
def test_one_undisturbed_call_a_window_keeps_a_function_computing(
    cpu: int, waits: list[int], undisturbed: int
) -> None:
    profile = profile_of((cpu, cpu))
    for number, wait in enumerate(waits):
        profile.record(cpu + (0 if number % 16 == undisturbed else wait), cpu, 0)
        assert profile.kind is Kind.LONG


def test_a_function_that_begins_to_wait_is_learned_anew_within_two_windows() -> None:
    profile = profile_of(*[(1 * MS, 1 * MS)] * 17)
    assert profile.kind is Kind.SHORT
    for _ in range(32):
        profile.record(20 * MS, 1 * MS, 0)
    assert profile.kind is Kind.WAITING


def test_a_function_that_begins_to_compute_is_learned_anew_within_two_windows() -> None:
    profile = profile_of(*[(20 * MS, 1 * MS)] * 17)
    assert profile.kind is Kind.WAITING
    for _ in range(32):
        profile.record(50 * MS, 50 * MS, 0)
    assert profile.kind is Kind.LONG


def test_a_function_with_some_quick_calls_waits_if_a_quarter_of_its_calls_were_seen_to() -> None:
    """A cache answers most calls at once, so the least blocking part of a window is nothing."""
    profile = profile_of((20 * MS, 1 * MS))
    for number in range(32):
        if number % 4:
            profile.record(10 * US, 10 * US, 0)
        else:
            profile.saw_waiting()
            profile.record(20 * MS, 1 * MS, 0)
    assert profile.kind is Kind.WAITING


def test_a_function_whose_calls_compute_for_half_their_time_does_not_wait_whatever_was_seen() -> None:
    profile = profile_of((20 * MS, 20 * MS))
    for _ in range(32):
        profile.saw_waiting()
        profile.record(20 * MS, 11 * MS, 0)
    assert profile.kind is not Kind.WAITING


def test_time_without_a_core_is_not_taken_for_waiting() -> None:
    profile = profile_of()
    for _ in range(17):
        profile.record(40 * MS, 10 * MS, 0, 30 * MS)
    assert profile.kind is Kind.SHORT
    profile = profile_of()
    for _ in range(17):
        profile.record(40 * MS, 10 * MS, 0, 2 * MS)
    assert profile.kind is Kind.WAITING


def test_four_running_calls_seen_to_wait_make_a_waiting_function() -> None:
    profile, cohorts = profile_of(), []
    for _ in range(4):
        cohorts.append(profile.slow_start)
        assert profile.kind is Kind.UNKNOWN
        profile.saw_waiting()
    assert cohorts == [1, 2, 4, 6]
    assert profile.kind is Kind.WAITING


def test_a_known_function_lets_as_many_of_its_calls_run_as_were_seen_to_wait_lately() -> None:
    profile = profile_of((1 * MS, 1 * MS))
    for _ in range(4):
        profile.saw_waiting()
    assert (profile.kind, profile.slow_start) == (Kind.SHORT, 8)
    for _ in range(WINDOW):
        profile.record(1 * MS, 1 * MS, 0)
    assert (profile.kind, profile.slow_start) == (Kind.SHORT, 1)


def test_a_running_call_seen_to_compute_makes_a_long_function() -> None:
    profile = profile_of()
    profile.saw_computing()
    assert profile.kind is Kind.LONG


def test_a_short_function_whose_call_computes_for_long_is_long_at_once() -> None:
    profile = profile_of((1 * MS, 1 * MS))
    profile.saw_computing()
    assert profile.kind is Kind.LONG


def test_looks_do_not_overrule_calls_that_ended() -> None:
    computing = profile_of((1 * MS, 1 * MS))
    for _ in range(10):
        computing.saw_waiting()
    assert computing.kind is Kind.SHORT
    waiting = profile_of((20 * MS, 0))
    waiting.saw_computing()
    assert waiting.kind is Kind.WAITING


def test_an_unknown_function_seen_to_compute_once_needs_more_than_looks_to_be_waiting() -> None:
    profile = profile_of()
    profile.saw_computing()
    for _ in range(10):
        profile.saw_waiting()
    assert profile.kind is Kind.LONG


@pytest.mark.parametrize("cpu", [1 * MS, 100 * MS])
def test_a_computing_function_that_leaves_the_gil_free_is_free(cpu: int) -> None:
    profile = profile_of((cpu, cpu))
    for _ in range(4):
        assert profile.kind in (Kind.SHORT, Kind.LONG)
        profile.saw_free()
    assert profile.kind is Kind.FREE
    for _ in range(16):
        profile.record(cpu, cpu, 0)
    assert profile.kind is Kind.FREE


def test_a_waiting_function_stays_waiting_when_it_leaves_the_gil_free() -> None:
    profile = profile_of(*[(20 * MS, 1 * MS)] * 17)
    for _ in range(10):
        profile.saw_free()
    assert profile.kind is Kind.WAITING


def test_old_looks_at_the_gil_are_forgotten() -> None:
    profile = profile_of((100 * MS, 100 * MS))
    for _ in range(1000):
        profile.saw_free()
    for _ in range(120):
        profile.gil.saw_taken(5 * MS, 5 * MS)
    assert not profile.gil.releases
    for _ in range(16):
        profile.record(100 * MS, 100 * MS, 0)
    assert profile.kind is Kind.LONG


@pytest.mark.parametrize(
    ("cpu", "kind", "beta"),
    [
        pytest.param(1 * MS, Kind.WAITING, 0.9, id="mostly blocked"),
        pytest.param(7 * MS, Kind.WAITING, 0.3, id="blocked just as often as the threshold says"),
        pytest.param(8 * MS, Kind.SHORT, 0.2, id="less often"),
    ],
)
def test_calls_that_were_asked_need_not_block_for_most_of_their_time(
    cpu: int, kind: Kind, beta: float
) -> None:
    profile = asked(17, 10 * MS, cpu)
    assert (profile.kind, profile.beta_corrected) == (kind, pytest.approx(beta))


@pytest.mark.parametrize("wait", ["run_delay", "gil_wait"])
def test_waits_for_a_core_and_for_the_gil_are_not_blocking(wait: str) -> None:
    """Eight computing calls at once read a raw ratio of seven eighths."""
    profile = asked(17, 80 * MS, 10 * MS, **{wait: 70 * MS})
    assert (profile.kind, profile.beta_corrected) == (Kind.SHORT, 0.0)
    assert summary_of(copy_of(profile)).beta == pytest.approx(7 / 8)


def test_a_function_that_waits_stays_so_until_it_clearly_does_not() -> None:
    profile = asked(17, 10 * MS, 6 * MS)
    for cpu, kind in ((7_500_000, Kind.WAITING), (9 * MS, Kind.SHORT), (7_500_000, Kind.SHORT)):
        for _ in range(16 * 4):
            profile.record(10 * MS, cpu, 0, 0, 0)
        assert profile.kind is kind


@pytest.mark.parametrize(
    ("wall", "asked_of_64"), [(99 * US, 0), (DETAILED_NS, 16), (ALL_DETAILED_NS, 64), (1000 * MS, 64)]
)
def test_the_longer_its_calls_the_more_of_them_are_asked(wall: int, asked_of_64: int) -> None:
    profile = asked(17, wall, wall)
    assert sum(not calls & profile.detail_mask for calls in range(64, 128)) == asked_of_64


def test_once_its_kind_has_settled_one_call_in_eight_is_asked() -> None:
    profile = asked(17 + 16 * 8, 10 * MS, 1 * MS)
    assert profile.detail_mask == 7
    for _ in range(16 * 8):
        profile.record(10 * MS, 10 * MS, 0, 0, 0)
    assert profile.kind is Kind.SHORT


def test_a_window_in_which_no_call_was_asked_changes_nothing() -> None:
    """Threads that start at the same moment see the same number of calls, so none of them may be asked."""
    profile = asked(17, 2 * MS, 1 * MS)
    for _ in range(160):
        profile.record(MS, MS, 0)
    assert (profile.kind, profile.beta_corrected) == (Kind.WAITING, pytest.approx(0.5))


def tried(profile: Profile, calls: int, cpu: int, wall: int, at_once: int = 2) -> None:
    """Let calls end of which `at_once` ran at once, each waiting for the GIL for the rest of its time."""
    for _ in range(calls):
        profile.saw_beside(at_once)
        profile.record(wall, cpu, 0, 0, wall - cpu)


def partly_free() -> Profile:
    """Return a computing function beside which one wake-up in three finds the GIL free."""
    profile = asked(17, 10 * MS, 10 * MS)
    for _ in range(4):
        profile.saw_free()
        profile.gil.saw_taken(MS, MS)
        profile.gil.saw_taken(MS, MS)
    return profile


def test_two_at_once_are_tried_where_the_gil_is_free_now_and_then_and_kept_if_they_do_more() -> None:
    profile = partly_free()
    tried(profile, 64, 7 * MS, 10 * MS)
    assert profile.kind is Kind.FREE
    assert profile.parallel == pytest.approx(1.4, rel=0.1)


def test_two_at_once_that_only_share_the_gil_go_back_to_one_and_are_tried_again_later() -> None:
    profile = partly_free()
    tried(profile, 64, 5 * MS, 10 * MS)
    assert (profile.kind, profile.leaves_gil) == (Kind.SHORT, False)
    profile.saw_free()
    assert profile.kind is Kind.SHORT
    tried(profile, 512, 10 * MS, 10 * MS, at_once=0)
    assert profile.kind is Kind.FREE
    assert profile.patience > 256


def test_after_trials_that_paid_the_next_one_is_as_soon_as_at_first() -> None:
    profile = partly_free()
    for _ in range(4):
        tried(profile, 64, 5 * MS, 10 * MS)
        while not profile.leaves_gil:
            tried(profile, 1, 5 * MS, 5 * MS, at_once=0)
    assert profile.patience == 4096
    tried(profile, 1_500, 5 * MS, 5 * MS)
    assert (profile.kind, profile.patience) == (Kind.FREE, 256)


def test_a_gil_that_others_have_does_not_count_against_a_function_that_leaves_it() -> None:
    profile = asked(17, 10 * MS, 10 * MS)
    for _ in range(8):
        profile.saw_free()
    tried(profile, 64, 5 * MS, 10 * MS)
    assert (profile.kind, profile.parallel) == (Kind.FREE, pytest.approx(2.0, rel=0.1))


def test_calls_that_may_have_waited_for_the_gil_longer_than_they_took_do_no_more_than_they_are() -> None:
    """What a call can have waited is a bound, and too high where it gave the GIL away for a moment."""
    profile = asked(17, 10 * MS, 10 * MS)
    for _ in range(8):
        profile.saw_free()
    for _ in range(64):
        profile.saw_beside(2)
        profile.record(20 * MS, 10 * MS, 0, 0, 20 * MS)
    assert profile.parallel == pytest.approx(2.0, rel=0.1)


def test_calls_that_never_met_one_another_tell_nothing_of_running_at_once() -> None:
    profile = partly_free()
    tried(profile, 64, 10 * MS, 10 * MS, at_once=1)
    assert (profile.kind, profile.parallel) == (Kind.FREE, None)


def test_a_function_that_keeps_the_gil_by_now_computes_although_its_calls_come_one_by_one() -> None:
    """Several at once did more before, and none meets another now, which would show that they do not."""
    profile = partly_free()
    tried(profile, 64, 7 * MS, 10 * MS)
    assert profile.kind is Kind.FREE
    for _ in range(400):
        profile.gil.saw_taken(10 * MS, MS // 10)
        tried(profile, 1, 10 * MS, 10 * MS, at_once=1)
    assert (profile.kind, profile.leaves_gil, profile.may_hold) == (Kind.SHORT, False, True)


def test_two_at_once_that_take_more_cpu_time_each_are_no_gain() -> None:
    profile = partly_free()
    tried(profile, 64, 18 * MS, 20 * MS)
    assert profile.parallel is not None
    assert (profile.kind, profile.leaves_gil) == (Kind.SHORT, False)


def test_calls_that_have_become_longer_before_the_trial_are_no_loss() -> None:
    """As those of a pipe, which take more items each once it is known how long one takes."""
    profile = asked(17, MS // 10, MS // 10)
    for _ in range(64):
        profile.record(10 * MS, 10 * MS, 0, 0, 0)
    for _ in range(8):
        profile.saw_free()
        profile.gil.saw_taken(MS, MS)
    tried(profile, 64, 7 * MS, 10 * MS)
    assert profile.kind is Kind.FREE
    assert profile.parallel == pytest.approx(1.4, rel=0.1)


def test_python_code_is_never_tried() -> None:
    profile = asked(17, 10 * MS, 10 * MS)
    for _ in range(200):
        profile.gil.saw_taken(MS // 5, MS // 10)
    assert not profile.leaves_gil


def test_the_first_call_is_asked_whatever_it_takes() -> None:
    profile = Profile("key", "module:name")
    assert not profile.calls & profile.detail_mask


@pytest.mark.parametrize(
    ("wall", "batch"),
    [
        (1, BATCH_MAX),
        (10 * US, BATCH_NS // (10 * US)),
        (BATCH_CALL_NS - 1, 2),
        (BATCH_CALL_NS, 1),
        (5 * MS, 1),
    ],
)
def test_short_calls_go_to_a_worker_in_batches_of_two_milliseconds(wall: int, batch: int) -> None:
    assert profile_of((wall, wall)).batch == batch


def test_waiting_calls_never_go_in_batches() -> None:
    assert profile_of((60 * US, 1 * US)).batch == 1


# ---------------------------------------------------------------------- phases


def by_turns(profile: Profile, calls: int, *, says: bool) -> None:
    """Let calls end that have waited for 50 ms and computed for 5."""
    for _ in range(calls):
        if says:
            profile.said_waiting(0)
        profile.record(55 * MS, 5 * MS, 0)


def test_a_function_that_waits_and_computes_is_puzzling_until_a_call_says_where_it_waits() -> None:
    profile = Profile("f", "f")
    by_turns(profile, 2 * WINDOW, says=False)
    assert (profile.kind, profile.puzzling, profile.gated) == (Kind.WAITING, True, False)
    profile.said_waiting(0)
    assert (profile.puzzling, profile.gated) == (False, True)
    by_turns(profile, 4 * WINDOW, says=True)
    assert (profile.puzzling, profile.gated) == (False, True)


def test_one_whose_calls_do_not_say_it_any_more_is_puzzling_again() -> None:
    """As where its site was forgotten, or had to make room for another."""
    profile = Profile("f", "f")
    by_turns(profile, 4 * WINDOW, says=True)
    by_turns(profile, (MARKS - 1) * WINDOW, says=False)
    assert (profile.puzzling, profile.gated) == (False, True)  # a crowd that has said it, and now ends
    by_turns(profile, 2 * WINDOW, says=False)
    assert (profile.puzzling, profile.gated) == (True, False)


@pytest.mark.parametrize(("cpu", "misses"), [(0, 0), (5 * MS, 100)])
def test_one_that_only_waits_or_whose_phases_do_harm_is_not(cpu: int, misses: int) -> None:
    profile = Profile("f", "f")
    by_turns(profile, 2 * WINDOW, says=True)
    profile.misses = misses
    for _ in range((MARKS + 2) * WINDOW):
        profile.record(50 * MS + cpu, cpu, 0)
    assert (profile.puzzling, profile.gated) == (False, False)
