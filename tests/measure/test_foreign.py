"""CPU clocks of threads that somebody else owns."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest

from hybridrt.measure.foreign import ThreadClocks

linux = pytest.mark.skipif(sys.platform != "linux", reason="thread ids give clock ids on Linux alone")


class Worker:
    """A thread that computes a given CPU time on demand, and says when it has."""

    def __init__(self) -> None:
        self._work: list[float] = []
        self._go = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.compute(0.0)

    def _run(self) -> None:
        while True:
            self._go.acquire()
            if not self._work:
                return
            end = time.thread_time() + self._work.pop()
            while time.thread_time() < end:
                pass
            self._done.release()

    def compute(self, seconds: float) -> None:
        self._work.append(seconds)
        self._go.release()
        self._done.acquire()

    def end(self) -> int:
        """End the thread and return the id it had."""
        self._go.release()
        self.thread.join()
        assert self.thread.native_id is not None
        return self.thread.native_id

    @property
    def id(self) -> int:
        assert self.thread.native_id is not None
        return self.thread.native_id


@linux
def test_the_time_that_others_compute_is_seen() -> None:
    workers = [Worker(), Worker()]
    ids = [worker.id for worker in workers]
    clocks = ThreadClocks()
    clocks.restart(ids)
    for worker in workers:
        worker.compute(0.02)
    spent = clocks.spent(ids)
    for worker in workers:
        worker.end()
    assert spent is not None
    assert 0.04 <= spent < 0.2


@linux
def test_time_before_the_first_question_does_not_count() -> None:
    worker = Worker()
    worker.compute(0.02)
    clocks = ThreadClocks()
    first = clocks.spent([worker.id])
    worker.end()
    assert first == 0.0


@linux
def test_a_thread_that_came_since_counts_from_its_start() -> None:
    clocks = ThreadClocks()
    clocks.restart([])
    worker = Worker()
    worker.compute(0.02)
    spent = clocks.spent([worker.id])
    worker.end()
    assert spent is not None
    assert spent >= 0.02


@linux
def test_a_thread_that_is_gone_is_skipped() -> None:
    worker, other = Worker(), Worker()
    clocks = ThreadClocks()
    clocks.restart([worker.id, other.id])
    gone = worker.end()
    other.compute(0.01)
    spent = clocks.spent([gone, other.id])
    other.end()
    assert spent is not None
    assert spent >= 0.01


@linux
def test_a_clock_that_went_back_belongs_to_a_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000_000_000, 3_000_000])
    clocks = ThreadClocks()
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: next(times))
    clocks.restart([1])
    assert clocks.spent([1]) == 0.003


def _getters() -> list[Callable[[int], int] | None]:
    return [None, lambda ident: 12345]


@pytest.mark.parametrize("getter", _getters(), ids=["no getter", "another encoding"])
def test_a_platform_without_such_clocks_says_so(
    getter: Callable[[int], int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "pthread_getcpuclockid", getter, raising=False)
    clocks = ThreadClocks()
    clocks.restart([threading.get_native_id()])
    assert clocks.spent([threading.get_native_id()]) is None
