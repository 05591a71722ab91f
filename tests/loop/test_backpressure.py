"""A full queue: awaited calls wait for space in their order, submitted ones are refused."""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, QueueFullError, Runtime, offload

from .support import Gate, hold, sole_worker, turns


def backlog(runtime: Runtime) -> int:
    return runtime.statistics().queued["backlog"]


async def test_awaited_calls_wait_for_space_in_order() -> None:
    ran: list[int] = []
    async with sole_worker(queue_max=2) as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(6)]
        await turns()
        assert runtime.statistics().queued["queue"] == 2
        assert backlog(runtime) == 4
        gate.release()
        await asyncio.gather(holding, *tasks)
        assert ran == list(range(6))
        assert runtime.statistics().rejected == 0


async def test_a_submitted_call_is_refused_when_the_queue_is_full() -> None:
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        filling = runtime.executor.submit(int)
        before = runtime.statistics().submitted
        with pytest.raises(
            QueueFullError, match=r"holds queue_max=1 calls, so builtins:int was not accepted"
        ):
            runtime.executor.submit(int)
        statistics = runtime.statistics()
        assert (statistics.rejected, statistics.submitted) == (1, before)
        gate.release()
        await holding
        assert await asyncio.wrap_future(filling) == 0
        assert await asyncio.to_thread(int) == 0


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
async def test_calls_of_the_loops_own_executor_wait_for_space(debug: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        filling = runtime.executor.submit(int)
        waiting = [
            loop.run_in_executor(None, int, "5"),
            loop.run_in_executor(runtime.executor, int, "6"),
            asyncio.ensure_future(asyncio.to_thread(int, "7")),
        ]
        await turns()
        assert [future.done() for future in waiting] == [False] * 3
        assert (backlog(runtime), runtime.statistics().rejected) == (3, 0)
        with pytest.raises(QueueFullError):
            runtime.executor.submit(int)
        gate.release()
        await holding
        assert await asyncio.wrap_future(filling) == 0
        assert await asyncio.gather(*waiting) == [5, 6, 7]


async def test_so_do_those_of_an_executor_without_a_runtime() -> None:
    loop = asyncio.get_running_loop()
    executor = AdaptiveThreadPoolExecutor(1, queue_max=1)
    loop.set_default_executor(executor)
    async with Gate() as gate:
        holding = asyncio.ensure_future(asyncio.to_thread(gate))
        await gate.entered()
        waiting = [loop.run_in_executor(None, abs, -n) for n in range(4)]
        assert executor.statistics().queued["backlog"] == 3
        gate.release()
        await holding
        assert await asyncio.gather(*waiting) == [0, 1, 2, 3]


async def test_a_stranger_in_run_in_executor_is_left_alone() -> None:
    """Executors of others get their calls from the loop as ever, with a Runtime and after it."""
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        async with Runtime():
            assert await loop.run_in_executor(executor, int, "3") == 3
        assert await loop.run_in_executor(executor, int, "4") == 4
    with pytest.raises(RuntimeError, match="after shutdown"):
        loop.run_in_executor(executor, int)


async def test_names_are_resolved_beside_a_full_queue() -> None:
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        filling = runtime.executor.submit(int)
        resolving = runtime.executor.submit(socket.getaddrinfo, "127.0.0.1", 80)
        assert await asyncio.wrap_future(resolving)
        gate.release()
        await holding
        assert await asyncio.wrap_future(filling) == 0


async def test_a_call_cancelled_while_it_waits_for_space_leaves_at_once() -> None:
    ran: list[int] = []
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        tasks = [asyncio.ensure_future(runtime.offload(ran.append, n)) for n in range(4)]
        await turns()
        tasks[2].cancel()
        assert (backlog(runtime), runtime.statistics().cancelled) == (2, 1)
        gate.release()
        await asyncio.wait([holding, *tasks])
        assert ran == [0, 1, 3]


async def test_a_call_cancelled_in_the_queue_makes_room_for_the_next() -> None:
    async with sole_worker(queue_max=1) as runtime, Gate() as gate:
        await hold(runtime, gate)
        queued, waiting = (asyncio.ensure_future(runtime.offload(int)) for _ in range(2))
        await turns()
        queued.cancel()
        assert backlog(runtime) == 0
        assert runtime.statistics().queued["queue"] == 1
        gate.release()
        assert await waiting == 0


async def test_a_call_from_the_backlog_still_passes_its_gate() -> None:
    async with Runtime(max_workers=2, queue_max=1) as runtime, Gate() as gate:
        one = offload(gate, limit=1)
        tasks = [asyncio.ensure_future(one(n)) for n in range(4)]
        assert await gate.entered() == 0
        await turns()
        assert runtime.statistics().queued["gated"] + backlog(runtime) == 3
        gate.release()
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3]
        assert [await gate.entered() for _ in range(3)] == [1, 2, 3]


async def test_a_thousand_awaits_get_through_a_queue_of_one() -> None:
    async with Runtime(max_workers=4, queue_max=1) as runtime:
        answers = await asyncio.gather(*(runtime.offload(abs, -n) for n in range(1000)))
        assert answers == list(range(1000))


def test_a_queue_without_room_is_refused() -> None:
    """With `queue_max=0` an awaited call would wait for space that never comes."""
    with pytest.raises(ValueError, match="queue_max must be an int >= 1 or None, got 0"):
        Runtime(queue_max=0)


@pytest.mark.race
async def test_no_await_is_lost_in_a_queue_of_one_while_others_are_cancelled() -> None:
    async with Runtime(max_workers=2, queue_max=1) as runtime:
        tasks = [asyncio.ensure_future(runtime.offload(abs, -n)) for n in range(30)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [answer for n, answer in enumerate(answers) if n % 3]
        assert kept == [n for n in range(30) if n % 3]
        assert sum(runtime.statistics().queued.values()) == 0
