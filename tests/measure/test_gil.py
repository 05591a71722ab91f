"""The probe: did a thread find the GIL free when it woke?"""

from __future__ import annotations

import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hybridrt.measure import gil
from hybridrt.measure.gil import GilProbe, blocks, switch_interval_ns

MS = 1_000_000
needs_counts = pytest.mark.skipif(blocks() is None, reason="threads have no counter of their waits here")


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do `work` again and again in another thread."""
    ended, began = threading.Event(), threading.Event()

    def run() -> None:
        while not ended.is_set():
            work()
            began.set()

    thread = threading.Thread(target=run)
    thread.start()
    began.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def share_free(naps: int = 60) -> float:
    """Sleep again and again, and return how often the GIL was free."""
    probe, free = GilProbe(), 0
    for _ in range(naps):
        probe.sleep(time.perf_counter_ns() + MS)
        time.sleep(0.001)
        free += probe.woke(time.perf_counter_ns(), 0)
    return free / naps


def spin() -> None:
    for number in range(2000):
        number * number


BLOB = bytes(range(256)) * 4096
TEXT = json.dumps(list(range(20_000)))


@needs_counts
@pytest.mark.parametrize("interval", [0.005, 0.0001])
@pytest.mark.parametrize(
    ("work", "free"),
    [
        pytest.param(lambda: time.sleep(0.01), True, id="sleep"),
        pytest.param(lambda: zlib.compress(BLOB), True, id="zlib"),
        pytest.param(spin, False, id="bytecode"),
        pytest.param(lambda: json.loads(TEXT), False, id="json"),
    ],
)
def test_the_gil_is_free_beside_work_that_releases_it_at_any_switch_interval(
    work: Callable[[], object], free: bool, interval: float
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        with beside(work):
            assert (share_free() > 0.5) is free
    finally:
        sys.setswitchinterval(before)


@needs_counts
def test_a_lock_waited_for_counts_as_a_block() -> None:
    lock = threading.Lock()
    lock.acquire()
    before = blocks()
    lock.acquire(timeout=0.001)
    after = blocks()
    assert before is not None
    assert after is not None
    assert after > before


def test_where_waits_are_not_counted_lateness_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "_counted", False)
    assert blocks() is None
    probe = GilProbe()
    probe.sleep(10 * MS)
    assert probe.woke(10 * MS + MS // 4, MS // 2)
    assert probe.delay_ns == 0
    assert not probe.woke(12 * MS, MS // 2)
    assert probe.delay_ns == 2 * MS


@pytest.mark.parametrize("error", [PermissionError, MemoryError])
def test_waits_that_cannot_be_asked_for_are_not_counted(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(who: int) -> None:
        raise error

    monkeypatch.setattr(gil, "getrusage", refuse, raising=False)
    assert blocks() is None


@pytest.mark.parametrize(
    ("waits", "delay"),
    [
        pytest.param(1, 0, id="the GIL was free, the thread had no core for 40 ms"),
        pytest.param(3, 0.6, id="it asked for the GIL twice, and had no core"),
        pytest.param(250, 40, id="it asked all the time"),
    ],
)
def test_a_thread_that_had_no_core_did_not_wait_for_the_gil(
    waits: int, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([1000, 1000 + waits])
    monkeypatch.setattr(gil, "blocks", lambda: next(counts))
    monkeypatch.setattr(gil, "switch_interval_ns", lambda: 2 * MS // 10)
    probe = GilProbe()
    probe.sleep(10 * MS)
    assert probe.woke(50 * MS, MS // 2) is (waits == 1)
    assert probe.delay_ns == delay * MS


def test_the_switch_interval_is_in_nanoseconds() -> None:
    assert switch_interval_ns() == pytest.approx(sys.getswitchinterval() * 1e9)
