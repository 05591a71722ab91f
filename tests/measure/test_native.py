"""Threads of the process that Python did not start."""

from __future__ import annotations

import os
import threading
import time

import pytest

from hybridrt.measure import kernel
from hybridrt.measure.native import NativeThreads

linux_only = pytest.mark.skipif(
    not os.path.exists("/proc/self/task"), reason="the kernel tells nothing about threads here"
)


@linux_only
def test_threads_of_python_are_not_native_ones() -> None:
    native, leave = NativeThreads(), threading.Event()
    threads = [threading.Thread(target=leave.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    native.find()
    found = set(native._ids)
    leave.set()
    for thread in threads:
        thread.join()
    assert not found & {thread.native_id for thread in (*threads, threading.main_thread())}


@linux_only
def test_a_thread_of_python_that_starts_while_they_are_listed_is_no_native_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, leave, threads = NativeThreads(), threading.Event(), list[threading.Thread]()

    def list_late(path: str) -> list[str]:
        threads.append(threading.Thread(target=leave.wait))
        threads[0].start()
        return listdir(path)

    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", list_late)
    native.find()
    leave.set()
    threads[0].join()
    assert threads[0].native_id not in native._ids


@linux_only
def test_a_thread_that_python_does_not_know_is_a_native_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of Python that `threading` is made to forget stands in for one of a library."""
    native, ready, leave = NativeThreads(), threading.Event(), threading.Event()

    def compute() -> None:
        ready.set()
        while not leave.is_set():
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    ready.wait()
    known = [one for one in threading.enumerate() if one is not thread]
    monkeypatch.setattr(threading, "enumerate", lambda: known)
    monkeypatch.setattr(threading, "active_count", lambda: len(known))
    native.find()
    used = 0
    while used < 1_000_000 and thread.native_id in native._ids:
        used += native.spent_ns()
    leave.set()
    thread.join()
    assert used >= 1_000_000


@linux_only
def test_a_thread_that_took_the_place_of_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a library that is set up anew. Two of Python that `threading` is made to forget stand in."""
    leaves = [threading.Event(), threading.Event()]
    threads = [threading.Thread(target=leave.wait) for leave in leaves]
    known = threading.enumerate()
    monkeypatch.setattr(threading, "enumerate", lambda: known)
    monkeypatch.setattr(threading, "active_count", lambda: len(known))
    native, found = NativeThreads(), list[bool]()
    for thread, leave in zip(threads, leaves, strict=True):
        thread.start()
        native.find()
        found.append(thread.native_id in native._ids)
        leave.set()
        thread.join()
        deadline = time.monotonic() + 20.0
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline:
            time.sleep(0.001)  # Python is done with it, the kernel not yet
        native.spent_ns()
    assert found == [True, True]


def test_where_the_kernel_does_not_tell_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "read", lambda _: b"")
    native = NativeThreads()
    native.find()
    assert (len(native), native.spent_ns()) == (0, 0)
