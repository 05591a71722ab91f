"""The governor keeps to its share of a core by longer naps, and not where a call would wait for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.governor.cpu_budget import CREDIT_NS, DEBT_NS, PRESSED_SHARE, SHARE, CpuBudget
from hybridrt.governor.governor import GOLDEN, LATE_NS, LEARN_NS, QUIET_NS, SPARE_NS
from hybridrt.observe.functions import SETTLED
from hybridrt.values import Kind

from .support import MS, Stage, named

steps = st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(0, 100_000_000)), max_size=60)


@given(steps)
def test_who_sleeps_as_long_as_told_keeps_to_the_share(steps: list[tuple[int, int]]) -> None:
    cpu_budget, now, used = CpuBudget(), 1_000_000_000, 0
    cpu_budget.book(now, used)
    for cost, wanted in steps:
        now, used = now + cost, used + cost
        cpu_budget.book(now, used)
        now += max(wanted, cpu_budget.least_sleep_ns)
        assert used <= CREDIT_NS + SHARE * (now - 1_000_000_000) + 1_000


def test_a_short_burst_of_steps_is_free() -> None:
    cpu_budget = CpuBudget(share=0.01, credit_ns=1_000_000)
    cpu_budget.book(1_000_000_000, 0)
    cpu_budget.book(1_000_000_000, 900_000)
    assert cpu_budget.least_sleep_ns == 0
    cpu_budget.book(1_000_000_000, 1_100_000)
    assert cpu_budget.least_sleep_ns == pytest.approx(10_000_000, rel=0.01)


def test_no_more_is_saved_up_than_the_credit() -> None:
    cpu_budget = CpuBudget(share=0.01, credit_ns=1_000_000)
    cpu_budget.book(3_600_000_000_000, 0)
    cpu_budget.book(3_600_000_000_000, 2_000_000)
    assert cpu_budget.least_sleep_ns == pytest.approx(100_000_000)


def test_what_the_share_allows_is_not_owed() -> None:
    cpu_budget = CpuBudget(share=0.01, credit_ns=0)
    cpu_budget.book(1_000_000_000, 0)
    cpu_budget.book(2_000_000_000, 10_000_000)
    assert cpu_budget.least_sleep_ns == 0
    cpu_budget.book(3_000_000_000, 30_000_000)
    assert cpu_budget.least_sleep_ns == pytest.approx(1_000_000_000)


def test_a_garbage_collection_in_its_thread_is_paid_off_soon() -> None:
    cpu_budget = CpuBudget()
    cpu_budget.book(1_000_000_000, 0)
    cpu_budget.book(1_300_000_000, 300_000_000)
    assert cpu_budget.least_sleep_ns == pytest.approx(DEBT_NS / SHARE)
    cpu_budget.book(1_300_000_000 + int(DEBT_NS / SHARE), 300_000_000)
    assert cpu_budget.least_sleep_ns == 0


def test_another_thread_begins_anew() -> None:
    cpu_budget = CpuBudget(share=0.01, credit_ns=0)
    cpu_budget.book(1_000_000_000, 5_000_000)
    before = cpu_budget.least_sleep_ns
    cpu_budget.book(1_000_000_000, 1_000)
    assert cpu_budget.least_sleep_ns == before


def test_the_sleep_between_steps_of_one_cost_keeps_them_to_the_larger_share() -> None:
    cpu_budget = CpuBudget()
    for step in range(1, 100):
        cpu_budget.book(step * 50_000_000, step * 700_000)
    assert 700_000 / cpu_budget.steady_sleep_ns == pytest.approx(PRESSED_SHARE, rel=0.01)


def test_one_step_that_was_disturbed_hardly_changes_it() -> None:
    cpu_budget = CpuBudget()
    for step in range(1, 100):
        cpu_budget.book(step * 50_000_000, step * 400_000)
    before = cpu_budget.steady_sleep_ns
    cpu_budget.book(6_000_000_000, 400_000_000)
    assert before < cpu_budget.steady_sleep_ns < 1.6 * before


# ---------------------------------------------------------------------- the governor's naps


def overspent(stage: Stage) -> None:
    """Let the governor have used a second more than it may."""
    governor = stage.budget.governor
    governor._cpu_budget.book(stage.clock.now_ns, CREDIT_NS + 1_000_000_000)


def varied(nap_ns: int, times: int) -> float:
    """Return in seconds what the governor makes of a nap, when it varies one for the `times`-th time."""
    return (nap_ns - int(nap_ns * (times * GOLDEN % 1.0) / 2)) / 1e9


def test_a_governor_that_has_overspent_sleeps_longer_beside_waiting_calls(stage: Stage) -> None:
    stage.push(stage.learn(Kind.WAITING))
    overspent(stage)
    assert stage.budget.governor.turn() == varied(QUIET_NS, 1)
    assert stage.budget.governor.sleeps_long


def test_where_calls_are_queued_it_sleeps_less_long(stage: Stage) -> None:
    stage.push_many(100, stage.learn(Kind.WAITING))
    assert stage.pool.queued
    overspent(stage)
    assert stage.budget.governor.turn() == varied(SPARE_NS, 1)
    assert stage.budget.governor.sleeps_long


def test_while_a_call_lacks_a_permit_it_sleeps_longer_but_does_not_doze(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    profile = stage.pool.profiles.of(fn)
    profile.settled = SETTLED
    for _ in range(4):
        profile.gil.saw_taken(100_000, 100_000)
    stage.push_many(2, fn)
    overspent(stage)
    assert stage.budget.governor.turn() == LATE_NS / 1e9
    assert not stage.budget.governor.sleeps_long


@pytest.mark.parametrize(
    ("cost_ns", "nap_ns"), [(400_000, LATE_NS), (900_000, 64_000_000), (2_000_000, SPARE_NS)]
)
def test_where_steps_cost_much_it_looks_less_often_for_such_a_call(
    stage: Stage, cost_ns: int, nap_ns: int
) -> None:
    governor = stage.budget.governor
    for step in range(1, 1_000):
        governor._cpu_budget.book(step * LATE_NS, step * cost_ns)
    stage.push_many(2, stage.learn(Kind.LONG))
    assert governor._stretch(1) == pytest.approx(nap_ns, rel=0.02)
    assert not governor.sleeps_long


def test_beside_a_computing_call_that_it_does_not_know_yet_neither(stage: Stage) -> None:
    stage.push(named("unknown"))
    overspent(stage)
    assert stage.budget.governor.turn() == varied(LATE_NS, 1)


def test_nor_between_the_calls_of_a_function_that_it_does_not_know_yet(stage: Stage) -> None:
    """One that holds the GIL keeps the governor waiting until it returns; then the governor sees no call."""
    fn = named("unknown")
    call = stage.push(fn)
    stage.budget.governor.turn()
    stage.end(call)
    overspent(stage)
    assert stage.budget.governor.turn() == varied(LATE_NS, 2)
    assert not stage.budget.governor.sleeps_long


def test_a_function_that_is_not_called_any_more_keeps_it_awake_for_a_second(stage: Stage) -> None:
    call = stage.push(named("unknown"))
    stage.push(stage.learn(Kind.WAITING))
    governor = stage.budget.governor
    governor.turn()
    stage.end(call)
    stage.clock.advance(LEARN_NS / 1e9 - MS)
    overspent(stage)
    governor.turn()
    assert not governor.sleeps_long
    stage.clock.advance(MS)
    overspent(stage)
    assert governor.turn() == varied(QUIET_NS, 3)
    assert governor.sleeps_long


@pytest.mark.parametrize(("kind", "longest_ns"), [(None, LATE_NS), (Kind.WAITING, QUIET_NS)])
def test_no_two_naps_are_alike(stage: Stage, kind: Kind | None, longest_ns: int) -> None:
    """Else it may meet calls that follow each other always at the same point of their cycle, or never."""
    stage.push(named("unknown") if kind is None else stage.learn(kind))
    overspent(stage)
    naps = [stage.budget.governor.turn() for _ in range(12)]
    assert len(set(naps)) == 12
    assert all(longest_ns / 2e9 <= nap <= longest_ns / 1e9 for nap in naps)


def test_the_first_call_that_lacks_a_permit_ends_its_doze(stage: Stage) -> None:
    stage.push(stage.learn(Kind.WAITING))
    overspent(stage)
    governor = stage.budget.governor
    governor.turn()
    stage.push(stage.learn(Kind.LONG))
    assert governor._wakeup.empty()
    stage.push_many(3, stage.learn(Kind.LONG))
    assert governor._wakeup.qsize() == 1  # one ring is enough
    stage.clock.advance(MS)
    assert governor.turn() == varied(LATE_NS, 2)
