"""The executor as the default executor of asyncio's and uvloop's loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import socket
import sys
import threading
from collections.abc import Awaitable
from typing import NoReturn, TypeVar

import pytest

from .conftest import Make
from .support import DEADLINE, Gate, Kind

T = TypeVar("T")
VARIABLE = contextvars.ContextVar("variable", default="unset")


def _raise(error: BaseException) -> NoReturn:
    raise error


async def soon(result: Awaitable[T]) -> T:
    """Await what never comes when the code is broken; a waiting uvloop cannot be interrupted."""
    async with asyncio.timeout(DEADLINE):
        return await result


async def test_calls_for_the_default_executor_run_on_its_threads(make: Make) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(make(2, "default"))
    through_loop = await loop.run_in_executor(None, threading.current_thread)
    through_to_thread = await asyncio.to_thread(threading.current_thread)
    assert {thread.name.partition("_")[0] for thread in (through_loop, through_to_thread)} == {"default"}


async def test_an_executor_given_by_name_runs_the_call(make: Make) -> None:
    loop, executor = asyncio.get_running_loop(), make(1, "given")
    thread = await loop.run_in_executor(executor, threading.current_thread)
    assert thread.name == "given_0"


async def test_arguments_and_results_travel(make: Make) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(make(2))
    assert await loop.run_in_executor(None, pow, 2, 8) == 256
    assert await asyncio.to_thread(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]


async def test_exceptions_travel(make: Make) -> None:
    asyncio.get_running_loop().set_default_executor(make(1))
    error = LookupError("x")
    with pytest.raises(LookupError) as caught:
        await asyncio.to_thread(_raise, error)
    assert caught.value is error


async def test_to_thread_carries_the_context_variables(make: Make) -> None:
    asyncio.get_running_loop().set_default_executor(make(1))
    VARIABLE.set("of the task")
    assert await asyncio.to_thread(VARIABLE.get) == "of the task"


async def test_run_in_executor_carries_the_context_variables_too(make_ours: Make) -> None:
    """`run_in_executor` on the stdlib class gives the call an empty context."""
    asyncio.get_running_loop().set_default_executor(make_ours(1))
    VARIABLE.set("of the task")
    assert await asyncio.get_running_loop().run_in_executor(None, VARIABLE.get) == "of the task"


async def test_what_a_call_sets_in_its_context_stays_in_it(make_ours: Make) -> None:
    """On the stdlib class it stays in the worker's context and shows in later, unrelated calls."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(make_ours(1))
    await loop.run_in_executor(None, VARIABLE.set, "of the call")
    assert VARIABLE.get() == "unset"
    assert await loop.run_in_executor(None, VARIABLE.get) == "unset"


async def test_many_calls_at_once_all_come_back(make: Make) -> None:
    asyncio.get_running_loop().set_default_executor(make(4))
    assert await asyncio.gather(*(asyncio.to_thread(abs, -n) for n in range(300))) == list(range(300))


async def test_a_cancelled_await_cancels_the_queued_call(make: Make, gate: Gate) -> None:
    loop, executor, ran = asyncio.get_running_loop(), make(1), list[int]()
    gate.hold(executor)
    queued = loop.run_in_executor(executor, ran.append, 1)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    await asyncio.sleep(0)  # the loop passes the cancellation on in its next turn
    gate.release()
    await loop.run_in_executor(executor, int)
    assert ran == []


async def test_stop_iteration_comes_back_as_a_runtime_error(kind: Kind, make: Make) -> None:
    """Before 3.13 asyncio cannot carry it, and on the stdlib class the await never ends."""
    if not kind.is_ours and sys.version_info < (3, 13):
        pytest.skip("hangs on the stdlib class before 3.13")
    loop, error = asyncio.get_running_loop(), StopIteration(7)
    with pytest.raises(RuntimeError) as caught:
        await soon(loop.run_in_executor(make(1), _raise, error))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (concurrent.futures.CancelledError("why"), asyncio.CancelledError),
        (concurrent.futures.InvalidStateError("why"), asyncio.InvalidStateError),
        (asyncio.CancelledError("why"), asyncio.CancelledError),
    ],
    ids=["cancelled", "invalid state", "cancelled of asyncio"],
)
async def test_errors_of_concurrent_futures_come_back_as_those_of_asyncio(
    make: Make, error: BaseException, translated: type[BaseException]
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(make(1))
    for awaited in (loop.run_in_executor(None, _raise, error), asyncio.to_thread(_raise, error)):
        with pytest.raises(translated, match=r"^why$") as caught:
            await awaited
        assert type(caught.value) is translated


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
async def test_names_are_resolved_while_all_workers_are_blocked(
    make_ours: Make, gate: Gate, debug: bool
) -> None:
    """On the stdlib class it waits behind the blocked calls (uvloop resolves by itself)."""
    loop, executor = asyncio.get_running_loop(), make_ours(1)
    loop.set_default_executor(executor)
    loop.set_debug(debug)
    gate.hold(executor)
    queued = loop.run_in_executor(None, int)
    found = await soon(loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM))
    assert [address for *_, address in found] == [("127.0.0.1", 80)]
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    assert await soon(loop.getnameinfo(("127.0.0.1", 80), numeric)) == ("127.0.0.1", "80")
    assert not queued.done()
    gate.release()
    assert await queued == 0


async def test_a_failed_resolution_comes_back_as_the_stdlib_raises_it(make: Make) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(make(1))
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("not an address", 80, flags=socket.AI_NUMERICHOST)


async def test_shutting_the_default_executor_down_waits_for_its_calls(make: Make, gate: Gate) -> None:
    loop, executor = asyncio.get_running_loop(), make(1)
    loop.set_default_executor(executor)
    running = gate.hold(executor)
    queued = executor.submit(pow, 2, 2)
    loop.call_soon(gate.release)
    await loop.shutdown_default_executor()
    assert running.done()
    assert queued.result(0) == 4
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_in_executor(None, int)


async def test_shutting_the_default_executor_down_ends_its_workers(make: Make) -> None:
    loop, executor = asyncio.get_running_loop(), make(2)
    loop.set_default_executor(executor)
    thread = await asyncio.to_thread(threading.current_thread)
    await loop.shutdown_default_executor()
    assert not thread.is_alive()


async def test_after_its_shutdown_the_executor_refuses_calls_of_the_loop(make: Make) -> None:
    loop, executor = asyncio.get_running_loop(), make(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        loop.run_in_executor(executor, int)


async def test_two_loops_share_one_executor(make: Make) -> None:
    executor = make(2)

    async def on_other_loop() -> int:
        return await asyncio.get_running_loop().run_in_executor(executor, abs, -1)

    other = asyncio.to_thread(asyncio.run, on_other_loop())
    mine = asyncio.get_running_loop().run_in_executor(executor, abs, -2)
    assert tuple(await asyncio.gather(other, mine)) == (1, 2)
