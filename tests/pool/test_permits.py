"""Permits: how many calls may compute at once, and which queued call goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.pool import state as state_module
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT, Permits
from hybridrt.values import Kind

from .support import MS, Stage, named


@pytest.fixture
def permits() -> Permits:
    return Permits(gil=True, cores=4)


# ---------------------------------------------------------------------- the counts


def test_under_a_gil_one_long_and_one_short_call_compute_together(permits: Permits) -> None:
    permits.take(LONG)
    assert not permits.has_room(LONG)
    assert permits.has_room(SHORT)
    permits.take(SHORT)
    assert not permits.has_room(SHORT)
    assert permits.computing == 2


def test_under_a_gil_a_long_call_may_join_a_short_one(permits: Permits) -> None:
    permits.take(SHORT)
    assert not permits.has_room(SHORT)
    assert permits.has_room(LONG)


def test_a_call_that_leaves_the_gil_free_is_limited_by_the_cores_alone(permits: Permits) -> None:
    permits.take(LONG)
    permits.take(SHORT)
    for _ in range(4):
        assert permits.has_room(FREE)
        permits.take(FREE)
    assert not permits.has_room(FREE)
    assert permits.computing == 2


def test_without_a_permit_there_is_always_room(permits: Permits) -> None:
    for permit in (SHORT, LONG, FREE) * 3:
        permits.take(permit)
    assert permits.has_room(NONE)


def test_without_a_gil_the_cores_limit_computing_calls() -> None:
    permits = Permits(gil=False, cores=4)
    for _ in range(4):
        assert permits.has_room(LONG)
        permits.take(LONG)
    assert not permits.has_room(LONG)
    assert permits.has_room(SHORT)
    permits.take(SHORT)
    assert not permits.has_room(SHORT)


def test_a_long_call_beyond_the_limit_keeps_unknown_calls_out_and_short_ones_in(permits: Permits) -> None:
    permits.take(LONG)
    assert permits.has_room_for_unknown()
    permits.take(LONG)
    assert not permits.has_room_for_unknown()
    assert permits.has_room(SHORT)


def test_only_a_permit_given_back_counts_as_a_move(permits: Permits) -> None:
    permits.take(SHORT)
    permits.take(LONG)
    assert permits.moves == 0
    permits.give_back(LONG)
    permits.give_back(SHORT)
    assert permits.moves == 2
    assert permits.held == [0, 0, 0, 0]


def test_lifted_permits_leave_room_for_everything(permits: Permits) -> None:
    for permit in (SHORT, LONG, FREE) * 9:
        permits.take(permit)
    permits.lifted = True
    assert all(permits.has_room(permit) for permit in (NONE, SHORT, LONG, FREE))
    assert permits.has_room_for_unknown()


@given(
    st.booleans(), st.integers(1, 8), st.lists(st.tuples(st.sampled_from([SHORT, LONG, FREE]), st.booleans()))
)
def test_who_asks_first_never_takes_more_than_there_are(
    gil: bool, cores: int, steps: list[tuple[int, bool]]
) -> None:
    permits = Permits(gil=gil, cores=cores)
    capacity = 1 if gil else cores
    for permit, takes in steps:
        if takes and permits.has_room(permit):
            permits.take(permit)
        elif not takes and permits.held[permit]:
            permits.give_back(permit)
        assert permits.held[LONG] <= capacity
        assert permits.computing <= capacity + 1
        assert permits.held[FREE] <= cores


# ---------------------------------------------------------------------- the lanes


def test_computing_calls_run_one_at_a_time_in_the_order_of_their_submission(stage: Stage) -> None:
    calls = stage.push_many(5, stage.learn(Kind.LONG))
    for number in range(5):
        assert stage.running() == [calls[number]]
        stage.end(calls[number])
    assert stage.permits.held == [0, 0, 0, 0]


def test_one_short_call_runs_beside_a_long_one(stage: Stage) -> None:
    long = stage.push_many(2, stage.learn(Kind.LONG))
    short = stage.push_many(2, stage.learn(Kind.SHORT))
    assert stage.running() == [long[0], short[0]]
    stage.end(short[0])
    assert stage.running() == [long[0], short[1]]
    stage.end(long[0])
    assert stage.running() == [long[1], short[1]]


def test_waiting_calls_all_run_beside_computing_ones(stage: Stage) -> None:
    stage.push_many(4, stage.learn(Kind.LONG))
    size = stage.pool.sizing.state.workers
    waiting = stage.push_many(size, stage.learn(Kind.WAITING))
    assert len(stage.running()) == size + 1
    assert set(waiting) < set(stage.running())


def test_waiting_calls_are_limited_by_the_size_decided(stage: Stage) -> None:
    size = stage.pool.sizing.state.workers
    calls = stage.push_many(size + 8, stage.learn(Kind.WAITING))
    assert stage.running() == calls[:size]
    stage.end(calls[5])
    assert len(stage.running()) == size
    assert calls[size] in stage.running()


def test_calls_that_leave_the_gil_free_use_all_cores(stage: Stage) -> None:
    calls = stage.push_many(3, stage.learn(Kind.FREE))
    stage.push(stage.learn(Kind.LONG))
    assert len(stage.running()) == 3
    assert calls[2] not in stage.running()


def test_without_a_gil_as_many_calls_compute_as_there_are_cores() -> None:
    stage = Stage(gil=False, cores=3)
    calls = stage.push_many(5, stage.learn(Kind.LONG))
    assert stage.running() == calls[:3]


def test_what_a_look_makes_of_a_function_lets_its_queued_calls_start() -> None:
    """The call that is looked at keeps its permit; those behind it need another one than before."""
    stage = Stage(gil=False, cores=2)
    fn = stage.learn(Kind.LONG)
    first = stage.push(fn)
    stage.compute(first)
    stage.step(5 * MS, times=3)
    stage.pool.profiles.of(fn).kind = Kind.SHORT  # as a window of short calls would have it
    second, third = stage.push(stage.learn(Kind.SHORT)), stage.push(fn)
    stage.compute(second)
    assert stage.running() == [first, second]
    stage.step(4 * MS, times=4)
    assert stage.running() == [first, second, third]


def test_known_short_calls_go_before_known_long_ones() -> None:
    stage = Stage(options={"max_workers": 2})
    holders = stage.push_many(2, stage.learn(Kind.WAITING))
    long = stage.push(stage.learn(Kind.LONG))
    short = stage.push(stage.learn(Kind.SHORT))
    stage.end(holders[0])
    assert stage.running() == [holders[1], short]
    stage.end(holders[1])
    assert stage.running() == [long, short]


def test_an_unknown_and_a_short_call_go_by_their_age() -> None:
    for older_is_short in (True, False):
        stage = Stage(options={"max_workers": 2})
        holders = stage.push_many(2, stage.learn(Kind.WAITING))
        short, unknown = stage.learn(Kind.SHORT), named("unknown")
        older = stage.push(short if older_is_short else unknown)
        stage.clock.advance(1.0)
        younger = stage.push(unknown if older_is_short else short)
        stage.end(holders[0])
        assert older in stage.running()
        assert younger not in stage.running()


def test_a_call_queued_while_its_function_was_unknown_goes_by_what_is_known_by_now(stage: Stage) -> None:
    fn = named("becomes_waiting")
    calls = stage.push_many(1 + stage.pool.sizing.state.workers, fn)
    assert stage.running() == calls[:1]
    stage.clock.advance(0.020)
    stage.end(calls[0])  # it used no CPU: a waiting function
    assert stage.pool.profiles.of(fn).kind is Kind.WAITING
    assert stage.running() == calls[1:]


def test_a_permit_given_back_in_one_pool_starts_a_call_of_another(stage: Stage) -> None:
    other = stage.add_pool()
    first = stage.push(stage.learn(Kind.LONG))
    second = stage.push(stage.learn(Kind.LONG, pool=other), pool=other)
    assert stage.running() == [first]
    stage.end(first)
    assert stage.running() == [second]


def test_pools_that_compete_for_a_permit_take_turns(stage: Stage) -> None:
    other = stage.add_pool()
    mine = stage.push_many(4, stage.learn(Kind.LONG))
    stage.push_many(4, stage.learn(Kind.LONG, pool=other), pool=other)
    turns = []
    while running := stage.running():
        (call,) = running
        turns.append(call in mine)
        stage.end(call)
    assert turns == [True, False] * 4


def test_of_three_pools_none_is_passed_over(stage: Stage) -> None:
    pools = [stage.pool, stage.add_pool(), stage.add_pool()]
    for pool in pools:
        stage.push_many(3, stage.learn(Kind.SHORT, pool=pool), pool=pool)
    turns = []
    while running := stage.running():
        (call,) = running
        turns.append(pools.index(call.pool))  # type: ignore[arg-type]
        stage.end(call)
    assert turns == [0, 1, 2] * 3


@pytest.mark.parametrize("kind", [Kind.LONG, Kind.SHORT, Kind.FREE, Kind.WAITING])
def test_the_end_of_a_call_gives_everything_back(stage: Stage, kind: Kind) -> None:
    for quick in (True, False):
        call = stage.push(stage.learn(kind))
        stage.end(call, quick=quick)
    assert stage.permits.held == [0, 0, 0, 0]
    assert (stage.pool.busy, stage.pool.waiting, stage.pool.queued) == (0, 0, 0)
    assert not stage.budget.waiting_for_permit


def test_a_worker_that_dies_in_its_call_gives_everything_back(stage: Stage) -> None:
    calls = stage.push_many(2, stage.learn(Kind.LONG))
    stage.kill(calls[0])
    assert stage.running() == [calls[1]]
    stage.end(calls[1])
    assert stage.permits.held == [0, 0, 0, 0]
    assert stage.pool.busy == 0


def test_never_more_than_max_workers_calls_run_whatever_their_kind() -> None:
    stage = Stage(options={"max_workers": 3})
    calls = stage.push_many(9, stage.learn(Kind.WAITING))
    stage.push(stage.learn(Kind.SHORT))
    assert stage.running() == calls[:3]
    assert len(stage.pool.roster.workers) == 3


def test_once_the_interpreter_ends_no_call_that_comes_back_gets_a_permit(permits: Permits) -> None:
    permits.ended = True
    assert permits.has_room(SHORT)
    assert not permits.has_room_to_return(SHORT, None)
    permits.ask(SHORT, NeverGranted())
    permits.hand_on()
    assert (permits.waits, permits.held[SHORT]) == (1, 0)
    permits.forget()
    assert permits.has_room_to_return(SHORT, None)


class NeverGranted:
    """A call in the line that no permit is to reach."""

    gil_share = None

    def granted_locked(self, permit: int) -> bool:
        raise AssertionError("it was handed a permit")


def test_calls_in_line_for_a_permit_make_no_room_among_those_of_another_pool_that_wait() -> None:
    stage = Stage()
    for _ in range(100):
        stage.permits.ask(SHORT, NeverGranted())
    size = stage.pool.sizing.state.workers
    calls = stage.push_many(2 * size, stage.learn(Kind.WAITING))
    assert stage.running() == calls[:size]


def test_a_gil_that_an_extension_switches_on_counts_from_the_next_look_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_module, "gil_enabled", lambda: True)
    stage = Stage(gil=False, cores=4)
    stage.step(prompt=True)
    assert not stage.budget.gil  # what was given is not asked for
    stage.budget._asks_gil = True
    stage.budget.governor.look_soon_locked()
    stage.step(MS, prompt=True)
    assert (stage.budget.gil, stage.permits.capacity, stage.pool.limits.capacity) == (True, 1, 1)
