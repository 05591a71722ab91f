"""Profiles: their sums, their batches, and the bound on their number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridrt.observe.functions import (
    LONG_NS,
    RAW_WAITING_SHARE,
    WAITING_NS,
    Profile,
    blocking_ratio,
    copy_of,
    summary_of,
)
from hybridrt.observe.profiles import Profiles
from hybridrt.values import FunctionStatistics, GilClass, Kind

MS = 1_000_000
Calls = list[tuple[int, int, int]]

calls = st.lists(
    st.tuples(st.integers(0, 100 * MS), st.integers(0, 100 * MS), st.integers(0, 10 * MS)),
    min_size=1,
    max_size=60,
)
"""(blocked, cpu, queue wait) in nanoseconds."""


def functions(count: int) -> list[Callable[[], None]]:
    """Return functions with a code object each."""

    def template() -> None: ...

    names = [f"made_{number}" for number in range(count)]
    codes = [template.__code__.replace(co_name=name, co_qualname=name) for name in names]
    return [FunctionType(code, {}) for code in codes]


def by_name(profiles: Profiles) -> dict[str, FunctionStatistics]:
    return {one.name: one for one in (summary_of(copied) for _, copied in profiles.copy_locked())}


def record_all(profile: Profile, seen: Calls) -> None:
    for blocked, cpu, wait in seen:
        profile.record(blocked + cpu, cpu, wait)


def record_as_batch(profile: Profile, seen: Calls) -> None:
    blocked, cpu, wait = (sum(column) for column in zip(*seen, strict=True))
    profile.record_batch(len(seen), blocked + cpu, cpu, wait, min(one[0] for one in seen))


def test_sums_and_raw_beta_are_in_the_public_view() -> None:
    profile = Profile("key", "module:name")
    profile.saw_waiting(first=False)
    profile.record(4 * MS, 1 * MS, 2 * MS)
    profile.record(6 * MS, 4 * MS, 1 * MS)
    profile.failed += 1
    assert summary_of(copy_of(profile)) == FunctionStatistics(
        name="module:name",
        kind=profile.kind,
        calls=2,
        failed=1,
        wall=pytest.approx(0.010),
        cpu=pytest.approx(0.005),
        queue_wait=pytest.approx(0.003),
        beta=pytest.approx(0.5),
        work_cpu=pytest.approx(0.001),  # of the first call; the second is not weighed yet
        work_wait=pytest.approx(0.003),
        gil=GilClass.WAITS,
    )


@pytest.mark.parametrize(
    ("wall", "cpu", "beta"), [(0, 0, None), (10, 0, 1.0), (10, 10, 0.0), (10, 11, 0.0), (8, 2, 0.75)]
)
def test_the_raw_blocking_ratio_is_a_share_or_absent(wall: int, cpu: int, beta: float | None) -> None:
    assert blocking_ratio(wall, cpu) == beta


@given(calls)
def test_a_batch_has_the_sums_of_its_calls(seen: Calls) -> None:
    one_by_one, at_once = Profile("key", "name"), Profile("key", "name")
    record_all(one_by_one, seen)
    record_as_batch(at_once, seen)
    for field in ("calls", "wall_ns", "cpu_ns", "queue_wait_ns"):
        assert getattr(one_by_one, field) == getattr(at_once, field)


def raw_kind(cpu_ns: float, wait_ns: int) -> Kind:
    """Return the kind of a function of which only wall and CPU time are known."""
    if wait_ns >= WAITING_NS and wait_ns >= RAW_WAITING_SHARE * (wait_ns + cpu_ns):
        return Kind.WAITING
    return Kind.SHORT if cpu_ns < LONG_NS else Kind.LONG


@settings(max_examples=30)
@given(st.lists(calls.filter(lambda seen: len(seen) >= 16), min_size=1, max_size=3))
def test_a_batch_of_a_window_or_more_gives_the_kind_of_its_least_blocked_call(batches: list[Calls]) -> None:
    """One call at a time, with the same total, whose least blocking part is that of the batch."""
    profile = Profile("key", "name")
    least = 1 << 62
    for seen in batches:
        record_as_batch(profile, seen)
        previous, least = least, min(one[0] for one in seen)
        cpu_mean = sum(one[1] for one in seen) / len(seen)
        assert profile.kind is raw_kind(cpu_mean, max(0, min(previous, least)))


def test_very_short_calls_are_not_taken_for_waiting_because_they_came_in_one_batch() -> None:
    """The blocking parts of 256 calls, a microsecond each, add up to a wait; one call has none."""
    profile = Profile("key", "name")
    profile.record_batch(256, 256 * 1_500, 256 * 500, 0, 1_000)
    assert profile.kind is Kind.SHORT


@pytest.mark.parametrize(("cpu", "first"), [(3 * MS, True), (1 * MS, False)], ids=["long", "short"])
def test_a_loop_goes_first_before_long_calls_until_these_are_known_not_to_hold_the_gil(
    cpu: int, *, first: bool
) -> None:
    profile = Profile("key", "name")
    assert not profile.may_hold
    profile.record(cpu, cpu, 0)
    assert profile.may_hold is first
    for _ in range(4):
        profile.gil.saw_taken(200_000, 100_000)
    for _ in range(16):
        profile.record(cpu, cpu, 0)
    assert not profile.may_hold


def test_a_function_has_one_profile() -> None:
    profiles = Profiles()
    one, two = functions(2)
    assert profiles.of(one) is profiles.of(one)
    assert profiles.of(one) is not profiles.of(two)


def test_a_profile_is_made_without_the_lock_and_kept_with_it() -> None:
    """What makes one may log, and then code of the user's runs."""
    profiles, seen = Profiles(without_convoy=lambda lock: waited.append(lock) or lock), []
    waited: list[object] = []

    def make() -> Profile:
        seen.append((profiles.lock.locked(), list(waited)))
        return Profile("key", "name")

    assert profiles.under("key", make) is profiles.under("key", make)
    assert (seen, waited) == ([(False, [])], [profiles.lock])


def test_of_two_threads_that_meet_a_function_at_once_both_have_the_same_profile() -> None:
    profiles, first = Profiles(), Profile("key", "name")

    def make() -> Profile:
        profiles.under("key", lambda: first)  # the other thread is faster
        return Profile("key", "name")

    assert profiles.under("key", make) is first
    assert profiles.all() == [first]


def test_closures_made_anew_share_a_profile() -> None:
    def make(number: int) -> Callable[[], int]:
        return lambda: number

    profiles = Profiles()
    assert profiles.of(make(1)) is profiles.of(make(2))


def test_a_dropped_profile_says_so() -> None:
    profiles = Profiles(bound=1)
    first, second = functions(2)
    dropped = profiles.of(first)
    assert dropped.owner is profiles
    assert profiles.of(second).owner is profiles
    assert dropped.owner is None
    assert profiles.of(first) is not dropped


def test_functions_without_a_finished_call_are_not_reported() -> None:
    profiles = Profiles()
    profiles.of(functions(1)[0])
    assert profiles.copy_locked() == []


def test_the_number_of_profiles_is_bounded_and_the_sums_of_the_dropped_go_to_other() -> None:
    profiles = Profiles(bound=8)
    for number, fn in enumerate(functions(9)):
        profile = profiles.of(fn)
        for _ in range(number + 1):
            profile.record(10 * MS, 1 * MS, 5 * MS)
        profile.failed += 1
    rows = by_name(profiles)
    other = rows.pop("other")
    assert len(rows) == 7  # the two of eight with the fewest calls made room for the ninth
    assert min(row.calls for row in rows.values()) == 3
    assert (other.calls, other.failed) == (1 + 2, 2)
    assert other.wall == pytest.approx(3 * 0.010)
    assert other.cpu == pytest.approx(3 * 0.001)
    assert other.queue_wait == pytest.approx(3 * 0.005)


@given(st.integers(1, 20), st.lists(st.integers(0, 40), max_size=120))
def test_no_call_is_lost_to_the_bound(bound: int, order: list[int]) -> None:
    profiles, made = Profiles(bound=bound), functions(41)
    for number in order:
        profiles.of(made[number]).record(10, 5, 1)
    rows = [summary_of(copied) for _, copied in profiles.copy_locked()]
    assert len([row for row in rows if row.name != "other"]) <= bound
    assert sum(row.calls for row in rows) == len(order)


def test_a_function_with_a_running_call_of_which_nothing_is_known_keeps_its_profile() -> None:
    profiles, made = Profiles(bound=4), functions(10)
    running = profiles.of(made[0])
    running.unclassified = 1
    for fn in made[1:]:
        profiles.of(fn).record(10, 5, 1)
    assert profiles.of(made[0]) is running


def test_a_dropped_function_that_comes_back_is_learned_anew() -> None:
    profiles, made = Profiles(bound=2), functions(3)
    profiles.of(made[0]).record(10 * MS, 10 * MS, 0)
    for fn in made[1:]:
        for _ in range(2):
            profiles.of(fn).record(1, 1, 0)
    again = profiles.of(made[0])
    assert (again.calls, again.kind) == (0, Kind.UNKNOWN)


def test_wrappers_are_found_under_what_they_wrap() -> None:
    profiles = Profiles()
    (fn,) = functions(1)
    assert profiles.of(partial(fn)) is profiles.of(fn)
