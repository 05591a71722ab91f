"""A permit for every computing phase: given back before a wait, asked for after it, with a bound on that.

No governor looks here, so that whatever happens is said from within: by `blocking()`, or at a known site.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, blocking
from hybridrt.executor.budget import GovernedBudget
from hybridrt.observe.functions import Profile
from hybridrt.pool import phases, site_events
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT, Permits
from hybridrt.pool.phases import enter, leave
from hybridrt.pool.rebalance import exchange_permit
from hybridrt.pool.site_events import SiteEvents, is_never_site
from hybridrt.pool.state import Pool
from hybridrt.pool.worker import current_worker
from hybridrt.values import Kind, PhaseReason

from .racing import end, known, open_pool, pool_with_site, site_of, submit
from .support import DEADLINE, Asking, make_pool, until

needs_monitoring = pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")


@pytest.fixture
def permits() -> Permits:
    return Permits(gil=True, cores=2)


# ---------------------------------------------------------------------- the line


def test_a_permit_given_back_goes_to_the_first_in_the_line(permits: Permits) -> None:
    permits.take(SHORT)
    first, second = Asking(), Asking()
    permits.ask(SHORT, first)
    permits.ask(SHORT, second)
    permits.give_back(SHORT)
    assert (first.permit, second.permit, permits.held[SHORT], permits.waits) == (SHORT, NONE, 1, 1)


def test_nobody_goes_ahead_of_the_line(permits: Permits) -> None:
    permits.take(SHORT)
    permits.ask(SHORT, Asking())
    assert not permits.has_room_to_return(SHORT, None)
    permits.lifted = True  # a governor that failed hands nothing over
    assert permits.has_room_to_return(SHORT, None)


def test_lines_of_different_permits_do_not_wait_for_each_other(permits: Permits) -> None:
    permits.take(SHORT)
    permits.ask(SHORT, Asking())
    assert permits.has_room_to_return(LONG, None)
    assert permits.has_room_to_return(FREE, None)


def test_a_call_that_is_over_leaves_its_turn_to_the_next(permits: Permits) -> None:
    permits.take(SHORT)
    over, next_one = Asking(over=True), Asking()
    permits.ask(SHORT, over)
    permits.ask(SHORT, next_one)
    permits.give_back(SHORT)
    assert (next_one.permit, permits.held[SHORT], permits.waits) == (SHORT, 1, 0)


def test_a_queued_call_has_its_turn_after_some_that_came_back(permits: Permits) -> None:
    permits.queued = {"a pool": None}
    permits.take(SHORT)
    line = [Asking() for _ in range(8)]
    for one in line:
        permits.ask(SHORT, one)
    for _ in range(4):
        permits.give_back(SHORT)
    assert [one.permit for one in line] == [SHORT] * 4 + [NONE] * 4
    permits.give_back(SHORT)
    assert permits.left
    assert permits.held[SHORT] == 0  # for the queued one
    permits.hand_on()  # which has not taken it
    assert (line[4].permit, permits.held[SHORT], permits.left) == (SHORT, 1, False)


def test_exchanging_a_permit_lets_the_line_have_the_old_one_only(permits: Permits) -> None:
    permits.take(SHORT)
    first, second = Asking(), Asking()
    permits.ask(SHORT, first)
    permits.ask(SHORT, second)
    permits.take(LONG)
    permits.give_back(SHORT)
    assert (first.permit, second.permit, permits.held) == (SHORT, NONE, [0, 1, 1, 0])


def test_where_memory_is_lacking_a_permit_is_given_back_or_not_at_all(permits: Permits) -> None:
    class Lacking(int):
        def __add__(self, other: int) -> int:
            raise MemoryError

    permits.take(SHORT)
    permits.moves = Lacking(0)
    with pytest.raises(MemoryError):
        permits.give_back(SHORT)
    assert permits.held[SHORT] == 1


def test_a_call_that_could_not_be_granted_its_permit_stays_in_the_line(permits: Permits) -> None:
    class Struck(Asking):
        def granted_locked(self, permit: int) -> bool:
            raise KeyboardInterrupt

    permits.take(SHORT)
    struck = Struck()
    permits.ask(SHORT, struck)
    with pytest.raises(KeyboardInterrupt):
        permits.give_back(SHORT)
    assert [*permits.lines[SHORT]] == [struck]
    permits.withdraw(SHORT, struck)
    assert permits.waits == 0


def test_a_call_that_could_not_stand_in_line_stands_there_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, holds = threading.Event(), threading.Event()
    found: list[object] = []

    def lacks() -> None:
        raise MemoryError

    def turns() -> None:
        worker = current_worker()
        assert worker is not None
        assert worker.call is not None
        leave(worker, worker.call)
        assert waits.wait(DEADLINE)
        with pytest.raises(MemoryError):
            enter(worker, worker.call)
        assert worker.phase is not None
        found.append(worker.phase.asking)

    with open_pool() as pool:
        known(pool, turns, Kind.SHORT)
        known(pool, holds.wait, Kind.SHORT)
        call = submit(pool, turns)
        until(lambda: pool.budget.permits.held[SHORT] == 0 and pool.busy == 1, "it waits")
        holder = submit(pool, holds.wait, DEADLINE)
        monkeypatch.setattr(pool.budget.governor, "wake_locked", lacks)
        waits.set()
        call.result(DEADLINE)
        assert (found, pool.budget.permits.waits) == ([None], 0)
        monkeypatch.undo()
        holds.set()
        holder.result(DEADLINE)


# ---------------------------------------------------------------------- blocking()


def test_a_generator_that_leaves_the_block_in_another_call_asks_for_no_permit() -> None:
    def steps() -> Iterator[object]:
        worker = current_worker()
        with blocking():
            yield worker
        other = current_worker()
        assert worker is not None
        assert other is not None
        yield (other is worker, worker.permit, other.permit)

    generator, gate, waiting = steps(), threading.Event(), threading.Event()

    def step() -> object:
        return next(generator)

    def waits() -> object:
        waiting.set()
        assert gate.wait(DEADLINE)
        return current_worker()

    with open_pool() as pool:
        known(pool, step, Kind.SHORT)
        known(pool, waits, Kind.WAITING)
        first = submit(pool, step).result(DEADLINE)
        until(lambda: pool.busy == 0, "the first step has ended")
        other = submit(pool, waits)
        assert waiting.wait(DEADLINE)
        assert submit(pool, step).result(DEADLINE) == (False, NONE, SHORT)
        gate.set()
        assert other.result(DEADLINE) is first


def test_a_call_that_comes_back_goes_before_a_queued_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "STILL", DEADLINE)
    monkeypatch.setattr(phases, "MOST", DEADLINE)
    waits, holds, order = threading.Event(), threading.Event(), list[str]()

    def waits_and_computes() -> None:
        with blocking():
            assert waits.wait(DEADLINE)
        order.append("back")

    def computes() -> None:
        assert holds.wait(DEADLINE)

    with open_pool() as pool:
        known(pool, waits_and_computes, Kind.SHORT)
        known(pool, computes, Kind.SHORT)
        known(pool, order.append, Kind.SHORT)
        back = submit(pool, waits_and_computes)
        until(lambda: pool.budget.permits.held[SHORT] == 0 and pool.busy == 1, "it waits")
        holder = submit(pool, computes)
        queued = submit(pool, order.append, "queued")
        waits.set()
        until(lambda: pool.budget.permits.waits == 1, "it stands in the line")
        holds.set()
        for call in (back, holder, queued):
            call.result(DEADLINE)
    assert order == ["back", "queued"]
    assert pool.tally.overdrafts == 0


def test_a_call_goes_on_without_a_permit_when_none_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "STILL", 0.001)
    went_on = threading.Event()
    waits = threading.Event()

    def waits_and_computes() -> None:
        with blocking():
            assert waits.wait(DEADLINE)
        went_on.set()

    with open_pool() as pool:
        known(pool, waits_and_computes, Kind.SHORT)
        known(pool, went_on.wait, Kind.SHORT)
        back = submit(pool, waits_and_computes)
        until(lambda: pool.budget.permits.held[SHORT] == 0 and pool.busy == 1, "it waits")
        holder = submit(pool, went_on.wait, DEADLINE)  # ends only if the other goes on
        waits.set()
        assert holder.result(DEADLINE)
        back.result(DEADLINE)
    assert pool.tally.overdrafts == 1


def test_a_call_that_was_given_a_permit_on_its_way_into_the_line_takes_no_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    permit_for = phases._permit_for
    held: list[list[int]] = []

    def turns() -> None:
        worker = current_worker()
        assert worker is not None
        assert worker.call is not None
        leave(worker, worker.call)
        enter(worker, worker.call)
        held.append([*pool.budget.permits.held])

    def seen_to_compute_meanwhile(profile: Profile) -> int:
        worker = current_worker()
        assert worker is not None
        assert worker.permit == NONE
        exchange_permit(worker, SHORT)  # as the sampler does, in its own thread
        return permit_for(profile)

    with open_pool() as pool:
        known(pool, turns, Kind.SHORT)
        monkeypatch.setattr(phases, "_permit_for", seen_to_compute_meanwhile)
        submit(pool, turns).result(DEADLINE)
        assert held == [[0, 1, 0, 0]]
    assert pool.budget.permits.held == [0, 0, 0, 0]
    assert pool.tally.overdrafts == 0


@pytest.mark.race
def test_locks_held_across_waits_hang_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "STILL", 0.001)
    lock, done = threading.Lock(), list[int]()

    def holds_across(number: int) -> None:
        with lock, blocking():
            pass
        done.append(number)

    def waits_for(number: int) -> None:
        with lock:  # with the permit in hand
            pass
        with blocking(), lock:
            done.append(number)

    with open_pool() as pool:
        known(pool, holds_across, Kind.WAITING)
        known(pool, waits_for, Kind.WAITING)
        for fn in (holds_across, waits_for):
            profile = pool.profiles.of(fn)
            profile.gated = profile.opens = profile.marks = True
        calls = [submit(pool, (holds_across, waits_for)[number % 2], number) for number in range(12)]
        for call in calls:
            call.result(DEADLINE)
    assert sorted(done) == list(range(12))


@pytest.mark.race
def test_calls_in_the_line_end_while_their_pool_is_shut_down() -> None:
    ran: list[int] = []

    def turns(number: int) -> None:
        for _ in range(3):
            with blocking():
                pass
        ran.append(number)

    with open_pool() as pool:
        known(pool, turns, Kind.WAITING)
        profile = pool.profiles.of(turns)
        profile.gated = profile.opens = profile.marks = True
        calls = [submit(pool, turns, number) for number in range(6)]
        end(pool)
        assert all(call.done() for call in calls)
    assert sorted(ran) == list(range(6))


# ---------------------------------------------------------------------- known sites


def wait_at(gate: Any) -> None:
    gate.acquire()


@pytest.fixture
def monitored() -> Iterator[Pool]:
    with pool_with_site(wait_at) as pool:
        yield pool


@needs_monitoring
def test_a_call_at_a_known_site_gives_its_permit_back_and_asks_for_it_again(monitored: Pool) -> None:
    permits, gate, inner = monitored.budget.permits, threading.Lock(), threading.Event()
    gate.acquire()

    def waits_and_computes() -> int:
        wait_at(gate)
        inner.set()
        return permits.held[SHORT]

    known(monitored, waits_and_computes, Kind.SHORT)
    call = submit(monitored, waits_and_computes)
    until(lambda: monitored.busy and permits.held[SHORT] == 0, "it waits")
    assert not inner.is_set()
    gate.release()
    assert call.result(DEADLINE) == 1


@needs_monitoring
@pytest.mark.parametrize("says", ["at a site", "by hand"])
def test_calls_known_to_wait_before_their_site_was_ask_for_permits_from_then_on(
    monitored: Pool, says: str
) -> None:
    """As where few calls run first, each of which starts without a permit, and a crowd comes later."""
    permits = monitored.budget.permits

    def waits_and_computes() -> int:
        if says == "at a site":
            wait_at(threading.Lock())
        else:
            with blocking():
                pass
        return permits.held[SHORT]

    known(monitored, waits_and_computes, Kind.WAITING)
    profile = monitored.profiles.of(waits_and_computes)
    profile.cpu_mean_ns = 5_000_000
    profile._tell_phases(5e6, 55e6)
    assert (profile.puzzling, profile.gated) == (True, False)
    assert submit(monitored, waits_and_computes).result(DEADLINE) == 1
    assert (profile.puzzling, profile.gated) == (False, True)


@needs_monitoring
def test_what_a_wait_raises_passes_and_the_permit_comes_back(monitored: Pool) -> None:
    permits = monitored.budget.permits

    def computes_on() -> int:
        wait_at(SimpleNamespace(acquire=lambda: None))  # a frame of its own: nothing tells of its return
        with pytest.raises(ValueError, match="no number"):
            wait_at(SimpleNamespace(acquire=partial(int, "no number")))
        return permits.held[SHORT]

    known(monitored, computes_on, Kind.SHORT)
    assert submit(monitored, computes_on).result(DEADLINE) == 1


@needs_monitoring
def test_unknown_calls_at_a_known_site_are_seen_to_wait_at_once(monitored: Pool) -> None:
    gate = threading.Lock()
    gate.acquire()

    def unknown() -> None:
        wait_at(gate)
        gate.release()

    calls = [submit(monitored, unknown) for _ in range(6)]
    until(lambda: monitored.busy == 6, "all of them run although nobody looks")
    gate.release()
    for call in calls:
        call.result(DEADLINE)
    assert monitored.profiles.of(unknown).still_until


@needs_monitoring
def test_the_start_of_another_worker_at_a_known_site_is_no_wait_of_the_call(
    monitored: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `threading.Thread.start` waits in `Condition.wait`, where half of all calls wait."""
    permits, gate, start = monitored.budget.permits, threading.Lock(), monitored.start
    gate.acquire()
    queued = threading.Event()

    def starts_and_waits(*workers: Any) -> None:
        wait_at(threading.Lock())
        start(*workers)

    def waits() -> None:
        queued.wait(DEADLINE)
        with blocking():
            gate.acquire()

    known(monitored, waits, Kind.SHORT)
    monitored.profiles.of(waits).gated = True
    known(monitored, len, Kind.SHORT)
    monkeypatch.setattr(monitored, "start", starts_and_waits)
    first, second = submit(monitored, waits), submit(monitored, len, "abc")
    queued.set()
    assert second.result(DEADLINE) == 3
    until(lambda: permits.held[SHORT] == 0, "the first waits without a permit")
    assert not first.done()
    gate.release()
    first.result(DEADLINE)


@needs_monitoring
def test_a_call_in_the_line_does_not_ask_twice_when_a_known_site_comes_in_between(
    monitored: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a tool has put a Python function in the place of `Lock.acquire`."""

    class WatchedLock:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.release = self.lock.release

        def acquire(self, timeout: float = -1) -> bool:
            if timeout >= 0:
                wait_at(threading.Lock())
            return self.lock.acquire(timeout=timeout)

    gate, holds = threading.Lock(), threading.Event()
    gate.acquire()

    def comes_back() -> None:
        with blocking():
            gate.acquire()

    def computes() -> bool:
        gate.release()
        return holds.wait(DEADLINE)

    monkeypatch.setattr(phases, "STILL", 0.01)
    monkeypatch.setattr(phases, "Lock", WatchedLock)
    known(monitored, comes_back, Kind.SHORT)
    monitored.profiles.of(comes_back).gated = True
    known(monitored, computes, Kind.SHORT)
    first, second = submit(monitored, comes_back), submit(monitored, computes)
    first.result(DEADLINE)
    assert monitored.tally.overdrafts == 1
    holds.set()
    assert second.result(DEADLINE)


@needs_monitoring
def test_other_threads_at_a_known_site_are_left_alone(monitored: Pool) -> None:
    gate = threading.Lock()
    wait_at(gate)
    assert monitored.budget.permits.held == [0, 0, 0, 0]
    assert gate.locked()


@needs_monitoring
def test_a_site_that_a_call_disabled_just_as_it_was_learned_is_seen_all_the_same(monitored: Pool) -> None:
    def waits_there(gate: threading.Lock) -> None:
        gate.acquire()

    gate, sites = threading.Lock(), monitored.budget.phases
    code, offset = waits_there.__code__, site_of(waits_there)
    sites.add(code, offset + 2)  # so that the function is watched
    submit(monitored, waits_there, gate).result(DEADLINE)  # answers DISABLE
    gate.release()
    sites._sites.learn(code, offset)  # as if between its question and its answer
    site = sites._sites.find(code, offset)
    assert site is not None
    assert not sites.add(code, offset)
    submit(monitored, waits_there, gate).result(DEADLINE)
    assert site.quick == 1


@needs_monitoring
def test_without_a_free_tool_id_no_site_is_learned_until_one_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    taken = [tool for tool in range(6) if monitoring.get_tool(tool) is None]
    for tool in taken:
        monitoring.use_tool_id(tool, "test")
    try:
        events = SiteEvents()
        assert not events.add(wait_at.__code__, site_of(wait_at))
        assert events.statistics().reason is PhaseReason.NO_TOOL_ID
        assert not events.sees_waits
    finally:
        for tool in taken:
            monitoring.free_tool_id(tool)
    assert not events.sees_waits
    monkeypatch.setattr(site_events, "_RETRY_NS", 0)
    assert events.sees_waits
    assert events.add(wait_at.__code__, site_of(wait_at))
    events.rest()


@needs_monitoring
def test_the_tool_id_is_given_back_when_the_last_pool_is_over() -> None:
    budget = GovernedBudget()
    budget.governor.parked = False  # nobody rings
    pool = make_pool(budget)
    submit(pool, len, "abc").result(DEADLINE)
    assert budget.phases.add(wait_at.__code__, site_of(wait_at))
    assert budget.phases.statistics().reason is PhaseReason.ON
    end(pool)
    until(lambda: budget.phases.statistics().reason is PhaseReason.READY, "the tool id is given back")
    assert budget.phases.statistics().sites == ()


def test_an_executor_without_phases_says_so() -> None:
    with AdaptiveThreadPoolExecutor(phases=False) as executor:
        statistics = executor.statistics().phases
    assert statistics is not None
    assert statistics.reason is PhaseReason.OFF


@needs_monitoring
@pytest.mark.slow
def test_a_forked_child_knows_no_sites_and_can_learn_its_own() -> None:
    script = """
        import os, sys
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from hybridrt import AdaptiveThreadPoolExecutor
        from hybridrt.executor.budget import shared

        def waits(lock): lock.acquire()
        executor = AdaptiveThreadPoolExecutor()
        executor.submit(len, "abc").result()
        assert shared.phases.add(waits.__code__, 4)
        child = os.fork()
        if not child:
            ok = shared.phases.statistics().sites == () and str(shared.phases.reason) == "ready"
            ok = ok and executor.submit(len, "abc").result() == 3
            ok = ok and shared.phases.add(waits.__code__, 4) and str(shared.phases.reason) == "on"
            os._exit(0 if ok else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert len(shared.phases.statistics().sites) == 1
        executor.shutdown()
        sys.exit(status)
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_wait_for_an_isolate_is_a_wait_and_other_frames_of_the_package_are_not() -> None:
    for module in ("hybridrt.isolates.wire", "hybridrt.isolates.process", "json.decoder", "__main__"):
        assert not is_never_site(module)
    for module in ("hybridrt.pool.worker", "hybridrt.executor.future", "hybridrt.offloaded"):
        assert is_never_site(module)


def test_a_wait_for_a_module_that_another_thread_imports_is_no_site() -> None:
    """Its waiters hand a lock on: each would keep the next one while it stands in line for a permit."""
    import_system = sys.modules["_frozen_importlib"]
    assert is_never_site(import_system._ModuleLock.acquire.__globals__["__name__"])
    assert is_never_site("_frozen_importlib")
    reads_files = sys.modules["_frozen_importlib_external"]
    assert is_never_site(reads_files.FileLoader.get_data.__globals__["__name__"])
    assert is_never_site("_frozen_importlib_external")
    assert not is_never_site("importlib.metadata")
