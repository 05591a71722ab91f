"""Bytes that worker threads move: read from the kernel, put into windows, followed by the pool."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.executor import executor as executor_module
from hybridrt.measure import moved
from hybridrt.measure.moved import MovedBytes, counts_moved

needs_counter = pytest.mark.skipif(not counts_moved(), reason="the kernel does not count bytes of threads")
SIZE = 100_000


@needs_counter
def test_what_a_thread_writes_and_reads_is_counted(tmp_path: Path) -> None:
    file, mine = tmp_path / "file", [threading.get_native_id()]
    counter = MovedBytes()
    counter.since(mine)
    file.write_bytes(bytes(SIZE))
    assert SIZE <= (counter.since(mine) or 0) < SIZE + 50_000
    file.read_bytes()
    assert SIZE <= (counter.since(mine) or 0) < SIZE + 50_000


@needs_counter
def test_a_new_thread_counts_from_its_start_and_one_that_ended_not_at_all(tmp_path: Path) -> None:
    counter, wrote, end = MovedBytes(), threading.Event(), threading.Event()
    ids: list[int] = []

    def write() -> None:
        ids.append(threading.get_native_id())
        (tmp_path / "file").write_bytes(bytes(SIZE))
        wrote.set()
        end.wait(30)

    assert counter.since([]) == 0
    thread = threading.Thread(target=write)
    thread.start()
    assert wrote.wait(30)
    assert (counter.since(ids) or 0) >= SIZE
    end.set()
    thread.join()
    assert counter.since([]) == 0


@needs_counter
def test_a_number_that_was_given_again_begins_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([1000, 300])
    monkeypatch.setattr(moved, "_read", lambda native_id: next(counts))
    counter = MovedBytes()
    assert counter.since([7]) == 1000
    assert counter.since([7]) == 300


def test_where_nothing_tells_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved.kernel, "read", lambda path: b"")
    assert not counts_moved()
    assert MovedBytes().since([threading.get_native_id()]) is None


def test_the_policy_says_where_it_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "counts_moved", lambda: False)
    with pytest.raises(NotImplementedError, match="which this system does not have; use 'demand'"):
        AdaptiveThreadPoolExecutor(policy="throughput")


@needs_counter
def test_the_pool_is_told_of_the_bytes_of_its_workers(tmp_path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    def write() -> int:
        (tmp_path / "file").write_bytes(bytes(SIZE))
        held.set()
        go.wait(30)
        return os.getpid()

    with AdaptiveThreadPoolExecutor(4, policy="throughput") as executor:
        future = executor.submit(write)
        assert held.wait(30)
        pool, now_ns = executor._pool, executor._pool.budget.clock.wall_ns()
        with pool.lock:
            pool.sizing.close_window(pool, now_ns + 60_000_000_000)
        go.set()
        assert future.result(30) == os.getpid()
        windows = executor.decision_log().windows
    assert sum((window.moved or 0.0) * window.seconds for window in windows) >= SIZE * 0.99
