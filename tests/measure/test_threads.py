"""The CPU clock of a thread, read by another thread while it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hybridrt.measure import kernel
from hybridrt.measure.foreign import ThreadClocks
from hybridrt.measure.threads import ThreadProbe

DEADLINE = 30.0
linux_only = pytest.mark.skipif(
    not os.path.exists("/proc/self/task"), reason="the kernel tells nothing about threads here"
)
clocks_only = pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="threads have no CPU clock here"
)


class Watched:
    """A thread that waits, spins when told, and can be looked at."""

    def __init__(self) -> None:
        self.spin = threading.Event()
        self.leave = threading.Event()
        self.ready = threading.Event()
        self.probe: ThreadProbe | None = None
        self.thread = threading.Thread(target=self._run, name="watched")

    def _run(self) -> None:
        self.probe = ThreadProbe()
        self.ready.set()
        self.spin.wait(DEADLINE)
        while not self.leave.is_set():
            pass


@contextmanager
def watched() -> Iterator[tuple[Watched, ThreadProbe]]:
    """Run a watched thread; the probe stays readable after the block, the thread is gone then."""
    one = Watched()
    one.thread.start()
    try:
        assert one.ready.wait(DEADLINE)
        assert one.probe is not None
        yield one, one.probe
    finally:
        one.leave.set()
        one.spin.set()
        one.thread.join()
        if one.probe is not None:
            one.probe.close()


@clocks_only
def test_the_clock_of_a_spinning_thread_moves() -> None:
    with watched() as (thread, probe):
        before = probe.cpu_ns()
        assert before is not None
        thread.spin.set()
        deadline = time.monotonic() + DEADLINE
        while (now := probe.cpu_ns() or 0) < before + 10_000_000 and time.monotonic() < deadline:
            pass
        assert now >= before + 10_000_000


def test_in_a_greenlet_that_passes_for_a_thread_the_clock_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ident: int) -> int:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(time, "pthread_getcpuclockid", refuse, raising=False)
    assert ThreadProbe().cpu_ns() is None
    assert ThreadClocks().spent([threading.get_native_id()]) is None


def compute_for(cpu_seconds: float) -> None:
    """Use CPU time in the calling thread."""
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        pass


@clocks_only
def test_the_clock_of_a_waiting_thread_stands_still() -> None:
    with watched() as (_, probe):
        compute_for(0.02)  # long enough for it to have reached its wait
        before = probe.cpu_ns()
        compute_for(0.02)
        assert probe.cpu_ns() == before


@clocks_only
def test_the_clock_is_that_of_the_thread_itself() -> None:
    probe = ThreadProbe()
    first = probe.cpu_ns()
    middle = time.thread_time_ns()
    last = probe.cpu_ns()
    assert first is not None
    assert last is not None
    assert first <= middle <= last


@linux_only
def test_a_thread_that_waits_is_not_put_on_a_core() -> None:
    with watched() as (_, probe):
        compute_for(0.02)
        before = probe.schedule_ins()
        compute_for(0.02)
        assert before is not None
        assert before > 0
        assert probe.schedule_ins() == before


@linux_only
def test_a_thread_that_waits_is_not_ready_to_run_and_one_that_runs_is() -> None:
    with watched() as (_, probe):
        compute_for(0.02)
        assert probe.is_runnable() is False
    own = ThreadProbe()
    assert own.is_runnable() is True
    own.close()


@linux_only
def test_the_time_without_a_core_never_goes_back() -> None:
    own = ThreadProbe()
    delays = []
    for _ in range(5):
        compute_for(0.002)
        delays.append(own.run_delay_ns())
    own.close()
    assert None not in delays
    assert delays == sorted(delays, key=int)  # type: ignore[arg-type]


@linux_only
def test_a_thread_that_is_woken_is_put_on_a_core() -> None:
    bell, answer, leave = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    probes: list[ThreadProbe] = []

    def echo() -> None:
        probes.append(ThreadProbe())
        while not leave.is_set():
            answer.release()
            bell.acquire()

    thread = threading.Thread(target=echo)
    thread.start()
    answer.acquire()
    before = probes[0].schedule_ins()
    for _ in range(20):
        bell.release()
        answer.acquire()
    after = probes[0].schedule_ins()
    leave.set()
    bell.release()
    thread.join()
    probes[0].close()
    assert before is not None
    assert after is not None
    assert after > before


def test_a_closed_probe_answers_with_none() -> None:
    probe = ThreadProbe()
    probe.schedule_ins()
    probe.close()
    probe.close()
    for answer in (probe.cpu_ns, probe.schedule_ins, probe.run_delay_ns, probe.is_runnable):
        assert answer() is None


class ClosedOnceRead(ThreadProbe):
    """A probe that its owner closes just after another thread has looked for its clock."""

    __slots__ = ()

    @property  # type: ignore[override]
    def _clock_id(self) -> int | None:
        clock_id: int | None = ThreadProbe._clock_id.__get__(self)  # type: ignore[attr-defined]
        ThreadProbe._clock_id.__set__(self, None)  # type: ignore[attr-defined]
        return clock_id

    @_clock_id.setter
    def _clock_id(self, clock_id: int | None) -> None:
        ThreadProbe._clock_id.__set__(self, clock_id)  # type: ignore[attr-defined]


@clocks_only
def test_a_probe_that_is_closed_while_it_is_read_does_not_fail() -> None:
    probe = ClosedOnceRead()
    assert probe.cpu_ns() is not None
    assert probe.cpu_ns() is None


def test_after_its_thread_is_gone_and_it_is_closed_a_probe_answers_with_none() -> None:
    with watched() as (_, probe):
        pass
    assert probe.cpu_ns() is None
    assert probe.schedule_ins() is None


def test_where_threads_have_no_clock_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    probe = ThreadProbe()
    assert probe.cpu_ns() is None
    probe.close()


def test_where_the_clock_of_a_thread_cannot_be_read_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: int) -> int:
        raise OSError("no such thread")

    probe = ThreadProbe()
    monkeypatch.setattr(time, "clock_gettime_ns", gone, raising=False)
    assert probe.cpu_ns() is None
    probe.close()


@pytest.mark.parametrize("text", [b"", b"1 2", b"a b c"])
def test_a_kernel_that_tells_nothing_of_threads_is_absent(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    probe = ThreadProbe()
    monkeypatch.setattr(kernel, "read", lambda _: text)
    assert probe.schedule_ins() is None
    probe.close()
