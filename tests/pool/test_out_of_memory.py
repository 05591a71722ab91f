"""Where memory is lacking: what measures is absent, no call is lost, and a dead worker is replaced."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from hybridrt import WorkerLostError, offload
from hybridrt.measure import gil, kernel
from hybridrt.observe.functions import Profile
from hybridrt.pool import worker as worker_module
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.state import Pool
from hybridrt.pool.worker import WorkerThread

from .conftest import Make, MakePool
from .support import DEADLINE, make_call, named, until


def lacks_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


def submit(pool: Pool, fn: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    call = make_call(pool, fn, *args)
    for name, value in fields.items():
        setattr(call, name, value)
    pool.push(call)
    return call


@pytest.mark.parametrize(
    ("owner", "name"),
    [(worker_module, "ThreadProbe"), (kernel, "read"), (gil, "getrusage"), (Profile, "record")],
    ids=["the probe", "its files", "the count of waits", "the profile"],
)
def test_measuring_that_lacks_memory_is_absent(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    if not hasattr(owner, name):
        pytest.skip("the platform does not have it")
    monkeypatch.setattr(owner, name, lacks_memory)
    pool, lane = make_private(), Limiter(1, "lane")
    calls = [submit(pool, named("call"), number, limiters=(lane,)) for number in range(5)]
    assert [call.result(DEADLINE) for call in calls] == [(number,) for number in range(5)]
    until(lambda: pool.busy == 0, "everything is given back")
    assert (pool.tally.completed, pool.tally.workers_lost, lane.active) == (5, 0, 0)


def dies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the worker of the next call die before it has begun that."""
    execute = WorkerThread._execute

    def dies(worker: WorkerThread, call: Any) -> None:
        monkeypatch.setattr(WorkerThread, "_execute", execute)
        raise MemoryError

    monkeypatch.setattr(WorkerThread, "_execute", dies)


@pytest.mark.usefixtures("quiet_thread")
def test_a_worker_that_dies_before_its_call_begins_fails_that_and_is_replaced(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_once(monkeypatch)
    pool, lane = make_private(lanes=False, max_workers=1), Limiter(1, "lane")
    lost = submit(pool, named("lost"), limiters=(lane,))
    others = [submit(pool, named("other"), number, limiters=(lane,)) for number in range(3)]
    with pytest.raises(WorkerLostError, match="lost"):
        lost.result(DEADLINE)
    assert [call.result(DEADLINE) for call in others] == [(number,) for number in range(3)]
    until(lambda: pool.busy == 0, "everything is given back")
    tally = pool.tally
    assert (tally.completed, tally.failed, tally.workers_lost, lane.active) == (3, 1, 1, 0)


@pytest.mark.usefixtures("quiet_thread")
async def test_an_awaited_call_whose_worker_dies_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    dies_once(monkeypatch)
    with pytest.raises(WorkerLostError, match="len"):
        await offload(len)("abc")
    assert await offload(len)("abc") == 3


def test_a_call_that_a_worker_dies_of_while_it_waits_for_it_fails(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make(max_workers=1)
    inner: list[Any] = []

    def outer() -> None:
        inner.append(executor.submit(named("inner")))
        dies_once(monkeypatch)
        inner[0].result()

    with pytest.raises(MemoryError):
        executor.submit(outer).result(DEADLINE)
    with pytest.raises(WorkerLostError, match="inner"):
        inner[0].result(DEADLINE)
    assert executor.submit(len, "abc").result(DEADLINE) == 3


@pytest.mark.usefixtures("quiet_thread")
def test_calls_behind_a_dead_worker_run_though_there_was_no_memory_for_another_one(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_private(lanes=False, max_workers=1)
    spawn, execute = pool.spawn, WorkerThread._execute

    def spawns_later(name: str) -> Any:
        monkeypatch.setattr(pool, "spawn", spawn)
        raise MemoryError

    def dies(worker: WorkerThread, call: Any) -> None:
        monkeypatch.setattr(WorkerThread, "_execute", execute)
        behind.append(submit(pool, named("behind")))
        monkeypatch.setattr(pool, "spawn", spawns_later)
        raise MemoryError

    behind: list[Any] = []
    monkeypatch.setattr(WorkerThread, "_execute", dies)
    with pytest.raises(WorkerLostError, match="lost"):
        submit(pool, named("lost")).result(DEADLINE)
    assert behind[0].result(DEADLINE) == ()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_a_program_at_its_limit_of_memory_ends() -> None:
    """Calls take all the memory there is, again and again, in blocks so small that nothing is left."""
    script = """
        import ctypes, resource, time, hybridrt
        ctypes.CDLL("libgcc_s.so.1")  # the C library loads it at the end of a thread, and aborts if it cannot

        def hungry():
            kept = []
            try:
                while True:
                    kept.append(bytearray(300))
            except MemoryError:
                time.sleep(0.02)
                kept.clear()
                raise

        def are_over(futures):
            for future in futures:
                if not future.done():
                    return False
            return True

        executor = hybridrt.AdaptiveThreadPoolExecutor(max_workers=8)
        for future in [executor.submit(time.sleep, 0.05) for _ in range(8)]:
            future.result()
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20),) * 2)
        futures = [executor.submit(len, "abc") if n % 3 else executor.submit(hungry) for n in range(12)]
        while True:
            try:
                if are_over(futures):
                    break
                time.sleep(0.01)
            except MemoryError:
                pass
        executor.shutdown()
        print("all over")
        """
    done = subprocess.run(
        [sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "all over" in done.stdout, done.stderr


def test_a_call_that_could_not_be_queued_does_not_count(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_private(max_workers=1)
    for path in (0, 1):  # the lane is empty; calls are queued
        meanwhile = [submit(pool, named("queued")) for _ in range(path)]
        with monkeypatch.context() as patched:
            patched.setattr(pool.admission, "put", lacks_memory)
            patched.setattr(pool.admission, "start_at_once", lambda *_: False)
            patched.setattr(pool, "queued", pool.queued + path)
            before = pool.queued
            with pytest.raises(MemoryError):
                submit(pool, named("lost"))
            assert pool.queued == before
        [call.result(DEADLINE) for call in meanwhile]


def test_a_worker_that_could_not_be_noted_is_none(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lacking(weakref.WeakSet[Any]):
        def add(self, item: Any) -> None:
            monkeypatch.undo()
            raise MemoryError

    pool = make_private(lanes=False, max_workers=1)
    monkeypatch.setattr(pool.roster, "threads", Lacking())
    call = submit(pool, named("call"), 1)
    with pool.lock:  # as the governor does at its next step, or has done already
        to_start = dispatch_locked(pool)
    pool.start(to_start)
    assert call.result(DEADLINE) == (1,)
    assert len(pool.roster.workers) == 1


def test_workers_that_were_given_calls_start_though_memory_ends_in_the_middle_of_a_dispatch(
    make_private: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_private(lanes=False, max_workers=4)
    take = pool.admission.take

    def ends_after_two(*args: Any) -> Any:
        if len(pool.roster.workers) < 2:
            return take(*args)
        monkeypatch.undo()
        raise MemoryError

    calls = [make_call(pool, named("call"), number) for number in range(4)]
    with pool.lock:
        for call in calls:
            call.queued_ns = pool.roster.queue_ns()
            pool.admission.put(call)
        pool.queued = len(calls)
        monkeypatch.setattr(pool.admission, "take", ends_after_two)
        to_start = dispatch_locked(pool)
    pool.start(to_start)
    pool.governor.wake()
    assert [call.result(DEADLINE) for call in calls] == [(number,) for number in range(4)]
