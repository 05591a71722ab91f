"""While calls crowd, the loop gathers what ends instead of being woken for each; nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt import Runtime, RuntimeClosedError
from hybridrt.loop import completions
from hybridrt.loop.completions import CROWD, PAUSE_MAX_MS, PAUSE_MIN_MS, CompletionQueue
from hybridrt.pool.state import DONE, QUEUED
from hybridrt.testing import ManualClock

from .support import Gate, eventually
from .test_completions import Ended, Loop

PAUSE_MAX = PAUSE_MAX_MS / 1e3
LONG_NS = CROWD * PAUSE_MAX_MS * 1_000_000
"""Time in the queue from which the loop pauses for as long as it ever does."""


class TimedLoop(Loop):
    """One whose time stands still, and that runs its timers, too, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.timers: list[Timer] = []
        self.when_armed: Callable[[], object] = lambda: None

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        timer = Timer(self, self.now + delay, callback)
        self.timers.append(timer)
        self.when_armed()
        return timer

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and run the timers that are due then."""
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.when <= self.now]:
            self.timers.remove(timer)
            timer.callback()


class Timer:
    def __init__(self, loop: TimedLoop, when: float, callback: Callable[[], object]) -> None:
        self._loop = loop
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        if self in self._loop.timers:
            self._loop.timers.remove(self)


class Stage:
    """An outlet, its loop, and calls for it."""

    def __init__(self) -> None:
        self.loop, self.clock = TimedLoop(), ManualClock(1000.0)
        self.pool: Any = SimpleNamespace(roster=SimpleNamespace(wall_ns=self.clock.wall_ns))
        self.settled: list[Ended] = []
        self.completions = CompletionQueue(self.loop)  # type: ignore[arg-type]  # all of a loop that it uses

    def ended(self, *, age_ns: int, queue_wait_ns: int, then: Callable[[], object] = lambda: None) -> Ended:
        """Return a call that was submitted some time ago and started some time after that."""
        call = Ended(self.settled, then)
        call.pool, call.state = self.pool, DONE
        call.queued_ns = self.clock.wall_ns() - age_ns
        call.started_ns = call.queued_ns + queue_wait_ns
        return call

    def crowded(self, then: Callable[[], object] = lambda: None) -> Ended:
        """Return a call that was queued for long."""
        return self.ended(age_ns=2 * LONG_NS, queue_wait_ns=LONG_NS, then=then)

    def slow(self) -> Ended:
        """Return a call that started at once and took long."""
        return self.ended(age_ns=LONG_NS, queue_wait_ns=0)

    def fast(self) -> Ended:
        """Return a call that did not take long."""
        return self.ended(age_ns=LONG_NS - 1, queue_wait_ns=0)

    def put(self, *calls: Ended) -> None:
        for call in calls:
            self.completions.put(call)

    def gather(self, *queue_waits_ns: int) -> None:
        """Have calls that were queued for so long, one for long otherwise, settled twice in a row."""
        waits = queue_waits_ns or (LONG_NS,)
        for _ in range(2):
            self.put(*(self.ended(age_ns=2 * LONG_NS, queue_wait_ns=wait) for wait in waits))
            self.loop.turn()
        assert (len(self.settled), len(self.loop.timers)) == (2 * len(waits), 1)
        self.settled.clear()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_ends_in_a_crowd_waits_until_the_loop_looks_by_itself(stage: Stage) -> None:
    stage.gather()
    calls = [stage.crowded(), stage.slow(), stage.crowded()]
    stage.put(*calls)
    assert not stage.loop.ready
    stage.loop.pass_time(PAUSE_MAX / 2)
    assert not stage.settled
    stage.loop.pass_time(PAUSE_MAX)
    assert stage.settled == calls


def test_it_goes_on_while_calls_of_the_crowd_end(stage: Stage) -> None:
    stage.gather()
    for _ in range(5):
        stage.put(call := stage.crowded())
        assert not stage.loop.ready
        stage.loop.pass_time(PAUSE_MAX)
        assert stage.settled.pop() is call
        assert len(stage.loop.timers) == 1


@pytest.mark.parametrize("last", [None, Stage.slow])
def test_the_next_call_wakes_the_loop_when_no_call_of_a_crowd_ended(
    stage: Stage, last: Callable[[Stage], Ended] | None
) -> None:
    stage.gather()
    if last is not None:
        stage.put(last(stage))
    stage.loop.pass_time(PAUSE_MAX)
    assert not stage.loop.timers
    stage.put(call := stage.crowded())
    stage.loop.turn()
    assert stage.settled[-1] is call


def test_a_call_that_took_little_time_wakes_the_loop_and_takes_the_others_along(stage: Stage) -> None:
    stage.gather()
    calls = [stage.crowded(), stage.fast(), stage.fast()]
    stage.put(*calls)
    assert len(stage.loop.ready) == 1
    stage.loop.turn()
    assert stage.settled == calls


def test_a_wake_up_takes_the_timer_back(stage: Stage) -> None:
    stage.gather()
    stage.put(stage.fast())
    stage.loop.turn()
    assert not stage.loop.timers


def test_a_crowd_that_ends_one_by_one_wakes_the_loop_each_time(stage: Stage) -> None:
    for _ in range(5):
        stage.put(stage.crowded())
        stage.loop.turn()
        assert not stage.loop.timers
        stage.loop.pass_time(PAUSE_MAX)
    assert len(stage.settled) == 5


def test_calls_that_were_not_queued_for_long_are_no_crowd(stage: Stage) -> None:
    queue_wait_ns = CROWD * PAUSE_MIN_MS * 1_000_000 - 1
    for _ in range(5):
        stage.put(stage.ended(age_ns=10 * LONG_NS, queue_wait_ns=queue_wait_ns))
        stage.loop.turn()
        assert not stage.loop.timers


def test_the_pause_is_a_quarter_of_the_mean_time_in_the_queue_in_whole_milliseconds(stage: Stage) -> None:
    stage.gather(10_000_000, 33_000_000)
    assert [timer.when - stage.loop.now for timer in stage.loop.timers] == pytest.approx([0.005])


@pytest.mark.parametrize(("age_ns", "wakes"), [(20_000_000, 0), (19_999_999, 1)])
def test_a_call_is_gathered_from_the_age_at_which_a_pause_is_a_quarter_of_it(
    stage: Stage, age_ns: int, wakes: int
) -> None:
    stage.gather(20_000_000)
    stage.put(stage.ended(age_ns=age_ns, queue_wait_ns=0))
    assert len(stage.loop.ready) == wakes


def test_a_few_that_queued_for_long_among_many_that_did_not_are_no_crowd(stage: Stage) -> None:
    for _ in range(5):
        stage.put(stage.crowded(), *(stage.slow() for _ in range(9)))
        stage.loop.turn()
        assert not stage.loop.timers


def test_calls_that_never_started_are_no_crowd(stage: Stage) -> None:
    for _ in range(5):
        call = stage.crowded()
        call.state = QUEUED
        stage.put(call)
        stage.loop.turn()
        assert not stage.loop.timers


def test_a_call_that_ends_while_a_crowd_is_settled_wakes_the_loop(stage: Stage) -> None:
    stage.put(stage.crowded())
    stage.loop.turn()
    last = stage.crowded()
    first = stage.crowded(lambda: stage.put(last))
    stage.put(first)
    stage.loop.turn()
    assert len(stage.loop.timers) == 1
    stage.loop.turn()
    assert stage.settled[-2:] == [first, last]
    assert len(stage.loop.timers) == 1


@pytest.mark.parametrize("kind", [Stage.crowded, Stage.fast])
def test_a_call_that_ends_while_the_timer_is_armed_wakes_the_loop(
    stage: Stage, kind: Callable[[Stage], Ended]
) -> None:
    stage.put(stage.crowded())
    stage.loop.turn()
    last = kind(stage)
    stage.loop.when_armed = lambda: stage.put(last)
    stage.put(stage.crowded())
    stage.loop.turn()
    stage.loop.when_armed = lambda: None
    stage.loop.turn()
    assert stage.settled[-1] is last


def test_a_fast_call_that_ends_just_when_gathering_begins_wakes_the_loop(stage: Stage) -> None:
    class Observed(CompletionQueue):
        """Has a fast call end between the two steps with which gathering begins."""

        begun = False

        @property
        def _gathers(self) -> bool:  # type: ignore[override]
            return self.begun

        @_gathers.setter
        def _gathers(self, begins: bool) -> None:
            if begins:
                self.put(last)
            self.begun = begins

    last = stage.fast()
    stage.completions = Observed(stage.loop)  # type: ignore[arg-type]
    for _ in range(2):
        stage.put(stage.crowded())
        stage.loop.turn()
    stage.loop.turn()
    assert stage.settled[-1] is last


@pytest.mark.race
def test_nothing_is_left_behind_by_threads_beside_a_loop_that_gathers() -> None:
    """Each call is settled by a wake-up or by the timer, whatever was ended when."""
    stage = Stage()

    def end_calls(number: int) -> None:
        for n in range(20):
            stage.put((stage.crowded, stage.fast, stage.crowded, stage.slow)[(number + n) % 4]())

    threads = [threading.Thread(target=end_calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stage.loop.turn()
        stage.loop.pass_time(PAUSE_MAX / 2)
    while stage.loop.ready or stage.loop.timers:
        stage.loop.turn()
        stage.loop.pass_time(PAUSE_MAX)
    assert len(stage.settled) == 80


def test_what_raises_while_it_is_settled_does_not_keep_back_the_others(stage: Stage) -> None:
    def fail() -> None:
        raise LookupError

    calls = [stage.crowded(), stage.crowded(fail), stage.crowded(), stage.crowded()]
    stage.put(*calls)
    with pytest.raises(LookupError):
        stage.loop.turn()
    assert stage.settled == calls[:2]
    stage.loop.turn()
    assert stage.settled == calls


def test_a_call_that_ctrl_c_keeps_from_being_settled_is_settled_in_the_next_turn(stage: Stage) -> None:
    def strike() -> None:
        if stage.settled.count(calls[1]) == 1:
            raise KeyboardInterrupt

    calls = [stage.crowded(), stage.crowded(strike), stage.crowded()]
    stage.put(*calls)
    with pytest.raises(KeyboardInterrupt):
        stage.loop.turn()
    assert stage.settled == calls[:2]
    stage.loop.turn()
    assert stage.settled == [*calls[:2], *calls[1:]]


def _spin(number: int) -> int:
    sum(range(20_000))
    return number


async def test_a_crowd_of_calls_gets_its_results() -> None:
    async with Runtime(max_workers=2) as runtime:
        crowd = (runtime.offload(_spin, number) for number in range(400))
        assert await asyncio.gather(*crowd) == list(range(400))


async def test_all_calls_of_a_crowd_are_settled_when_the_runtime_has_closed() -> None:
    async with Runtime(max_workers=2) as runtime:
        crowd = [asyncio.ensure_future(runtime.offload(_spin, number)) for number in range(400)]
        await asyncio.sleep(0)
    assert all(task.done() for task in crowd)


async def test_what_was_gathered_is_settled_before_a_close_that_waits_for_nothing_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completions, "CROWD", 1e-30)
    monkeypatch.setattr(completions, "PAUSE_MAX_MS", 1e12)
    async with Gate() as gate:
        runtime = Runtime(max_workers=2, shutdown_timeout=0.0)
        async with runtime:
            await runtime.offload(abs, -1)  # from now on calls are gathered for ever
            stuck = asyncio.ensure_future(runtime.offload(gate, 2))
            await gate.entered()
            ended = asyncio.ensure_future(runtime.offload(abs, -3))
            await eventually(lambda: completions.completions_of(asyncio.get_running_loop())._done)
            assert not ended.done()
        assert (ended.done(), stuck.done()) == (True, True)
        assert await ended == 3
        with pytest.raises(RuntimeClosedError):
            await stuck
