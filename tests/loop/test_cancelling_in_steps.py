"""A signal handler or finalizer that interrupts a step of the pool may cancel what it likes.

Each test places the interruption: it runs in the loop's thread, while that holds the lock or starts a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, offload
from hybridrt.loop import call as call_module
from hybridrt.loop.call import LoopCall
from hybridrt.pool import lock as lock_module
from hybridrt.pool import scheduler, withdraw
from hybridrt.values import Kind

from .support import DEADLINE, Gate, eventually, hold, queued, sole_worker, turns


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """See soon that a thread waits for itself."""
    monkeypatch.setattr(lock_module, "LOOKS", 2)


@contextmanager
def interrupting(owner: Any, name: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something in the middle of what calls `owner.name` next in this thread."""
    original, thread = getattr(owner, name), threading.get_ident()
    todo = [act]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if todo and threading.get_ident() == thread:
            todo.pop()()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        yield
    assert not todo, "nothing called it"


def in_submit(act: Callable[[], object]) -> Any:
    """Interrupt a submission that holds the lock."""
    return interrupting(scheduler, "_started_at_once", act)


def in_start(act: Callable[[], object]) -> Any:
    """Interrupt the start of a worker's thread."""
    return interrupting(threading.Thread, "start", act)


async def test_a_queued_call_never_runs_and_the_interrupted_one_does() -> None:
    ran: list[int] = []
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        first, second = (asyncio.ensure_future(runtime.offload(ran.append, n)) for n in (1, 2))
        await turns()
        assert queued(runtime) == 2
        with interrupting(withdraw, "dispatch_after_locked", first.cancel):
            second.cancel()
        last = asyncio.ensure_future(runtime.offload(ran.append, 3))
        await eventually(first.cancelled)
        assert second.cancelled()
        gate.release()
        await last
        assert (ran, runtime.statistics().cancelled) == ([3], 2)


async def test_a_running_call_is_abandoned_in_the_next_turn() -> None:
    async with Runtime() as runtime, Gate() as gate:
        running = asyncio.ensure_future(offload(gate, abandon_on_cancel=True)())
        await gate.entered()
        with in_submit(running.cancel):
            assert await runtime.offload(abs, -1) == 1
        assert running.cancelled()
        assert runtime.statistics().abandoned == 1


async def test_a_call_that_ends_before_that_is_cancelled_all_the_same() -> None:
    async with Runtime() as runtime, Gate() as gate:
        running = asyncio.ensure_future(runtime.offload(gate, 1))
        await gate.entered()
        ended = threading.Event()

        def cancel_and_let_it_end() -> None:
            running.cancel()
            gate.release()
            ended.set()

        with in_submit(cancel_and_let_it_end):
            assert await runtime.offload(abs, -1) == 1
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended.is_set()


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, AdaptiveThreadPoolExecutor])
def test_while_a_thread_is_started_another_one_may_be(kind: type[ThreadPoolExecutor]) -> None:
    """The standard library holds a lock meanwhile that is not re-entrant."""

    def answer() -> int:
        return 42

    with kind(1) as interrupted, AdaptiveThreadPoolExecutor(1) as other:
        profile = other._pool.profiles.of(answer)
        profile.kind, profile.turn_at = Kind.WAITING, 1 << 60  # so that it needs no permit
        futures: list[Future[int]] = []
        with in_start(lambda: futures.append(other.submit(answer))):
            assert interrupted.submit(abs, -1).result(DEADLINE) == 1
        assert futures[0].result(DEADLINE) == 42


@pytest.mark.parametrize("step", [(LoopCall, "done"), (call_module, "_presentable")], ids=["done", "error"])
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
async def test_a_call_that_is_cancelled_while_it_is_settled_is_cancelled(
    step: tuple[Any, str], fails: bool
) -> None:
    def end() -> None:
        gate()
        if fails:
            raise LookupError

    async with Runtime() as runtime, Gate() as gate:
        task = asyncio.ensure_future(runtime.offload(end))
        await gate.entered()
        if step[1] == "_presentable" and not fails:
            return  # nothing to be made presentable
        with interrupting(*step, task.cancel):
            gate.release()
            await asyncio.wait({task})
        assert task.cancelled()


async def test_a_future_of_an_executor_says_that_it_was_not_cancelled() -> None:
    """It cannot say so later, as `cancel` of the standard library's future returns what has happened."""
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        future, told = runtime.executor.submit(abs, -1), list[bool]()
        lanes = type(runtime.executor._pool.admission)
        with interrupting(lanes, "put", lambda: told.append(future.cancel())):
            other = asyncio.ensure_future(runtime.offload(abs, -2))
            await turns()
        gate.release()
        assert (await asyncio.wrap_future(future), await other, told) == (1, 2, [False])
