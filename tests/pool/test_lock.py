"""Waiting for the interpreter's lock without owning it before one has the GIL."""

from __future__ import annotations

import threading

import pytest

from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.pool import lock as lock_module
from hybridrt.pool.lock import patiently

from .support import DEADLINE


def test_a_free_lock_is_returned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module.time, "sleep", lambda _: pytest.fail("nobody has it"))
    lock = threading.Lock()
    assert patiently(lock) is lock
    assert not lock.locked()


def test_a_taken_lock_is_looked_at_again_until_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, looks = threading.Lock(), []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            lock.release()

    monkeypatch.setattr(lock_module.time, "sleep", sleep)
    lock.acquire()
    with patiently(lock):
        assert lock.locked()
    assert looks == [lock_module.PAUSE] * 3


def test_without_a_gil_there_is_nothing_to_be_patient_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "gil_enabled", lambda: False)
    monkeypatch.setattr(lock_module.time, "sleep", lambda _: pytest.fail("the lock itself waits better"))
    lock = threading.Lock()
    with lock:
        assert patiently(lock) is lock


@pytest.mark.race
def test_nobody_gets_in_while_somebody_is_inside() -> None:
    lock, inside, most = threading.Lock(), [0], [0]

    def enter() -> None:
        for _ in range(20):
            with patiently(lock):
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
