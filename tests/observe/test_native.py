"""What native threads compute beside the calls of a function: the arithmetic, and the kind that follows."""

from __future__ import annotations

import pytest

from hybridrt.observe.functions import Profile
from hybridrt.observe.native import Background, NativeLedger
from hybridrt.values import Kind

from .support import MS


def ledger(native: int, own: int, steps: int = 1) -> NativeLedger:
    """Return what is known after some steps alike."""
    made = NativeLedger()
    for _ in range(steps):
        made.saw(native, own)
    return made


@pytest.mark.parametrize(
    ("native", "own", "drives"),
    [
        pytest.param(10 * MS, 10 * MS, True, id="as much as the caller"),
        pytest.param(3 * MS, 10 * MS, True, id="a quarter of it"),
        pytest.param(1 * MS, 10 * MS, False, id="next to nothing"),
        pytest.param(0, 10 * MS, False, id="nothing"),
        pytest.param(40 * MS, 10 * MS, True, id="on four other cores"),
        pytest.param(630 * MS, 10 * MS, True, id="on sixty-three other cores"),
        pytest.param(1 * MS, 500_000, False, id="not for long enough to tell"),
    ],
)
def test_a_function_computes_in_native_threads_by_their_cpu_time_and_its_own(
    native: int, own: int, drives: bool
) -> None:
    assert ledger(native, own).drives is drives


def test_the_machine_may_be_as_busy_as_it_likes() -> None:
    """No time that has passed is in it: in these steps the process got a hundredth of a core."""
    assert ledger(100_000, 100_000, steps=50).drives


def test_what_was_seen_fades() -> None:
    known = ledger(10 * MS, 10 * MS, steps=100)
    for _ in range(100):
        known.saw(0, 10 * MS)
    assert not known.drives
    assert known.native_ns + known.own_ns <= 200 * MS


def test_what_native_threads_compute_while_no_call_runs_is_not_a_calls() -> None:
    background = Background()
    for _ in range(60):
        background.saw(5 * MS, 10 * MS)
    assert background.beyond(20 * MS, 40 * MS) == pytest.approx(0, abs=1000)
    assert background.beyond(50 * MS, 40 * MS) == pytest.approx(30 * MS, abs=1000)
    assert background.beyond(0, 40 * MS) == 0


def test_beside_calls_that_do_not_compute_the_background_is_the_least_of_what_is_seen() -> None:
    background = Background()
    for step in range(16 * 40):
        background.saw_at_most((5 if step % 8 == 0 else 9) * MS, 10 * MS)
    assert background.beyond(20 * MS, 40 * MS) == pytest.approx(0, abs=10_000)
    assert background.beyond(50 * MS, 40 * MS) == pytest.approx(30 * MS, abs=10_000)


def record(profile: Profile, calls: int, seen: int = 0) -> None:
    """Let calls end that computed for 10 ms and were blocked for 30, some of them seen to wait."""
    for number in range(calls):
        if number % 16 < seen:
            profile.saw_waiting()
        profile.record(40 * MS, 10 * MS, 0, 0, 0)


def blocked(drives: bool, seen: int = 0) -> Profile:
    """Return the profile of a function with such calls."""
    profile = Profile("key", "module:name")
    profile.native.drives = drives
    record(profile, 33, seen)
    return profile


def test_what_a_call_is_blocked_for_while_others_have_its_native_threads_is_no_wait() -> None:
    assert blocked(drives=False).kind is Kind.WAITING
    held_up = blocked(drives=True)
    assert (held_up.kind, held_up.beta_corrected) == (Kind.SHORT, 0.0)


def test_a_function_that_was_seen_to_wait_does_so_although_it_computes_in_native_threads() -> None:
    assert blocked(drives=True, seen=8).kind is Kind.WAITING


def test_a_function_that_waits_and_then_computes_in_native_threads_still_waits() -> None:
    """It is known to wait from its first calls, when it ran alone; beside others it is not seen any more."""
    profile = blocked(drives=False)
    profile.native.drives = True
    record(profile, calls=64)
    assert profile.kind is Kind.WAITING


def test_a_function_that_seems_to_let_native_threads_compute_is_looked_at_for_places_where_it_waits() -> None:
    """Once it has said that it waits, somewhere else; there it says so no more."""
    profile = blocked(drives=True)
    profile.said_waiting(0)
    record(profile, calls=32)
    assert (profile.kind, profile.marks, profile.puzzling) == (Kind.SHORT, 0, True)
