"""The governor looks at running calls: hand-off, learning by looks, cohorts, overdrafts.

Played by hand: the test moves the clock, says who computes, and lets the governor step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from hybridrt.governor import gil_evidence
from hybridrt.governor.sampler import OLD_GAP_NS
from hybridrt.observe.functions import SETTLED
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT
from hybridrt.pool.phase import Phase
from hybridrt.pool.rebalance import OVERDRAFT_NS, exchange_permit
from hybridrt.pool.scheduler import begin_next
from hybridrt.pool.state import ASSIGNED, QUEUED
from hybridrt.values import Kind

from .support import MS, Stage, make_call, named

PATIENCE = OVERDRAFT_NS / 1e9


# ---------------------------------------------------------------------- hand-off


def test_a_call_that_begins_to_wait_hands_its_permit_to_the_next(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.compute(first)
    stage.step(4 * MS, times=5)
    assert stage.running() == [first]
    stage.wait(first)
    stage.step(40 * MS, times=3)
    assert stage.running() == [first, second]
    assert stage.worker_of(first).permit == NONE


def test_a_call_that_computes_on_takes_a_permit_whatever_the_room(stage: Stage) -> None:
    """Running code cannot be paused: the count goes over its limit, and nobody else starts."""
    first, second, third = stage.push_many(3, stage.learn(Kind.LONG))
    stage.step(4 * MS, times=6)  # the first waits: the second starts, and waits too
    assert stage.running() == [first, second, third]
    stage.compute(first, second)
    stage.step(30 * MS, times=8)
    assert stage.worker_of(first).permit == LONG
    assert stage.worker_of(second).permit == LONG
    assert stage.permits.computing >= 2


def test_a_waiting_call_that_computes_for_a_millisecond_takes_a_short_permit(stage: Stage) -> None:
    call = stage.push(stage.learn(Kind.WAITING))
    stage.step(4 * MS, times=2)
    assert stage.worker_of(call).permit == NONE
    stage.compute(call)
    stage.step(3 * MS, times=4)
    assert stage.worker_of(call).permit == SHORT
    stage.wait(call)
    stage.step(40 * MS, times=4)
    assert stage.worker_of(call).permit == NONE


def test_a_call_that_waits_for_the_gil_keeps_its_permit(stage: Stage) -> None:
    """No CPU time, but the governor itself came late and the kernel wakes the thread to ask again."""
    first, _ = stage.push_many(2, stage.learn(Kind.LONG))
    probe = stage.probe_of(first)
    for number in range(int(0.8 * PATIENCE / (5 * MS))):
        probe.ins = number
        stage.step(5 * MS, prompt=False)
    assert stage.running() == [first]


def test_a_sleeper_among_computing_calls_is_found_by_its_standstill(stage: Stage) -> None:
    """The governor is late all the time, but the kernel has not touched the thread."""
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.probe_of(first).ins = 7
    stage.step(8 * MS, prompt=False, times=12)
    assert stage.running() == [first, second]


def test_where_threads_have_no_clock_a_quiet_process_means_waiting(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.probe_of(first).has_clock = False
    stage.step(4 * MS, times=3)
    assert stage.running() == [first, second]


def test_a_call_that_is_ready_and_has_no_core_keeps_its_permit(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    stage.probe_of(first).runnable = True
    stage.step(PATIENCE / 10, times=9)
    assert stage.running() == [first]
    stage.probe_of(first).runnable = None  # a platform that does not tell
    stage.step(40 * MS, times=2)
    assert stage.running() == [first, second]


def test_saying_that_a_call_waits_hands_the_permit_over_at_once(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    worker = stage.worker_of(first)
    assert exchange_permit(worker, NONE) == LONG
    assert stage.running() == [first, second]
    assert exchange_permit(worker, LONG) == NONE
    assert stage.permits.held[LONG] == 2


def test_a_permit_taken_beyond_the_limit_is_given_back_in_full(stage: Stage) -> None:
    first, second = stage.push_many(2, stage.learn(Kind.LONG))
    worker = stage.worker_of(first)
    exchange_permit(worker, NONE)
    exchange_permit(worker, LONG)
    for call in (first, second):
        stage.end(call)
    assert stage.permits.held == [0, 0, 0, 0]


def test_a_short_call_that_computes_for_twenty_milliseconds_is_long(stage: Stage) -> None:
    fn = stage.learn(Kind.SHORT)
    first = stage.push(fn)
    stage.compute(first)
    stage.step(5 * MS, times=3)
    assert stage.worker_of(first).permit == SHORT
    stage.step(10 * MS, times=2)
    assert stage.worker_of(first).permit == LONG
    assert stage.pool.profiles.of(fn).kind is Kind.LONG


def test_a_long_call_makes_room_for_a_short_one_as_soon_as_it_is_known_to_be_long(stage: Stage) -> None:
    short = stage.learn(Kind.SHORT)
    first, second = stage.push(stage.learn(Kind.SHORT, "turns_out_long")), stage.push(short)
    assert stage.running() == [first]
    stage.compute(first)
    stage.step(10 * MS, times=4)
    assert stage.running() == [first, second]


def test_calls_younger_than_two_milliseconds_are_not_looked_at(stage: Stage) -> None:
    first = stage.push(stage.learn(Kind.LONG))
    stage.step(1 * MS)
    assert stage.worker_of(first).sample is None
    stage.step(1 * MS)
    assert stage.worker_of(first).sample.looked


def test_a_call_that_stays_as_it_is_is_looked_at_ever_more_rarely(stage: Stage) -> None:
    first = stage.push(stage.learn(Kind.WAITING))
    worker = stage.worker_of(first)
    looks = []
    for _ in range(400):
        stage.step(2 * MS)
        if worker.sample is not None and worker.sample.at_ns == stage.clock.now_ns:
            looks.append(stage.clock.now_ns)
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert gaps == sorted(gaps)
    assert gaps[:5] == [4_000_000, 8_000_000, 16_000_000, 32_000_000, 64_000_000]


def test_a_call_that_waits_for_long_is_looked_at_after_an_eighth_of_its_age(stage: Stage) -> None:
    call = stage.push(stage.learn(Kind.WAITING))
    stage.step(64 * MS, times=16)
    sample = stage.worker_of(call).sample
    assert 64_000_000 < sample.gap_ns <= stage.clock.now_ns // 8
    stage.step(500 * MS, times=20)
    assert sample.gap_ns == OLD_GAP_NS


def waiting_for(stage: Stage, *, cpu: float) -> Callable[..., Any]:
    """Return a function that is known to wait for 50 ms and to compute for `cpu` seconds."""
    fn = stage.learn(Kind.WAITING)
    profile = stage.pool.profiles.of(fn)
    profile.settled, profile.calls, profile.wall_ns = SETTLED, 10, 10 * 50_000_000
    profile.cpu_mean_ns = int(cpu * 1e9)
    profile.wait_mean_ns = 50_000_000 - profile.cpu_mean_ns
    return fn


def test_a_call_that_is_known_to_wait_is_let_alone_for_twice_its_usual_time(stage: Stage) -> None:
    call = stage.push(waiting_for(stage, cpu=0.0))
    stage.compute(call)
    stage.step(16 * MS, times=6)
    assert stage.worker_of(call).sample is None
    stage.step(16 * MS)
    assert stage.worker_of(call).permit == LONG


def test_the_usual_time_is_that_of_the_last_calls_not_of_an_hour_ago(stage: Stage) -> None:
    fn = waiting_for(stage, cpu=0.0)
    stage.pool.profiles.of(fn).wall_ns += 10 * 30_000_000_000  # a server was down
    call = stage.push(fn)
    stage.compute(call)
    stage.step(16 * MS, times=7)
    assert stage.worker_of(call).permit == LONG


def test_a_call_known_to_wait_that_computes_first_tells_what_it_does_with_the_gil(stage: Stage) -> None:
    fn = waiting_for(stage, cpu=0.01)
    stage.compute(stage.push(fn))
    stage.step(4 * MS, times=3, prompt=True)
    assert stage.pool.profiles.of(fn).gil.free == 3


@pytest.mark.parametrize("missed", ["woken early", "the lock was taken", "too young to tell"])
def test_such_a_call_is_asked_at_the_next_look_if_this_one_told_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, missed: str
) -> None:
    fn, governor = waiting_for(stage, cpu=0.01), stage.budget.governor
    gil = stage.pool.profiles.of(fn).gil
    stage.step(4 * MS, prompt=True)
    stage.compute(stage.push(fn))
    stage.clock.advance(0.05 * MS if missed == "too young to tell" else 4 * MS)
    with monkeypatch.context() as taken:
        if missed == "the lock was taken":
            read, lock = governor.native.read, stage.budget.lock
            taken.setattr(governor.native, "read", lambda *a, **k: (lock.release(), read(*a, **k))[1])
            lock.acquire()
        governor.step(stage.clock.now_ns, 0, prompt=True, slept=missed != "woken early")
    assert gil.free == 0
    stage.step(4 * MS, prompt=True)
    assert gil.free == 1


def test_such_a_call_is_not_asked_again_once_it_was_seen_to_wait(stage: Stage) -> None:
    fn = waiting_for(stage, cpu=0.01)
    call = stage.push(fn)
    stage.step(4 * MS, prompt=True)
    stage.compute(call)
    stage.step(4 * MS, prompt=True)
    assert stage.pool.profiles.of(fn).gil.free == 0


@pytest.mark.parametrize(("cpu", "peeks"), [(0.01, 1), (0.00005, 0)])
def test_of_a_call_known_to_wait_that_does_so_the_clock_is_read_once_if_at_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, cpu: float, peeks: int
) -> None:
    call, reads = stage.push(waiting_for(stage, cpu=cpu)), []
    monkeypatch.setattr(stage.probe_of(call), "cpu_ns", lambda: reads.append(1) or 0)
    stage.step(4 * MS, times=4)
    assert len(reads) == peeks


def test_of_any_other_call_it_is_read_at_every_step_before_the_first_look(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn = waiting_for(stage, cpu=0.01)
    stage.pool.profiles.of(fn).kind = Kind.LONG
    call, reads = stage.push(fn), []
    monkeypatch.setattr(stage.probe_of(call), "cpu_ns", lambda: reads.append(1) or 0)
    monkeypatch.setattr(gil_evidence, "_WATCHES_AT_ONCE", 0)  # which is another reading
    stage.step(4 * MS, times=3)
    assert len(reads) == 3


def test_a_call_whose_function_turns_out_not_to_wait_is_looked_at_soon(stage: Stage) -> None:
    fn = stage.learn(Kind.WAITING)
    profile = stage.pool.profiles.of(fn)
    profile.settled, profile.calls, profile.wall_ns = SETTLED, 10, 10 * 9_000_000_000
    profile.wait_mean_ns = 9_000_000_000
    call = stage.push(fn)
    stage.step(16 * MS, times=2)
    profile.kind, profile.settled = Kind.SHORT, 0
    stage.step(16 * MS, times=4)
    assert stage.worker_of(call).sample.looked


def test_the_next_call_of_a_worker_is_followed_from_its_own_start(stage: Stage) -> None:
    fn = stage.learn(Kind.WAITING)
    first = stage.push(fn)
    stage.step(64 * MS, times=16)
    worker = stage.worker_of(first)
    stage.end(first)
    second = stage.push(fn)
    assert stage.worker_of(second) is worker
    stage.step(1 * MS)
    assert worker.sample.started_ns == first.started_ns
    stage.step(2 * MS)
    assert worker.sample.started_ns == second.started_ns
    assert (worker.sample.looked, worker.sample.gap_ns, worker.sample.still) == (True, 4_000_000, 1)


# ---------------------------------------------------------------------- the GIL class


def test_a_computing_function_beside_which_the_governor_is_always_prompt_leaves_the_gil_free(
    stage: Stage,
) -> None:
    fn = stage.learn(Kind.LONG)
    first, second, third = stage.push_many(3, fn)
    for _ in range(12):
        stage.compute(*stage.running())
        stage.step(20 * MS, prompt=True)
    assert stage.pool.profiles.of(fn).kind is Kind.FREE
    assert stage.worker_of(first).permit == FREE
    assert stage.running() == [first, second]  # two cores
    assert third not in stage.running()


def test_a_computing_function_that_makes_the_governor_late_holds_the_gil(stage: Stage) -> None:
    fn = stage.learn(Kind.LONG)
    first = stage.push(fn)
    stage.compute(first)
    stage.step(20 * MS, times=12, prompt=False)
    assert stage.pool.profiles.of(fn).kind is Kind.LONG
    assert stage.pool.profiles.of(fn).gil.taken > 0


def test_a_call_that_goes_on_while_the_governor_has_the_gil_leaves_it_to_others(stage: Stage) -> None:
    """A busy loop had it when the governor woke."""
    fn = stage.learn(Kind.LONG)
    first = stage.push(fn)
    stage.compute(first)
    stage.probe_of(first).runnable = True
    stage.step(20 * MS, times=12, prompt=False)
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.free > 0, gil.taken, gil.releases) == (True, 0, True)


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize(("sleeps_after", "free"), [(20_000, 0), (None, 12)])
def test_a_call_that_has_just_lost_the_gil_is_not_taken_for_one_that_does_without(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, prompt: bool, sleeps_after: int | None, free: int
) -> None:
    """Its thread computes on until it sleeps; the kernel may call it runnable, as it gets the GIL again."""
    fn, clock = stage.learn(Kind.LONG), stage.clock
    call = stage.push(fn)
    probe, until_ns = stage.probe_of(call), 0

    def wall_ns() -> int:
        clock.now_ns += 100
        if sleeps_after is not None and clock.now_ns >= until_ns:
            probe.turn(computes=False)
        return clock.now_ns

    probe.runnable = True
    monkeypatch.setattr(clock, "wall_ns", wall_ns)
    for _ in range(12):
        probe.turn(computes=True)
        until_ns = clock.now_ns + 20_000_000 + (sleeps_after or 0)
        stage.step(20 * MS, prompt=prompt)
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.free, gil.taken) == (free, 0)


@pytest.mark.parametrize("runnable", [False, True])
@pytest.mark.parametrize(
    ("others", "delay", "held"),
    [
        pytest.param(0.0, 0.018, 8_000_000, id="it alone has computed"),
        pytest.param(0.01, 0.018, 0, id="others have, too"),
        pytest.param(0.0, 0.01, 0, id="it may have computed before the governor waited"),
    ],
)
def test_a_call_without_a_core_held_the_gil_if_nobody_else_computed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, runnable: bool, others: float, delay: float, held: int
) -> None:
    """It computes for 10 of 20 ms, as where two processes share a core."""
    fn, governor, spent = stage.learn(Kind.LONG), stage.budget.governor, 0.0
    monkeypatch.setattr("hybridrt.governor.governor.switch_interval_ns", lambda: 100_000)
    monkeypatch.setattr(stage.clock, "wall_ns", lambda: stage.clock.advance(1e-7) or stage.clock.now_ns)
    for _ in range(4):
        governor.step(stage.clock.now_ns, int(spent * 1e9), prompt=True)
        call = stage.push(fn)
        stage.compute(call)
        stage.clock.advance(10 * MS)
        stage.wait(call)
        stage.probe_of(call).runnable = runnable
        stage.clock.advance(10 * MS)
        spent += 10 * MS + others
        governor.step(stage.clock.now_ns, int(spent * 1e9), prompt=False, delay_ns=int(delay * 1e9))
        stage.end(call)
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.free, gil.yielded, gil.held) == (0, 0, 4 if held else 0)
    assert gil.longest_hold_ns == held


def test_a_call_that_ends_while_the_governor_looks_elsewhere_is_judged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The governor loses the GIL again after one switch interval, before it has sampled the pool."""
    fn, governor = stage.learn(Kind.LONG), stage.budget.governor
    monkeypatch.setattr("hybridrt.governor.governor.switch_interval_ns", lambda: 100_000)
    read = governor.native.read
    monkeypatch.setattr(
        governor.native, "read", lambda *a, **k: (stage.end(stage.calls[-1]), read(*a, **k))[1]
    )
    for turn in range(4):
        stage.compute(stage.push(fn))
        stage.clock.advance(10 * MS)
        governor.step(stage.clock.now_ns, (turn + 1) * 10_000_000, prompt=False, delay_ns=5_000_000)
        assert stage.running() == []
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.held, gil.longest_hold_ns) == (4, 5_000_000)
    assert governor._learns


def test_where_the_lock_is_taken_as_it_wakes_its_owner_had_the_gil_and_no_call_is_judged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, governor = stage.learn(Kind.LONG), stage.budget.governor
    stage.compute(stage.push(fn))
    read, lock = governor.native.read, stage.budget.lock
    monkeypatch.setattr(governor.native, "read", lambda *a, **k: (lock.release(), read(*a, **k))[1])
    stage.clock.advance(10 * MS)
    lock.acquire()
    governor.step(stage.clock.now_ns, 10_000_000, prompt=False, delay_ns=5_000_000)
    gil = stage.pool.profiles.of(fn).gil
    assert (gil.free, gil.taken) == (0, 0)


def test_without_a_gil_nobody_is_judged_by_it() -> None:
    stage = Stage(gil=False, cores=2)
    fn = stage.learn(Kind.LONG)
    stage.compute(stage.push(fn))
    stage.step(20 * MS, times=12, prompt=True)
    assert stage.pool.profiles.of(fn).kind is Kind.LONG


# ---------------------------------------------------------------------- cohorts


def test_an_unknown_function_starts_with_one_call(stage: Stage) -> None:
    calls = stage.push_many(50, named("unknown"))
    assert stage.running() == calls[:1]


def test_unknown_waiting_calls_start_in_doubling_cohorts(stage: Stage) -> None:
    stage.push_many(50, named("unknown"))
    sizes = [len(stage.running())]
    for _ in range(150):
        stage.step(2 * MS)
        if len(stage.running()) != sizes[-1]:
            sizes.append(len(stage.running()))
    assert sizes[:3] == [1, 3, 7]  # twice as many as were seen to wait; then it is known to
    assert sizes[-1] == 50


def test_the_cohort_of_one_function_does_not_hold_up_another(stage: Stage) -> None:
    endless = stage.push(named("endless"))
    stage.compute(endless)
    stage.step(10 * MS, times=3)
    other = stage.push(named("other"))
    assert stage.running() == [endless, other]


def test_an_unknown_function_seen_to_compute_starts_no_second_call(stage: Stage) -> None:
    calls = stage.push_many(4, named("unknown"))
    stage.compute(calls[0])
    stage.step(10 * MS, times=20)
    assert stage.running() == calls[:1]


def test_a_cancelled_unknown_call_makes_room_for_the_next(stage: Stage) -> None:
    """Withdrawn before its worker claimed it: nothing was learned, and nobody is unjudged."""
    fn = named("unknown")
    first, second = (make_call(stage.pool, fn), make_call(stage.pool, fn))
    stage.pool.push(first)
    stage.pool.push(second)
    assert (first.state, second.state) == (ASSIGNED, QUEUED)
    (worker,) = stage.pool.roster.workers
    assert first.cancel()
    begin_next(stage.pool, worker)  # its thread finds nothing to claim
    assert second.state == ASSIGNED
    assert stage.pool.profiles.of(fn).unclassified == 1


def test_an_unknown_call_whose_worker_dies_makes_room_for_the_next(stage: Stage) -> None:
    fn = named("unknown")
    first, second = stage.push_many(2, fn)
    stage.kill(first)
    assert stage.running() == [second]
    assert stage.pool.profiles.of(fn).unclassified <= 1


# ---------------------------------------------------------------------- batches


def test_very_short_calls_go_to_one_worker_together(stage: Stage) -> None:
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    calls = stage.push_many(10, fn)
    stage.end(blocker)
    worker = stage.worker_of(calls[0])
    assert list(worker.batch) == calls[1:4]
    assert stage.pool.queued == 6
    assert stage.permits.held[SHORT] == 1


def test_a_batch_whose_call_takes_long_gives_the_rest_back_in_order(stage: Stage) -> None:
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    calls = stage.push_many(6, fn)
    stage.end(blocker)
    worker = stage.worker_of(calls[0])
    stage.step(4 * MS)
    assert not worker.batch
    assert stage.pool.queued == 5
    stage.step(4 * MS, times=2)  # it is seen to wait: the next goes on with its permit
    assert stage.running()[:2] == calls[:2]


def test_a_batch_whose_call_stands_in_line_for_a_permit_lets_the_others_go(stage: Stage) -> None:
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    calls, ended = stage.push_many(4, fn), make_call(stage.pool, fn)
    stage.end(blocker)
    worker = stage.worker_of(calls[0])
    ended.quick, ended.value = True, "ended before it"
    worker.held.append(ended)
    exchange_permit(worker, NONE)
    worker.phase = Phase(asking=object())
    stage.step(4 * MS)
    assert not worker.batch
    assert stage.running() == calls[:2]
    assert ended.result(0) == "ended before it"


def test_a_call_with_a_gate_begins_no_batch(stage: Stage) -> None:
    fn, limiter = stage.learn(Kind.SHORT), Limiter(1, "limiter")
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    gated = stage.push(fn, limiters=(limiter,))
    calls = stage.push_many(2, fn)
    stage.end(blocker)
    assert stage.running() == [gated]
    assert not stage.worker_of(gated).batch
    stage.end(gated)
    assert limiter.active == 0
    assert stage.running() == calls[:1]


def test_a_call_with_a_gate_does_not_go_in_a_batch(stage: Stage) -> None:
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    first = stage.push(fn)
    gated = stage.push(fn, limiters=(Limiter(1, "limiter"),))
    stage.end(blocker)
    assert not stage.worker_of(first).batch
    assert gated not in stage.running()


@pytest.mark.parametrize("which", [0, 1])
def test_a_call_with_a_callback_of_somebody_does_not_go_in_a_batch(stage: Stage, which: int) -> None:
    fn = stage.learn(Kind.SHORT)
    stage.pool.profiles.of(fn).batch = 4
    blocker = stage.push(stage.learn(Kind.SHORT, "blocker"))
    first, _ = calls = stage.push_many(2, fn)
    calls[which].add_done_callback(print)
    stage.end(blocker)
    assert not stage.worker_of(first).batch


def test_the_switch_interval_is_set_before_threads_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask for the GIL at once, and by their number the interval goes."""
    order: list[str] = []
    monkeypatch.setattr("hybridrt.governor.governor._let_go", lambda *_: order.append("threads"))
    monkeypatch.setattr(stage.budget.shield, "step", lambda *_, **__: order.append("interval"))
    stage.step()
    assert order == ["interval", "threads"]


def test_a_call_that_lets_the_loop_go_first_before_a_phase_keeps_its_permit(stage: Stage) -> None:
    """It has the permit, and stands still until the loop is done."""
    fn = stage.learn(Kind.WAITING)
    stage.pool.profiles.of(fn).gated = True
    call = stage.push(fn)
    worker = stage.worker_of(call)
    stage.step(10 * MS, times=2)
    exchange_permit(worker, SHORT)
    worker.phase = Phase(within=True)
    stage.step(4 * MS, times=8)
    assert (worker.permit, stage.pool.profiles.of(fn).misses) == (SHORT, 0)
    worker.phase.within = False
    stage.step(4 * MS, times=8)
    assert worker.permit == NONE
