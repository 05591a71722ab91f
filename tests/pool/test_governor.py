"""The governor's thread: it sleeps when nothing runs, leaves, and survives its own failure."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hybridrt.errors import IsolateStartError
from hybridrt.executor.budget import GovernedBudget
from hybridrt.governor import governor as governor_module
from hybridrt.governor.governor import IDLE_STEPS, LONG_SLEEP_NS, REST_NS, TICK_NS, Governor
from hybridrt.governor.sampler import BRIEF_BATCH
from hybridrt.measure.host import Memory
from hybridrt.pool import state as state_module
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.shutdown import close, worker_left
from hybridrt.pool.state import Call, Pool
from hybridrt.values import Kind

from .conftest import Make, MakePool
from .shielding import FakeWatch
from .support import DEADLINE, MS, Meeting, Stage, make_call, named, until


def submit(pool: Pool, fn: Callable[..., Any], *args: Any) -> Any:
    call = make_call(pool, fn, *args)
    pool.push(call)
    return call


def governors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hybridrt-governor"]


class Counting(Governor):
    """Counts its turns."""

    turns = 0

    def turn(self) -> float | None:
        self.turns += 1
        return super().turn()


@pytest.fixture
def counting(private: GovernedBudget) -> Counting:
    private.governor = counting = Counting(private, private.shield)
    return counting


# ---------------------------------------------------------------------- what it reads


def test_the_host_is_looked_at_without_the_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading files gives the GIL away: workers and loop would wait until the governor has it again."""
    lock, held = stage.budget.lock, []

    def read(*_: object) -> Memory:
        held.append(lock.locked())
        return Memory(limit=1 << 30, given=1 << 30, share=0.5)

    monkeypatch.setattr(state_module, "read_memory", read)
    stage.step(2001 * MS, prompt=True)
    assert held == [False]
    assert stage.budget.memory.share == 0.5


@pytest.fixture
def host_cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cores that the host gives: the last of them now."""
    cores = [2]
    monkeypatch.setattr(state_module, "usable_cores", lambda: cores[-1])
    return cores


@pytest.mark.parametrize("gil", [True, False], ids=["a GIL", "no GIL"])
def test_a_quota_that_changes_counts_from_the_next_look_on(host_cores: list[int], gil: bool) -> None:
    stage = Stage(gil=gil)
    stage.budget._counts_cores = True
    stage.step(prompt=True)
    stage.clock.advance(2.0)
    free = stage.learn(Kind.FREE)
    calls = stage.push_many(6, free)
    stage.compute(*stage.running())
    assert len(stage.running()) == 2
    host_cores.append(4)
    stage.step(MS, prompt=True)
    stage.compute(*stage.running())
    assert len(stage.running()) == 4
    assert stage.pool.limits.cores == stage.budget.cores == 4
    assert stage.pool.limits.capacity == (1 if gil else 4)
    host_cores.append(1)
    stage.budget.governor.look_soon_locked()
    stage.step(MS, prompt=True)
    for call in calls[:4]:
        stage.end(call)
    assert len(stage.running()) == 1


def test_where_the_gil_is_wanted_all_the_time_the_host_is_looked_at_every_ten_seconds(
    host_cores: list[int],
) -> None:
    stage = Stage()
    stage.budget._counts_cores = True
    stage.step(prompt=True)
    host_cores.append(3)
    stage.step(9.9, prompt=False)
    assert stage.budget.cores == 2
    stage.step(0.2, prompt=False)
    assert stage.budget.cores == 3


def test_cores_that_were_given_by_the_program_stay(host_cores: list[int]) -> None:
    stage = Stage(cores=5)
    host_cores.append(3)
    stage.step(2001 * MS, prompt=True)
    assert stage.budget.cores == 5


def test_the_least_budget_of_all_open_pools_is_asked_for_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int | None] = []

    def read(memory_max: int | None = None, children: Iterable[int] = ()) -> Memory:
        asked.append(memory_max)
        assert list(children) == [7]
        return Memory(limit=1 << 30, given=1 << 30, share=0.5)

    stage = Stage()
    stage.step(3 * MS, prompt=True)
    monkeypatch.setattr(state_module, "read_memory", read)
    stage.budget.children.append(lambda: [7])
    pools = [stage.add_pool(memory_max=size << 20) for size in (100, 50)]
    stage.step(3 * MS, prompt=False)
    assert asked == [50 << 20]
    pools[1].refusal = RuntimeError
    stage.step(2001 * MS, prompt=True)
    assert asked == [50 << 20, 100 << 20]


# ---------------------------------------------------------------------- which pools it governs


def test_a_closed_pool_is_governed_until_its_last_worker_has_left(stage: Stage) -> None:
    """Closed executors may be kept for long; a window of theirs would cost as much as any other."""
    closed, windows = stage.add_pool(), []
    call = stage.push(stage.learn(Kind.WAITING, pool=closed), pool=closed)
    worker = stage.worker_of(call)
    close(closed, RuntimeError, cancel_queued=False)
    for turn in range(3):
        if turn == 2:
            stage.end(call)
            worker_left(worker, None)
        stage.step(200 * MS, times=4, prompt=True)
        windows.append(len(closed.sizing.log().windows))
    assert windows[0] < windows[1] == windows[2]
    assert closed in stage.budget.pools  # a fork looks after it


# ---------------------------------------------------------------------- what it tells the shield


@pytest.mark.parametrize(
    ("batches", "queued", "brief"),
    [
        pytest.param((BRIEF_BATCH,), False, True, id="brief, alone"),
        pytest.param((BRIEF_BATCH,), True, False, id="brief, in a crowd"),
        pytest.param((BRIEF_BATCH, 1), False, False, id="one of them is not brief"),
    ],
)
def test_it_says_whether_only_brief_calls_come_one_by_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, batches: tuple[int, ...], queued: bool, brief: bool
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(stage.budget.shield, "step", lambda *_, brief, **__: told.append(brief))
    for batch, kind in zip(batches, (Kind.SHORT, Kind.WAITING), strict=False):
        function = stage.learn(kind)
        stage.pool.profiles.of(function).batch = batch
        stage.push(function)
    if queued:
        stage.push(stage.learn(Kind.SHORT))
    stage.step(3 * MS)
    assert told == [brief]


# ---------------------------------------------------------------------- how long it sleeps


def test_it_sleeps_two_milliseconds_while_things_change_and_longer_when_they_stay(stage: Stage) -> None:
    call = stage.push(stage.learn(Kind.LONG))
    naps = [stage.step(3 * MS), stage.step(3 * MS)]
    assert naps[-1] is not None
    governor = stage.budget.governor
    for _ in range(10):
        governor._sleep_ns = stage.step(100 * MS) or TICK_NS
    assert governor._sleep_ns == REST_NS
    stage.compute(call)
    assert stage.step(600 * MS) == TICK_NS  # it takes its permit back


def test_it_wakes_in_time_for_a_call_that_others_wait_for_to_turn_out_long(stage: Stage) -> None:
    first, second = stage.push(named("unknown")), stage.push(stage.learn(Kind.SHORT))
    stage.compute(first)
    stage.budget.governor._sleep_ns = REST_NS
    stage.step(3 * MS)
    nap = stage.step(11 * MS)
    assert nap == 6 * 1_000_000
    stage.step(nap / 1e9)
    assert stage.running() == [first, second]


def test_the_first_call_after_a_rest_has_the_loops_measured_closely(stage: Stage) -> None:
    watch = FakeWatch()
    stage.budget.shield.join(watch)
    stage.push(stage.learn(Kind.WAITING))
    stage.budget.governor.turn()
    assert watch.quickened == 1
    stage.budget.governor.turn()
    assert watch.quickened == 1


def test_with_nothing_to_do_it_rests_for_a_while_and_parks(stage: Stage) -> None:
    naps = [stage.step(16 * MS) for _ in range(IDLE_STEPS + 1)]
    assert naps == [REST_NS] * IDLE_STEPS + [None]


def test_with_nothing_but_a_size_to_come_down_it_dozes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.pool, "at_rest", lambda: False)
    naps = [stage.step(16 * MS) for _ in range(IDLE_STEPS + 1)]
    assert naps[-1] == LONG_SLEEP_NS


def test_a_call_ends_its_rest(stage: Stage) -> None:
    for _ in range(IDLE_STEPS + 1):
        stage.step(16 * MS)
    stage.push(stage.learn(Kind.LONG))
    assert stage.step(1 * MS) is not None


# ---------------------------------------------------------------------- its thread


def test_its_thread_starts_with_the_first_call(private: GovernedBudget, make_private: MakePool) -> None:
    pool = make_private()
    assert private.governor._thread is None
    submit(pool, named("first")).result(DEADLINE)
    assert private.governor._thread is not None
    assert private.governor._thread.daemon


@pytest.mark.slow
def test_it_parks_when_idle_and_is_not_woken_until_a_call_comes(
    counting: Counting, make_private: MakePool
) -> None:
    pool = make_private()
    submit(pool, named("first")).result(DEADLINE)
    until(lambda: counting.parked, "the governor parks")
    turns = counting.turns
    idle = threading.Event()
    assert not idle.wait(0.2)  # what it must not do in this time is wake
    assert counting.turns == turns
    submit(pool, named("second")).result(DEADLINE)
    until(lambda: counting.turns > turns, "a call wakes the governor")
    until(lambda: counting.parked, "the governor parks again")


@pytest.mark.slow
def test_its_thread_leaves_after_a_long_rest_and_comes_back(
    counting: Counting, make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor_module, "_LEAVE_AFTER", 0.01)
    pool = make_private()
    for name in ("first", "second"):
        submit(pool, named(name)).result(DEADLINE)
        thread = counting._thread
        assert thread is not None
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert counting.error is None


def test_it_can_be_stopped_and_the_next_call_starts_it_again(
    private: GovernedBudget, make_private: MakePool
) -> None:
    pool = make_private()
    for _ in range(3):
        assert submit(pool, named("one"), 1).result(DEADLINE) == (1,)
        thread = private.governor._thread
        assert thread is not None
        private.governor.stop()
        assert not thread.is_alive()


@pytest.mark.slow
def test_stopping_it_after_it_left_does_not_stop_the_next_one(
    private: GovernedBudget, make_private: MakePool, monkeypatch: pytest.MonkeyPatch, meeting: Meeting
) -> None:
    monkeypatch.setattr(governor_module, "_LEAVE_AFTER", 0.01)
    pool = make_private()
    submit(pool, named("first")).result(DEADLINE)
    thread = private.governor._thread
    assert thread is not None
    thread.join(DEADLINE)
    private.governor.stop()
    private.governor.parked = False  # so that the calls do not ring, and there is one ring only
    calls = [submit(pool, meeting) for _ in range(4)]
    private.governor.parked = True
    private.governor.wake()
    meeting.wait_for(4)  # without a governor only the first of an unknown function starts
    meeting.end()
    assert [call.result(DEADLINE) for call in calls] == [None] * 4


def test_an_executor_that_was_never_used_costs_no_governor(make: Make) -> None:
    before = governors()
    make()
    assert governors() == before


# ---------------------------------------------------------------------- its failure


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A governor that fails at its first look."""

    def fail(*_: Any) -> bool:
        raise ZeroDivisionError("in the sampler")

    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    monkeypatch.setattr(governor_module, "sample_pool", fail)


@pytest.mark.usefixtures("failing")
def test_a_governor_that_fails_says_so_and_lifts_the_permits(
    private: GovernedBudget, make_private: MakePool, meeting: Meeting
) -> None:
    pool = make_private()
    calls = [submit(pool, meeting, number) for number in range(8)]
    # Nobody knows the function and nobody looks: without permits each call gets its thread.
    meeting.wait_for(8)
    assert private.governor.error == "ZeroDivisionError('in the sampler')"
    assert private.permits.lifted
    meeting.end()
    assert [call.result(DEADLINE) for call in calls] == list(range(8))


@pytest.mark.usefixtures("failing")
def test_a_pool_whose_governor_failed_goes_on(
    private: GovernedBudget, make_private: MakePool, meeting: Meeting
) -> None:
    pool = make_private()
    submit(pool, named("first")).result(DEADLINE)
    until(lambda: private.governor.error, "the governor fails")
    computing = [submit(pool, meeting, number) for number in range(8)]
    meeting.wait_for(8)
    meeting.end()
    assert [call.result(DEADLINE) for call in computing] == list(range(8))
    assert private.permits.held == [0, 0, 0, 0]


def test_a_governor_that_failed_tries_again_and_the_permits_come_back(
    private: GovernedBudget,
    make_private: MakePool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    sample, fails = governor_module.sample_pool, [3]

    def fail_at_first(*args: Any) -> bool:
        if fails[0]:
            fails[0] -= 1
            raise MemoryError
        return sample(*args)

    monkeypatch.setattr(governor_module, "RETRY", 0.001)
    monkeypatch.setattr(governor_module, "sample_pool", fail_at_first)
    submit(make_private(), named("first")).result(DEADLINE)
    until(lambda: private.governor.failures == 3 and private.governor.error is None, "it works again")
    assert not private.permits.lifted


@pytest.mark.usefixtures("failing")
def test_a_governor_that_failed_does_not_try_again_before_it_is_time(
    private: GovernedBudget, make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor_module, "RETRY", 3600.0)
    pool = make_private()
    for _ in range(3):
        submit(pool, named("one")).result(DEADLINE)
        until(lambda: private.governor.error, "the governor fails")
    assert private.governor.failures == 1


@pytest.mark.parametrize("error", [SystemExit("quit"), asyncio.CancelledError()])
def test_nothing_that_is_raised_ends_it_in_silence(
    private: GovernedBudget, make_private: MakePool, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any) -> bool:
        raise error

    monkeypatch.setattr(governor_module, "sample_pool", fail)
    submit(make_private(), named("one")).result(DEADLINE)
    until(lambda: private.governor.error, "the governor fails")
    assert private.governor.error == repr(error)
    assert private.permits.lifted


def test_the_failure_is_logged_once(
    private: GovernedBudget,
    make_private: MakePool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> bool:
        raise ZeroDivisionError("in the sampler")

    monkeypatch.setattr(governor_module, "RETRY", 0.001)
    monkeypatch.setattr(governor_module, "sample_pool", fail)
    pool = make_private()
    for _ in range(3):
        submit(pool, named("one")).result(DEADLINE)
    until(lambda: private.governor.error, "the governor fails")
    until(lambda: private.governor.failures > 2, "the governor has tried again")
    assert caplog.text.count("the governor failed") == 1


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[int]:
    """No thread can be started for a governor, as often as the list says."""
    start, left = threading.Thread.start, [1]

    def start_all_but_governors(thread: threading.Thread) -> None:
        if thread.name == "hybridrt-governor" and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    monkeypatch.setattr(threading.Thread, "start", start_all_but_governors)
    return left


def test_where_no_thread_is_left_for_the_governor_the_permits_are_lifted(
    private: GovernedBudget, make_private: MakePool, meeting: Meeting, refused: list[int]
) -> None:
    pool = make_private()
    calls = [submit(pool, meeting, number) for number in range(4)]
    meeting.wait_for(4)
    meeting.end()
    assert [call.result(DEADLINE) for call in calls] == list(range(4))
    assert private.governor.error == """RuntimeError("can't start new thread")"""
    assert private.permits.lifted


def test_a_thread_that_was_refused_to_the_governor_is_asked_for_again_and_the_permits_come_back(
    private: GovernedBudget, make_private: MakePool, refused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor_module, "RETRY", 0.0)
    refused[0], pool = 2, make_private()
    for failures in (1, 2, 2):
        submit(pool, named("one")).result(DEADLINE)
        assert private.governor.failures == failures
    until(lambda: private.governor.error is None, "the governor works")
    assert not private.permits.lifted


def test_it_is_not_asked_for_again_before_it_is_time(
    private: GovernedBudget, make_private: MakePool, refused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor_module, "RETRY", 3600.0)
    pool = make_private()
    for _ in range(3):
        submit(pool, named("one")).result(DEADLINE)
    assert (private.governor.failures, private.governor._thread) == (1, None)


@pytest.mark.parametrize("kind", [Kind.SHORT, Kind.WAITING, Kind.UNKNOWN])
def test_a_call_that_found_no_memory_for_a_worker_starts_at_the_next_step(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    fn = stage.learn(kind) if kind is not Kind.UNKNOWN else named("unknown")
    pool, spawn = stage.pool, stage.pool.spawn

    def fail(name: str) -> Any:
        monkeypatch.setattr(pool, "spawn", spawn)
        raise MemoryError

    monkeypatch.setattr(pool, "spawn", fail)
    call = stage.push(fn)
    assert (stage.running(), stage.permits.held) == ([], [0, 0, 0, 0])
    stage.step(3 * MS)
    assert stage.running() == [call]


def fails(*_: Any) -> bool:
    raise OSError("a library of a version that is not known")


def test_a_step_that_fails_starts_the_workers_to_which_it_has_given_calls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = stage.push_many(2, stage.learn(Kind.LONG))
    monkeypatch.setattr(stage.budget.native_limits, "step", fails)
    for _ in range(4):
        with pytest.raises(OSError, match="not known"):
            stage.step(40 * MS)
    assert stage.running() == calls


def test_a_step_that_fails_refuses_the_calls_that_it_has_taken_out_of_a_line(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = WatchedLimiter[Call](1, "isolates", most=1)
    stage.budget.limiters.append(gate)
    fn = stage.learn(Kind.WAITING, usual=0.1)
    calls = [stage.push(fn, number, limiters=(gate,), spills=True) for number in range(2)]
    monkeypatch.setattr(stage.budget.native_limits, "step", fails)
    for _ in range(8):
        with pytest.raises(OSError, match="not known"):
            stage.step(50 * MS)
    assert isinstance(calls[1].exception(0), IsolateStartError)


class Unprintable(MemoryError):
    """One for whose `repr` memory is lacking, too."""

    def __repr__(self) -> str:
        raise MemoryError


def test_an_error_without_a_repr_lifts_the_permits_and_is_told_by_its_class(stage: Stage) -> None:
    stage.budget.governor._fail(Unprintable())
    assert (stage.permits.lifted, stage.budget.governor.error) == (True, "Unprintable")
    stage.clock.advance(2.0)
    stage.budget.governor._recover()
    assert (stage.permits.lifted, stage.budget.governor.error) == (False, None)


def test_a_log_that_fails_does_not_keep_calls_from_their_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("a handler of the user's")

    monkeypatch.setattr(governor_module.logger, "error", fail)
    calls = stage.push_many(2, stage.learn(Kind.LONG))
    stage.budget.governor._fail(OSError("no clock"))
    assert stage.running() == calls


def test_a_governor_whose_thread_dies_can_be_started_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    governor = stage.budget.governor

    def dies(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(governor, "turn", fails)
    monkeypatch.setattr(governor, "_fail", dies)
    governor._alive = True
    governor._wakeup.put(None)
    with pytest.raises(SystemExit):
        governor._run()
    assert (governor.parked, governor._alive) == (True, False)


def test_a_governor_that_fails_gives_libraries_their_threads_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = []
    monkeypatch.setattr(stage.budget.native_limits, "restore", lambda: restored.append(True))
    stage.budget.governor._fail(OSError("no clock"))
    assert restored == [True]


def test_the_failure_shows_in_the_statistics(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from hybridrt.executor.budget import shared

    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    monkeypatch.setattr(shared, "governor", Governor(shared, shared.shield))
    monkeypatch.setattr(shared.permits, "lifted", False)
    executor = make()
    assert executor.statistics().governor_error is None
    shared.governor._fail(OSError("no clock"))
    statistics = executor.statistics()
    assert (statistics.governor_error, statistics.governor_failures) == ("OSError('no clock')", 1)
    assert executor.submit(len, "abc").result(DEADLINE) == 3
