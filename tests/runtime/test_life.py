"""The runtime's life: what it installs, what it refuses before and after, what it leaves."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import os
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import psutil
import pytest

import hybridrt
from hybridrt import Reason, Runtime, RuntimeClosedError, blocking, offload
from hybridrt.executor.budget import shared
from hybridrt.measure import host
from tests.loop.support import Gate, eventually, hold, sole_worker, turns


class Connection:
    """What a context variable may hold."""


def prefix() -> str:
    return threading.current_thread().name.partition("_")[0]


# ---------------------------------------------------------------------- what it installs


async def test_the_runtimes_executor_is_the_loops_default_executor() -> None:
    async with Runtime():
        assert await asyncio.to_thread(prefix) == "hybridrt"
        assert await asyncio.get_running_loop().run_in_executor(None, prefix) == "hybridrt"


async def test_offloaded_functions_run_on_it() -> None:
    async with Runtime() as runtime:
        assert await offload(prefix)() == "hybridrt"
        assert await runtime.offload(prefix) == "hybridrt"
        assert runtime.statistics().completed == 2


async def test_names_are_resolved_through_it_while_its_worker_is_blocked() -> None:
    """On uvloop by itself, on asyncio through the lane for it."""
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        assert [address for *_, address in found] == [("127.0.0.1", 80)]


async def test_offload_of_the_runtime_takes_offloaded_functions_with_their_options() -> None:
    async with Runtime() as runtime, Gate() as gate:
        one = offload(gate, limit=1)
        tasks = [asyncio.ensure_future(runtime.offload(one, n)) for n in range(2)]
        await gate.entered()
        await turns()
        assert runtime.statistics().queued["gated"] == 1
        gate.release()
        assert await asyncio.gather(*tasks) == [0, 1]


async def test_offload_of_the_runtime_takes_bound_methods() -> None:
    class Scale:
        @offload
        def twice(self, number: int) -> int:
            return 2 * number

        def thrice(self, number: int) -> int:
            return 3 * number

    async with Runtime() as runtime:
        assert await runtime.offload(Scale().twice, 2) == 4
        assert await runtime.offload(Scale().thrice, number=2) == 6


# ---------------------------------------------------------------------- one at a time


async def test_a_loop_takes_one_runtime_at_a_time() -> None:
    async with Runtime():
        with pytest.raises(RuntimeError, match="has a Runtime already"):
            async with Runtime():
                pass
        assert await offload(prefix)() == "hybridrt"


async def test_a_loop_takes_one_runtime_after_the_other() -> None:
    for _ in range(3):
        async with Runtime():
            assert await offload(prefix)() == "hybridrt"


async def test_a_runtime_serves_once() -> None:
    runtime = Runtime()
    async with runtime:
        with pytest.raises(RuntimeError, match="serves once, and this one is open"):
            await runtime.__aenter__()
    with pytest.raises(RuntimeError, match="serves once, and this one is closed; make a new one"):
        async with runtime:
            pass


# ---------------------------------------------------------------------- before and after


async def _nothing() -> None:
    pass


USES: dict[str, Callable[[Runtime], Coroutine[Any, Any, Any]]] = {
    "offload": lambda runtime: runtime.offload(int),
    "map": lambda runtime: runtime.map(int, []),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_a_runtime_that_is_not_open_refuses_work(
    use: Callable[[Runtime], Coroutine[Any, Any, Any]],
) -> None:
    runtime = Runtime()
    with pytest.raises(RuntimeClosedError, match=r"is new, not open; use it within `async with Runtime\(\)`"):
        await use(runtime)
    async with runtime:
        await use(runtime)
    with pytest.raises(RuntimeClosedError, match="is closed, not open; make a new one"):
        await use(runtime)


async def test_a_runtime_that_is_not_open_refuses_background_tasks_and_closes_them() -> None:
    runtime = Runtime()
    for state in ("new", "closed"):
        coro = _nothing()
        with pytest.raises(RuntimeClosedError, match=f"is {state}, not open"):
            runtime.background(coro)
        assert coro.cr_frame is None
        await runtime.aclose()


async def test_a_closed_runtime_tells_its_statistics() -> None:
    async with Runtime() as runtime:
        await runtime.offload(int)
    assert (runtime.statistics().completed, runtime.statistics().workers) == (1, 0)


async def test_closing_twice_is_fine() -> None:
    async with Runtime() as runtime:
        await runtime.aclose()
        await runtime.aclose()
    await Runtime().aclose()


async def test_after_the_close_the_loop_has_a_plain_executor_that_works() -> None:
    async with Runtime():
        pass
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(prefix) == "asyncio"
    assert await loop.run_in_executor(None, prefix) == "asyncio"
    assert await offload(prefix)() == "hybridrt-private"
    await loop.shutdown_default_executor()


async def test_a_default_executor_that_was_set_meanwhile_stays_after_the_close() -> None:
    loop = asyncio.get_running_loop()
    if not hasattr(loop, "_default_executor"):
        pytest.skip("uvloop does not say which executor it has")
    async with Runtime():
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="mine"))
        assert await asyncio.to_thread(prefix) == "mine"
    assert await asyncio.to_thread(prefix) == "mine"
    await loop.shutdown_default_executor()


async def test_after_the_close_no_thread_of_the_runtime_is_left() -> None:
    async with Runtime() as runtime:
        await runtime.map(abs, range(100))
        assert any(thread.name.startswith("hybridrt_") for thread in threading.enumerate())
    assert not any(thread.name.startswith("hybridrt_") for thread in threading.enumerate())


async def test_a_closed_runtime_is_kept_by_nobody() -> None:
    runtime = Runtime()
    async with runtime:
        await runtime.offload(int)
    watched = weakref.ref(runtime), weakref.ref(runtime.executor), weakref.ref(runtime.executor._pool)
    del runtime

    def are_gone() -> bool:
        gc.collect()
        return [watch() for watch in watched] == [None, None, None]

    await eventually(are_gone)  # the governor may be looking at the pool just now


def test_a_loop_that_ended_without_closing_its_runtime_is_not_kept() -> None:
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        hybridrt.install()
        await offload(int)()
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(main()) for _ in range(10)]
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


# ---------------------------------------------------------------------- current and install


async def test_current_is_the_runtime_of_the_running_loop() -> None:
    with pytest.raises(RuntimeClosedError, match="this event loop has no Runtime; use `run`, `install`"):
        Runtime.current()
    async with Runtime() as runtime:
        assert Runtime.current() is runtime
    with pytest.raises(RuntimeClosedError):
        Runtime.current()


async def test_install_gives_the_running_loop_a_runtime() -> None:
    runtime = hybridrt.install(max_workers=3)
    assert await asyncio.to_thread(prefix) == "hybridrt"
    assert await offload(prefix)() == "hybridrt"
    assert runtime.statistics().max_workers == 3
    await runtime.aclose()
    assert await offload(prefix)() == "hybridrt-private"


async def test_what_the_context_of_the_task_that_installs_it_holds_is_freed_with_the_task() -> None:
    variable: ContextVar[object] = ContextVar("variable")

    async def start() -> weakref.ref[object]:
        held = Connection()
        variable.set(held)
        hybridrt.install()
        return weakref.ref(held)

    held = await asyncio.create_task(start())
    try:
        await turns(2)
        gc.collect()
        assert held() is None
    finally:
        await Runtime.current().aclose()


async def test_install_refuses_a_loop_that_has_a_runtime() -> None:
    async with Runtime():
        with pytest.raises(RuntimeError, match="has a Runtime already"):
            hybridrt.install()


@pytest.mark.parametrize("ask", [hybridrt.install, Runtime.current])
def test_install_and_current_need_a_running_loop_and_say_of_which_kind(ask: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="no running event loop; hybridrt needs one of asyncio or uvloop"):
        ask()


def test_a_loop_may_end_without_closing_what_install_made() -> None:
    async def main() -> str:
        hybridrt.install()
        return await offload(prefix)()

    assert asyncio.run(main()) == "hybridrt"


def test_a_runtime_that_refuses_and_whose_loop_ended_without_its_close_refuses_no_more() -> None:
    async def main() -> Runtime:
        runtime = hybridrt.install(govern_native=False)
        assert not shared.native_limits.active
        await offload(prefix)()
        return runtime

    before = shared.native_limits.active
    runtime = asyncio.run(main())
    assert shared.native_limits.active == before
    asyncio.run(runtime.aclose())
    assert shared.native_limits.active == before


# ---------------------------------------------------------------------- arguments

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
    ({"max_workers": -1}, ValueError, "max_workers must be greater than 0"),
    ({"min_workers": -1}, ValueError, "min_workers must be an int >= 0, got -1"),
    ({"min_workers": "2"}, TypeError, "min_workers must be an int >= 0, got '2'"),
    ({"min_workers": 3, "max_workers": 2}, ValueError, r"at most max_workers \(2\), got 3"),
    ({"max_workers": "4"}, TypeError, "max_workers must be an int, got '4'"),
    ({"max_workers": 2.5}, TypeError, "max_workers must be an int, got 2.5"),
    ({"min_workers": 0.5}, TypeError, "min_workers must be an int >= 0, got 0.5"),
    ({"shield": "no"}, TypeError, "shield must be True or False, got 'no'"),
    ({"govern_native": 1}, TypeError, "govern_native must be True or False, got 1"),
    ({"govern_anyio": 1}, TypeError, "govern_anyio must be True or False, got 1"),
    ({"measure": None}, TypeError, "measure must be True or False, got None"),
    ({"hooks": print}, TypeError, r"hooks must be Hooks\(...\) or None, got <built-in"),
    (
        {"policy": "magic"},
        ValueError,
        "policy must be one of 'demand', 'paper', 'throughput', or an object .* got 'magic'",
    ),
    ({"queue_max": -1}, ValueError, "queue_max must be an int >= 1 or None, got -1"),
    ({"queue_max": math.nan}, TypeError, "queue_max must be an int >= 1 or None, got nan"),
    ({"background_max": 0}, ValueError, "background_max must be an int >= 1, got 0"),
    ({"background_max": "1"}, TypeError, "background_max must be an int >= 1, got '1'"),
    ({"background_max": None}, TypeError, "background_max must be an int >= 1, got None"),
    ({"shutdown_timeout": -1}, ValueError, "is in seconds and must be a number >= 0, got -1"),
    ({"shutdown_timeout": math.nan}, ValueError, "shutdown_timeout is in seconds"),
    ({"shutdown_timeout": "5"}, TypeError, "shutdown_timeout is in seconds"),
    ({"shutdown_timeout": None}, TypeError, "shutdown_timeout is in seconds"),
    ({"loop_delay_target": 0}, ValueError, "is in seconds and must be a number > 0, got 0"),
    ({"loop_delay_target": None}, TypeError, "loop_delay_target is in seconds and must be a number > 0"),
    ({"memory_max": -5}, ValueError, "is in bytes and must be an int >= 1 or None, got -5"),
    ({"memory_max": 5e8}, TypeError, "is in bytes and must be an int >= 1 or None, got 500000000.0"),
    ({"idle_timeout": -1}, ValueError, "idle_timeout is in seconds and must be a number >= 0, got -1"),
    ({"idle_timeout": math.nan}, ValueError, "idle_timeout is in seconds"),
    ({"worker_max": 1}, TypeError, "worker_max"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG, ids=lambda value: None)
def test_a_wrong_argument_is_told_at_once(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Runtime(**options)


def test_more_threads_may_stay_than_the_default_limit_has() -> None:
    assert Runtime(min_workers=300).statistics().max_workers == 300


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({}, 10),
        ({"max_workers": 64}, 10),
        ({"max_workers": 8}, 8),
        ({"max_workers": 1}, 1),
        ({"max_workers": 64, "min_workers": 12}, 12),
    ],
)
def test_a_memory_budget_lowers_the_number_of_threads(options: dict[str, int], threads: int) -> None:
    assert Runtime(memory_max=40 << 20, **options).statistics().max_workers == threads  # type: ignore[arg-type]


def test_the_budget_of_one_runtime_does_not_lower_the_number_of_threads_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "memory", host.Memory(limit=40 << 20, given=1 << 40, share=0.5))
    assert Runtime().statistics().max_workers == 256


async def test_a_memory_budget_that_is_used_up_keeps_threads_from_being_added() -> None:
    """Forty calls that wait, and say so, would have a thread each within half a second.

    The budget is half of what is used, and some of that is held here, because what earlier tests have left
    may be given back meanwhile.
    """
    held = bytearray(b"x") * (128 << 20)
    budget = psutil.Process().memory_info().rss // 2
    async with Runtime(max_workers=64, memory_max=budget) as runtime, Gate() as gate:

        def wait() -> None:
            with blocking():
                gate()

        tasks = [asyncio.ensure_future(runtime.offload(wait)) for _ in range(40)]
        await eventually(lambda: Reason.MEMORY in (each.reason for each in runtime.statistics().decisions))
        host = runtime.statistics().host
        assert host is not None
        assert (host.memory_limit, host.cores) == (budget, shared.cores)
        assert host.memory_share is not None
        assert host.memory_share >= 0.9
        gate.release()
        await asyncio.gather(*tasks)
    del held


def test_a_runtime_can_be_made_where_the_memory_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    monkeypatch.setattr(os, "sysconf", fail, raising=False)
    monkeypatch.setattr(host, "_lines", lambda _: [])
    monkeypatch.setattr(shared, "memory", host.read_memory())
    assert Runtime().statistics().max_workers == 256
