"""The law of placement: where the next call runs, by what calls have cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.placement import (
    AGAIN,
    AGAIN_FELT,
    AGAIN_MAX,
    ENOUGH,
    OFTEN,
    TRIALS,
    UNCLASSED,
    UNCLASSED_CROWD,
    Choice,
    Evidence,
    Machine,
    decide,
    is_due,
    is_settled,
    next_place,
    price,
    wants_isolate,
)
from hybridrt.placements import PlacementReason

US, MS = 1_000, 1_000_000
TWO_CORES = Machine(cores=2, gil=True)

times = st.floats(0, 1e9)
machines = st.builds(Machine, cores=st.integers(1, 64), gil=st.booleans())
evidences = st.builds(
    Evidence,
    calls=st.integers(0, 100_000),
    measured=st.integers(0, 1000),
    cpu_ns=times,
    wait_ns=times,
    blocked_ns=times,
    longest_ns=times,
    small=st.booleans(),
    portable=st.booleans(),
    classed=st.booleans(),
    holds=st.booleans(),
    parallel=st.booleans(),
    waits=st.booleans(),
    size=st.integers(0, 1 << 40),
    carried=st.integers(0, 1000),
    carry_ns=times,
    child_cpu_ns=times,
    hop_ns=times,
)
standings = st.builds(
    Choice,
    where=st.sampled_from(["inline", "thread", "isolate"]),
    reason=st.sampled_from(PlacementReason),
    again_at=st.integers(0, 100_000),
)


def computing(cpu_ns: float, **changes: object) -> Evidence:
    """Return the evidence of a function that computes with the GIL and was measured often enough."""
    known = Evidence(
        calls=100,
        measured=100,
        cpu_ns=cpu_ns,
        wait_ns=0,
        blocked_ns=0,
        longest_ns=cpu_ns,
        small=True,
        portable=True,
        classed=True,
        holds=False,
        parallel=False,
        waits=False,
    )
    return replace(known, **changes)  # type: ignore[arg-type]  # names of fields


def carried(cpu_ns: float, carry_ns: float, **changes: object) -> Evidence:
    """Return the same of one that was carried to an isolate often enough, too."""
    return computing(
        cpu_ns, carried=TRIALS, carry_ns=carry_ns, hop_ns=carry_ns, child_cpu_ns=cpu_ns, **changes
    )


EXAMPLES = [
    (computing(5 * US), "inline", PlacementReason.SHORT),
    (computing(5 * US, small=False), "thread", PlacementReason.CARRYING),
    (computing(5 * US, measured=ENOUGH - 1), "thread", PlacementReason.LEARNING),
    (computing(5 * US, longest_ns=101 * US), "thread", PlacementReason.CARRYING),
    (computing(5 * US, blocked_ns=60 * US, wait_ns=60 * US, waits=True, longest_ns=65 * US), "thread",
     PlacementReason.WAITS),
    (computing(1 * MS, wait_ns=50 * MS, waits=True), "thread", PlacementReason.WAITS),
    (computing(20 * US, wait_ns=12 * MS, waits=True), "thread", PlacementReason.WAITS),
    (computing(5 * US, wait_ns=60 * US, waits=True), "inline", PlacementReason.SHORT),
    (computing(16 * MS, parallel=True), "thread", PlacementReason.RELEASES_GIL),
    (computing(16 * MS, holds=True), "isolate", PlacementReason.TRIAL),
    (computing(1 * MS, classed=False, calls=UNCLASSED - 1), "thread", PlacementReason.LEARNING),
    (computing(1 * MS, classed=False, calls=UNCLASSED), "isolate", PlacementReason.TRIAL),
    (computing(250 * MS, classed=False, calls=1), "thread", PlacementReason.LEARNING),
    (computing(250 * MS, classed=False, calls=2), "isolate", PlacementReason.TRIAL),
    (computing(16 * MS, portable=False), "thread", PlacementReason.NOT_PORTABLE),
    (carried(16 * MS, 1 * MS, holds=True), "isolate", PlacementReason.HOLDS_GIL),
    (carried(16 * MS, 1 * MS), "isolate", PlacementReason.SHARES_GIL),
    (carried(16 * MS, 15 * MS, holds=True), "thread", PlacementReason.CARRYING),
    (replace(carried(16 * MS, 1 * MS, holds=True), hop_ns=20 * MS), "thread", PlacementReason.CARRYING),
    (carried(300 * US, 250 * US), "thread", PlacementReason.CARRYING),
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "where", "reason"), EXAMPLES)
def test_a_call_goes_where_it_costs_least(evidence: Evidence, where: str, reason: PlacementReason) -> None:
    choice = decide(Choice(), evidence, TWO_CORES)
    assert (choice.where, choice.reason) == (where, reason)


def test_one_long_call_is_enough_to_be_known() -> None:
    choice = decide(Choice(), computing(250 * MS, measured=1, calls=1), TWO_CORES)
    assert choice.reason is PlacementReason.TRIAL


def test_on_one_core_only_a_hold_of_the_gil_is_worth_the_way() -> None:
    alone = Machine(cores=1, gil=True)
    assert decide(Choice(), carried(16 * MS, 200 * US, holds=True), alone).where == "isolate"
    assert decide(Choice(), carried(16 * MS, 200 * US), alone).where == "thread"


@given(standings, evidences, machines)
def test_no_call_longer_than_allowed_runs_on_the_loop(
    before: Choice, evidence: Evidence, machine: Machine
) -> None:
    if decide(before, evidence, machine).where == "inline":
        assert evidence.longest_ns <= machine.inline_max_ns
        assert not evidence.waits or evidence.wait_ns <= machine.inline_max_ns
        assert evidence.small
        assert evidence.measured >= ENOUGH


@given(standings, evidences, machines)
def test_only_what_may_and_can_be_carried_and_wants_the_gil_goes_to_an_isolate(
    before: Choice, evidence: Evidence, machine: Machine
) -> None:
    if decide(before, evidence, machine).where == "isolate":
        assert evidence.portable
        assert machine.gil
        assert not evidence.parallel
        assert not evidence.waits


@given(standings, evidences, machines)
def test_the_same_evidence_leads_to_the_same_place_again(
    before: Choice, evidence: Evidence, machine: Machine
) -> None:
    once = decide(before, evidence, machine)
    assert decide(once, evidence, machine).where == once.where


@given(evidences, machines, times)
def test_an_isolate_never_gets_cheaper_by_carrying_more(
    evidence: Evidence, machine: Machine, more: float
) -> None:
    heavier = replace(
        evidence,
        carry_ns=evidence.carry_ns + more,
        hop_ns=evidence.hop_ns + more,
        size=evidence.size + int(more),
    )
    light, heavy = price(evidence, machine).isolate, price(heavier, machine).isolate
    assert light is None or (heavy is not None and heavy >= light * (1.0 - 1e-9))


def test_a_small_change_does_not_move_a_function_back() -> None:
    away = decide(Choice(), carried(10 * MS, 4 * MS), TWO_CORES)
    assert away.where == "isolate"
    close = carried(10 * MS, 4.8 * MS)
    assert decide(away, close, TWO_CORES).where == "isolate"
    assert decide(Choice(), close, TWO_CORES).where == "thread"
    assert decide(away, carried(10 * MS, 8 * MS), TWO_CORES).where == "thread"


def test_the_other_place_is_tried_again_at_growing_distances() -> None:
    evidence = carried(16 * MS, 1 * MS, holds=True)
    choice = decide(Choice(), evidence, TWO_CORES)
    distances = []
    while len(distances) < 8:
        calls = choice.again_at + 1
        later = decide(choice, replace(evidence, calls=calls), TWO_CORES)
        assert later.where == "isolate"
        distances.append(later.again_at - calls)
        choice = later
    assert distances == [min(AGAIN_FELT * 2**n, AGAIN_MAX) for n in range(1, 9)]


def test_a_thread_is_tried_again_sooner_where_the_function_was_never_seen_with_the_gil() -> None:
    unseen = carried(16 * MS, 1 * MS, classed=False)
    away = decide(Choice(), unseen, TWO_CORES)
    assert (away.where, away.again_at - unseen.calls) == ("isolate", AGAIN)


def test_a_function_is_tried_elsewhere_sooner_while_other_calls_wait_for_the_verdict() -> None:
    alone = computing(5.5 * MS, classed=False, calls=UNCLASSED_CROWD, measured=UNCLASSED_CROWD)
    assert decide(Choice(), alone, TWO_CORES).reason is PlacementReason.LEARNING
    crowd = replace(alone, crowd=True)
    assert decide(Choice(), crowd, TWO_CORES).reason is PlacementReason.TRIAL


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"portable": False}, False),
        ({"waits": True, "wait_ns": 50 * MS}, False),
        ({"parallel": True}, False),
        ({"cpu_ns": 1 * MS}, False),
        ({"size": 1 << 30}, False),
    ],
)
def test_isolates_are_started_ahead_where_one_call_shows_that_they_will_be_used(
    changes: dict[str, object], wanted: bool
) -> None:
    first = replace(computing(20 * MS, classed=False, calls=1, measured=1), **changes)  # type: ignore[arg-type]
    assert wants_isolate(decide(Choice(), first, TWO_CORES), first) is wanted


AGAIN_AT = 300
IN_THREAD = Choice(where="thread", reason=PlacementReason.CARRYING, again_at=AGAIN_AT)
IN_ISOLATE = Choice(where="isolate", reason=PlacementReason.HOLDS_GIL, again_at=AGAIN_AT)
TRIED_THERE = Choice(where="isolate", reason=PlacementReason.TRIAL, again_at=AGAIN_AT)


@pytest.mark.parametrize(
    ("choice", "calls", "carried", "retried_at", "expected"),
    [
        (Choice(), 0, 0, 0, ("thread", False)),
        (IN_THREAD, 299, 9, 0, ("thread", False)),
        (IN_THREAD, 300, 9, 0, ("isolate", True)),
        (IN_THREAD, 300, 0, 0, ("thread", True)),
        (IN_THREAD, 301, 9, 300, ("thread", False)),
        (IN_ISOLATE, 299, 9, 0, ("isolate", False)),
        (IN_ISOLATE, 300, 9, 0, ("thread", True)),
        (IN_ISOLATE, 301, 9, 300, ("isolate", False)),
        (replace(IN_THREAD, reason=PlacementReason.WAITS), 300, 9, 0, ("thread", True)),
        (replace(IN_THREAD, where="inline", reason=PlacementReason.SHORT), 300, 9, 0, ("thread", True)),
        (Choice(where="isolate", reason=PlacementReason.FORCED), 7, 7, 0, ("isolate", False)),
        (Choice(where="inline", reason=PlacementReason.FORCED), 7, 0, 0, ("thread", False)),
    ],
)
def test_the_other_place_is_tried_once_when_it_is_due(
    choice: Choice, calls: int, carried: int, retried_at: int, expected: tuple[str, bool]
) -> None:
    found = next_place(choice, calls=calls, carried=carried, retried_at=retried_at, warming=False)
    assert found == expected


@given(standings, st.integers(0, 100_000), st.integers(0, 1000), st.integers(0, 100_000), st.booleans())
def test_the_other_place_is_tried_no_sooner_and_no_second_time(
    choice: Choice, calls: int, carried: int, retried_at: int, warming: bool
) -> None:
    _, retries = next_place(choice, calls=calls, carried=carried, retried_at=retried_at, warming=warming)
    assert not retries or (calls >= choice.again_at and retried_at != choice.again_at)


def test_calls_on_trial_wait_in_threads_until_the_isolates_are_ready() -> None:
    def place(choice: Choice, *, warming: bool) -> tuple[str, bool]:
        return next_place(choice, calls=AGAIN_AT, carried=1, retried_at=AGAIN_AT, warming=warming)

    assert place(TRIED_THERE, warming=True) == ("thread", False)
    assert place(TRIED_THERE, warming=False) == ("isolate", False)
    assert place(IN_ISOLATE, warming=True) == ("isolate", False)
    assert (is_settled(TRIED_THERE, warming=True), is_settled(TRIED_THERE, warming=False)) == (False, True)
    assert (is_settled(Choice(), warming=False), is_settled(IN_ISOLATE, warming=True)) == (False, True)


def test_first_calls_are_all_judged_and_then_one_in_so_many() -> None:
    due = [seen for seen in range(1, 4 * OFTEN) if is_due(IN_THREAD, seen, seen - 1)]
    assert due == list(range(1, OFTEN + 1))
    assert [is_due(IN_THREAD, 20 + n, 20) for n in (OFTEN - 1, OFTEN)] == [False, True]
    assert is_due(Choice(), 100, 99)
