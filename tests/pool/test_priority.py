"""Threads that compute run below the loop's, so that the kernel gives a loop that wakes a core at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, offload
from hybridrt.pool import priority
from hybridrt.pool.priority import ISOLATE, THREAD, lower

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")


def here() -> int:
    """Return the niceness of the thread that calls."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def here_in_a_while() -> int:
    """The same, from a thread that others start beside."""
    time.sleep(0.005)
    return here()


@pytest.fixture
def main() -> int:
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


async def test_the_threads_of_a_runtime_are_lower_than_the_loop_and_none_is_lower_still(main: int) -> None:
    async with Runtime():
        found = await asyncio.gather(*(offload(here_in_a_while)() for _ in range(30)))
    assert set(found) == {main + THREAD}
    assert here() == main


def test_threads_that_were_there_before_the_loop_are_lowered_too(main: int) -> None:
    async def with_a_loop() -> int:
        async with Runtime():
            return executor.submit(here).result()

    with AdaptiveThreadPoolExecutor() as executor:
        assert executor.submit(here).result() == main
        assert asyncio.run(with_a_loop()) == main + THREAD


async def test_a_user_who_forbids_the_shield_keeps_the_priority(main: int) -> None:
    async with Runtime(shield=False):
        assert await offload(here)() == main


def test_without_a_loop_nothing_is_lowered(main: int) -> None:
    with AdaptiveThreadPoolExecutor() as executor:
        assert executor.submit(here).result() == main


async def test_a_sandbox_that_forbids_it_stops_no_call(monkeypatch: pytest.MonkeyPatch, main: int) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(priority.os, "setpriority", refuse)
    async with Runtime():
        assert await offload(here)() == main


def test_what_is_lower_already_stays_so(main: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, main + ISOLATE + 2)
            lower(process.pid, ISOLATE)
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == main + ISOLATE + 2
        finally:
            process.kill()


def test_one_that_has_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    lower(process.pid, ISOLATE)
