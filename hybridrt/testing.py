"""For tests: a clean slate, a clock that stands still, and a runtime that runs calls in place."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

from hybridrt.executor.budget import shared
from hybridrt.loop.binding import LoopBinding, close_private_executor
from hybridrt.loop.call import LoopCall
from hybridrt.pool.scheduler import finish_helped
from hybridrt.pool.shutdown import closed_error
from hybridrt.pool.state import RUNNING
from hybridrt.runtime import Runtime

__all__ = ["InlineRuntime", "ManualClock", "reset"]


def reset() -> None:
    """End what outlives a test: the private executor of `@offload`, and the governor's thread.

    Waits for calls that still run on the private executor. Executors and runtimes that a test made
    are its own to close.
    """
    close_private_executor()
    shared.governor.stop()


class ManualClock:
    """A clock that moves when told.

    Attributes:
        now_ns: The time, in nanoseconds.
        thread_cpu_ns: What every thread reads as its CPU time.
    """

    def __init__(self, now: float = 1.0) -> None:
        self.now_ns = int(now * 1e9)
        self.thread_cpu_ns = 0

    def advance(self, seconds: float, *, cpu: float = 0.0) -> None:
        """Let `seconds` pass, of which a thread computed for `cpu`."""
        self.now_ns += int(seconds * 1e9)
        self.thread_cpu_ns += int(cpu * 1e9)

    def wall_ns(self) -> int:
        """Return the time."""
        return self.now_ns

    def cpu_ns(self) -> int:
        """Return the CPU time of any thread."""
        return self.thread_cpu_ns

    def process_cpu_ns(self) -> int:
        """Return the CPU time of the process: that of one thread."""
        return self.thread_cpu_ns


class InlineRuntime(Runtime):
    """A runtime whose offloaded calls run at once, on the loop's own thread.

    No threads, no order to wait for: a test of an application sees what it offloads as plain calls.
    Timeouts and cancelling find nothing to interrupt, and `check_cancelled` does nothing. Calls that
    reach the executor another way (`asyncio.to_thread`) still get a thread.

    Example:
        >>> async def test() -> None:
        ...     async with InlineRuntime() as runtime:
        ...         assert await runtime.offload(len, "abc") == 3
        >>> asyncio.run(test())
    """

    def _make_binding(self, loop: asyncio.AbstractEventLoop) -> LoopBinding:
        return LoopBinding(loop, self.executor, _InlineCall)


class _InlineCall(LoopCall):
    """A call that runs where it is submitted; the executor's statistics show it."""

    def go(self) -> None:
        """Run now."""
        pool, clock = self.pool, self.pool.budget.clock
        pool.hooks.submitted(self, "inline")
        with pool.lock:
            refused = pool.refusal is not None
            pool.tally.submitted += not refused
            self.state = RUNNING
        if refused:
            pool.hooks.rejected(self, error := closed_error())
            raise error
        self.queued_ns = self.started_ns = clock.wall_ns()
        pool.hooks.started(self)
        cpu_start = clock.cpu_ns()
        fn, context = self.fn, self.context or copy_context()
        assert fn is not None
        try:
            self.value = context.run(fn, *self.args, **self.kwargs)
        except BaseException as error:
            self.error = error
        self.wall_ns, self.cpu_ns = clock.wall_ns() - self.started_ns, clock.cpu_ns() - cpu_start
        finish_helped(pool, self)
        self.deliver()
        del self, fn, context
