"""What the asynchronous tests share: gates, timers that a test fires, a look at the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hybridrt import Runtime

__all__ = [
    "DEADLINE",
    "Gate",
    "Timers",
    "cancel_inside",
    "eventually",
    "hold",
    "queued",
    "sole_worker",
    "turns",
]

DEADLINE = 30.0
"""Seconds after which a test gives up on something that has to happen; never awaited when it passes."""


class Gate:
    """A call that waits in its thread, made and awaited on a loop.

    `await gate.entered()` returns when a thread is inside, `release()` lets all go. Leaving the
    `async with` block releases, so that a failed test does not hang. Calling the gate returns what
    it was called with.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrivals: asyncio.Queue[Any] = asyncio.Queue()
        self._open = threading.Event()

    def __call__(self, value: Any = None) -> Any:
        self._loop.call_soon_threadsafe(self._arrivals.put_nowait, value)
        if not self._open.wait(DEADLINE):
            raise TimeoutError("expected the gate to be released by the test, it was not")
        return value

    async def entered(self) -> Any:
        """Wait until one more thread is inside; return what it was called with."""
        return await self._arrivals.get()

    def is_empty(self) -> bool:
        """Return True if nobody came in whom `entered` has not reported."""
        return self._arrivals.empty()

    def release(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Gate:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()


def sole_worker(**options: Any) -> Runtime:
    """Return a runtime with one worker: behind a held gate every call is queued."""
    return Runtime(max_workers=1, **options)


async def hold(runtime: Runtime, gate: Gate, value: Any = None) -> asyncio.Task[Any]:
    """Offload the gate and return its task once a worker is inside."""
    task = asyncio.ensure_future(runtime.offload(gate, value))
    await gate.entered()
    return task


def queued(runtime: Runtime) -> int:
    """Return how many calls are queued, in whatever lane."""
    return sum(runtime.statistics().queued.values())


async def turns(count: int = 10) -> None:
    """Let the loop turn: whatever was ready at the call has run at the return."""
    for _ in range(count):
        await asyncio.sleep(0)


async def is_cancelled_once(scope: Any, task: asyncio.Task[Any], gate: Gate) -> None:
    """Cancel a scope of anyio whose task waits for a call at the gate: it does so once, not in each turn."""
    scope.cancel()
    await turns(50)
    assert not task.done()
    assert task.cancelling() <= 3
    gate.release()
    await task
    assert scope.cancelled_caught


async def cancel_inside(task: asyncio.Task[Any], gate: Gate) -> None:
    """Cancel a task whose call waits at the gate, let that go, and see the task end as cancelled."""
    await gate.entered()
    task.cancel()
    await turns()
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await task


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds that other threads bring about."""
    while not condition():  # noqa: ASYNC110  # what is awaited happens in threads that know no loop
        await asyncio.sleep(0.0005)


@dataclass
class Timers:
    """Timers of offloaded calls, which fire when the test says so instead of by the clock."""

    armed: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = field(default_factory=list)
    handles: list[asyncio.TimerHandle] = field(default_factory=list)

    def fire(self) -> None:
        """Let all armed timers fire now."""
        armed, self.armed = self.armed, []
        for _, callback, args in armed:
            callback(*args)
