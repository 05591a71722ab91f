"""For tests: a clean slate, a clock that stands still, and a runtime that runs calls in place."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

from hybridrt.loop.port import Port, close_private_executor
from hybridrt.pool.call import RUNNING, Call
from hybridrt.pool.closing import closed_error
from hybridrt.pool.ending import finish_helped
from hybridrt.pool.interpreter import shared
from hybridrt.pool.pool import Pool
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

    def _make_port(self, loop: asyncio.AbstractEventLoop) -> Port:
        return Port(loop, self.executor, _InlinePool(self.executor._pool))


class _InlinePool(Pool):
    """Books calls in another pool's name and runs them where they are pushed."""

    def __init__(self, booked: Pool) -> None:
        self.__dict__ = booked.__dict__  # one set of books: the executor's statistics show the calls

    def push(self, call: Call) -> None:
        """Run the call now."""
        clock = self.interpreter.clock
        self.hooks.submitted(call, "inline")
        with self.interpreter.lock:
            refused = self.refusal is not None
            self.tally.submitted += not refused
            call.state = RUNNING
        if refused:
            self.hooks.rejected(call, error := closed_error())
            raise error
        call.queued_ns = call.started_ns = clock.wall_ns()
        self.hooks.started(call)
        cpu_start = clock.cpu_ns()
        fn, context = call.fn, call.context or copy_context()
        assert fn is not None
        try:
            call.value = context.run(fn, *call.args, **call.kwargs)
        except BaseException as error:
            call.error = error
        call.wall_ns, call.cpu_ns = clock.wall_ns() - call.started_ns, clock.cpu_ns() - cpu_start
        finish_helped(self, call)
        call.deliver()
        del call, fn, context
