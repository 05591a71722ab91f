"""Waiting for the interpreter's lock without owning it before one has the GIL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.executor import budget
from hybridrt.executor.budget import shared
from hybridrt.pool import lock as lock_module
from hybridrt.pool import scheduler
from hybridrt.pool.admission import FifoAdmission
from hybridrt.pool.lock import SelfWaitError, without_convoy
from hybridrt.pool.state import Call

from .conftest import Make
from .support import DEADLINE, Meeting, named, until


def test_a_free_lock_is_returned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "sleep", lambda _: pytest.fail("nobody has it"))
    lock = threading.Lock()
    assert without_convoy(lock) is lock
    assert not lock.locked()


def test_a_taken_lock_is_looked_at_again_until_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, looks = threading.Lock(), []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            lock.release()

    monkeypatch.setattr(lock_module, "sleep", sleep)
    lock.acquire()
    with without_convoy(lock):
        assert lock.locked()
    assert looks == [lock_module.PAUSE] * 3


def test_without_a_gil_there_is_nothing_to_be_patient_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "gil_enabled", lambda: False)
    monkeypatch.setattr(lock_module, "sleep", lambda _: pytest.fail("the lock itself waits better"))
    lock = threading.Lock()
    with lock:
        assert without_convoy(lock) is lock


class Interrupted(FifoAdmission):
    """Finalizers run while it puts a call into its queue, which it does in the middle of a step."""

    def __init__(self, finalizer: Callable[[], None]) -> None:
        super().__init__()
        self._finalizer = finalizer

    def put(self, call: Call) -> bool:
        finalizer, self._finalizer = self._finalizer, lambda: None
        finalizer()
        return super().put(call)


def test_what_a_finalizer_does_in_the_middle_of_a_step_fails_instead_of_waiting_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch, meeting: Meeting
) -> None:
    def finalize() -> None:
        results.close()  # type: ignore[attr-defined]  # it is a generator, and cancels its calls
        told.append(queued.cancel())
        with pytest.raises(RuntimeError, match="called by a finalizer or a signal handler"):
            executor.submit(meeting, 5)

    told: list[bool] = []
    monkeypatch.setattr(lock_module, "LOOKS", 2)
    executor = make(1)
    results = executor.map(meeting, range(3))
    meeting.wait_for(1)
    queued = executor.submit(meeting, 3)
    old, executor._pool.admission = executor._pool.admission, Interrupted(finalize)
    for call in old.drain():
        executor._pool.admission._queue[call] = None  # type: ignore[attr-defined]
        call.place = executor._pool.admission._queue  # type: ignore[attr-defined]
    last = executor.submit(meeting, 4)
    meeting.end()
    assert (queued.result(DEADLINE), last.result(DEADLINE), told) == (3, 4, [False])
    assert executor.statistics().completed == 5


@pytest.fixture
def interrupts(make: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Runs a function in the middle of a submission, as a finalizer or a signal handler does."""
    hold, executor = scheduler.hold_locked, make(1)

    def interrupt(handler: Callable[[], None]) -> None:
        def interrupted(*args: Any) -> None:
            monkeypatch.setattr(scheduler, "hold_locked", hold)
            handler()
            hold(*args)

        monkeypatch.setattr(lock_module, "LOOKS", 2)
        monkeypatch.setattr(scheduler, "hold_locked", interrupted)
        assert executor.submit(abs, -1).result(DEADLINE) == 1

    return interrupt


def test_a_function_that_is_new_to_its_pool_fails_there_too(
    make: Make, interrupts: Callable[[Callable[[], None]], None]
) -> None:
    executor, errors = make(1), list[BaseException]()

    def submit() -> None:
        try:
            executor.submit(named("new"))
        except SelfWaitError as error:
            errors.append(error)

    interrupts(submit)
    assert len(errors) == 1


def test_a_fork_in_the_middle_of_a_step_does_not_release_the_lock_of_that(
    interrupts: Callable[[Callable[[], None]], None],
) -> None:
    locked = []

    def fork() -> None:
        try:
            budget._before_fork()
        except SelfWaitError:  # CPython prints it and forks
            budget._after_fork_in_parent()
            locked.append(shared.lock.locked())
            shared.lock.acquire(blocking=False)  # if it was released: the step goes on

    interrupts(fork)
    assert locked == [True]


def test_a_fork_holds_the_lock_and_its_parent_releases_it() -> None:
    budget._before_fork()
    assert shared.lock.locked()
    budget._after_fork_in_parent()
    with shared.lock:
        budget._after_fork_in_parent()  # of a fork that holds nothing
        assert shared.lock.locked()


def test_a_thread_that_waits_for_another_one_is_not_taken_to_wait_for_itself(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "LOOKS", 1)
    executor, looks = make(1), list[float]()
    held, wait = threading.Event(), time.sleep
    executor.submit(abs, -1).result(DEADLINE)  # a function that is met for the first time takes another way

    def hold() -> None:
        with shared.lock:
            held.set()
            until(lambda: len(looks) >= 10, "the other one has looked ten times")

    def look(seconds: float) -> None:
        if seconds == lock_module.PAUSE:
            looks.append(seconds)
        wait(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(DEADLINE)
    monkeypatch.setattr(lock_module, "sleep", look)
    assert executor.submit(abs, -1).result(DEADLINE) == 1
    holder.join()


@pytest.mark.race
def test_nobody_gets_in_while_somebody_is_inside() -> None:
    lock, inside, most = threading.Lock(), [0], [0]

    def enter() -> None:
        for _ in range(20):
            with without_convoy(lock):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert most == [1]


@pytest.mark.slow
def test_submitting_goes_on_beside_many_calls_that_compute_between_their_waits() -> None:
    """The convoy made each submission wait for every computing thread's turn."""
    with AdaptiveThreadPoolExecutor(policy="paper", min_workers=16) as executor:
        ended = threading.Event()

        def spin() -> None:
            while not ended.is_set():
                sum(range(2000))

        busy = [executor.submit(spin) for _ in range(16)]
        more = [executor.submit(len, "abc") for _ in range(100)]
        ended.set()
        assert [call.result(DEADLINE) for call in more] == [3] * 100
        for call in busy:
            call.result(DEADLINE)
