"""A deadline for all that a request starts: one scope bounds every offloaded call made inside of it.

The scope is a context variable, so tasks that are started inside have it too. It keeps the calls that are
under way on its own loop and ends them itself, all in one turn of the loop: what is queued never runs.
A scope that is seen on another loop, as in `asyncio.run` within an offloaded call, gives each call a timer.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

from hybridrt.arguments import check_seconds
from hybridrt.errors import OffloadTimeoutError

__all__ = ["Bound", "Bounded", "DeadlineScope", "current_scope", "deadline", "scopes"]


class Bounded(Protocol):
    """What a scope can end: an offloaded call, or an item that waits for its batch."""

    def expire(self, timeout: float, /, limit: str = ...) -> None:
        """End it now, with an error that names the limit."""
        ...


class _Scopes:
    """What an offloaded call asks first, so that programs without deadlines pay for one attribute."""

    ever_used = False


scopes = _Scopes()
current_scope: ContextVar[DeadlineScope | None] = ContextVar("hybridrt_deadline", default=None)


class DeadlineScope:
    """One deadline: what `async with hybridrt.deadline(seconds)` gives.

    Args:
        loop: Whose calls it ends.
        seconds: What the user gave.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.seconds = seconds
        self._loop = loop
        self._ends_at = time.monotonic() + seconds
        self._bounded: set[Bounded] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._blocks: dict[asyncio.Task[object] | None, asyncio.Timeout] = {}
        """The blocks that it cancels, by their tasks."""
        self._expired = seconds == 0

    def remaining(self) -> float:
        """Return the seconds that are left; 0.0 when the deadline is over."""
        if self._expired:
            return 0.0
        return max(0.0, self._ends_at - time.monotonic())

    def expired(self) -> bool:
        """Return True if the deadline is over."""
        return self.remaining() == 0.0

    def bound(self, bounded: Bounded) -> Bound | asyncio.TimerHandle:
        """End something at the deadline; cancel what this returns when it has ended by itself."""
        if (loop := asyncio.get_running_loop()) is not self._loop:
            return loop.call_later(self.remaining(), bounded.expire, self.seconds, "deadline")
        self._bounded.add(bounded)
        self._arm()
        return Bound(self, bounded)

    def _discard(self, bounded: Bounded) -> None:
        self._bounded.discard(bounded)
        self._rest()

    def check(self, name: str) -> None:
        """Refuse a call that is made after the deadline.

        Raises:
            OffloadTimeoutError: The deadline is over.
        """
        if self.expired():
            raise OffloadTimeoutError(
                f"{name} was called after the deadline of {self.seconds} s, and never runs", started=False
            )

    def _enter(self, task: asyncio.Task[object] | None, block: asyncio.Timeout) -> None:
        """Cancel a block of this loop at the deadline, unless its task is within a block already."""
        if task in self._blocks:
            return
        self._blocks[task] = block
        if self._timer is not None and self._expired:
            block.reschedule(self._loop.time())
        self._arm()

    def _leave(self, task: asyncio.Task[object] | None, block: asyncio.Timeout) -> None:
        """A block is left; calls of tasks that it has started stay bounded."""
        if self._blocks.get(task) is block:
            del self._blocks[task]
        self._rest()

    def _stand_for(self, outer: object) -> None:
        """Bound what is started from now on where this scope is still seen by the outer one alone."""
        left = self.remaining()
        for bounded in self._bounded:  # those under way stay bounded
            self._loop.call_later(left, bounded.expire, self.seconds, "deadline")
        self._disarm()
        self._ends_at, self._expired = float("inf"), False
        if isinstance(outer, DeadlineScope):
            self._ends_at, self._expired = outer._ends_at, outer._expired
        if self._bounded or self._blocks:
            self._arm()

    def _rest(self) -> None:
        if not self._blocks and not self._bounded:
            self._disarm()

    def _arm(self) -> None:
        if self._timer is None and self._ends_at != float("inf"):
            self._timer = self._loop.call_later(self.remaining(), self._expire)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        """The time is up: cancel the blocks, and then end the calls, in the same turn of the loop.

        In this order a task of the block hears of its cancelling, whatever it awaits.
        """
        self._expired = True
        for block in self._blocks.values():
            if not block.expired():
                block.reschedule(self._loop.time())
        self._loop.call_soon(self._end_bounded)

    def _end_bounded(self) -> None:
        for bounded in tuple(self._bounded):
            bounded.expire(self.seconds, "deadline")


class Bound:
    """Something that a scope ends at its deadline; over when it is cancelled, like a timer."""

    __slots__ = ("_bounded", "_scope")

    def __init__(self, scope: DeadlineScope, bounded: Bounded) -> None:
        self._scope, self._bounded = scope, bounded

    def cancel(self) -> None:
        """Bound it no more."""
        self._scope._discard(self._bounded)
        del self._scope, self._bounded  # an error's traceback holds us


class deadline:  # it is called like a function, as `asyncio.timeout`
    """Bound all that is started inside of an `async with` block by one deadline, in seconds.

    Every offloaded call, `map`, `pipe`, batch and stream that is started inside counts, in tasks started
    inside too, whether they outlive the block or not. When the time is up, the block is cancelled, as by
    `asyncio.timeout`; what is queued never runs; a call that runs is abandoned: its thread goes on, and its
    result is dropped. Tasks that the block does not wait for get an `OffloadTimeoutError` from their calls.
    Of nested deadlines the nearer one counts.

    It costs calls outside of any deadline nothing that can be measured, and those inside about a
    microsecond. Calls that run on the loop are over before they could be ended.

    Args:
        seconds: From entering the block; 0 or more. None: no limit of its own.

    Raises:
        TimeoutError: At the end of the block, if the time was up in it.

    Example:
        >>> async def answer(text: str) -> int:
        ...     async with hybridrt.deadline(2.0) as scope:
        ...         assert 0.0 < scope.remaining() <= 2.0
        ...         return await asyncio.to_thread(len, text)
        >>> import hybridrt
        >>> asyncio.run(answer("abc"))
        3
    """

    __slots__ = ("_entered", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        check_seconds("a deadline", seconds, optional=True)
        self._seconds = float("inf") if seconds is None else float(seconds)
        self._entered: (
            tuple[DeadlineScope, asyncio.Task[object] | None, asyncio.Timeout, Token[DeadlineScope | None]]
            | None
        ) = None

    async def __aenter__(self) -> DeadlineScope:
        if self._entered is not None:
            raise RuntimeError("a deadline serves one block, and this one has been used; make a new one")
        scopes.ever_used = True
        outer, loop = current_scope.get(), asyncio.get_running_loop()
        scope, timeout = DeadlineScope(loop, self._seconds), asyncio.timeout(None)
        if outer is not None and outer._ends_at <= scope._ends_at:
            scope = outer  # it ends the calls of this block, too
            if outer._loop is not loop and outer._ends_at != float("inf"):
                timeout = asyncio.timeout(outer.remaining())
        await timeout.__aenter__()
        task = asyncio.current_task()
        if scope._loop is loop:
            scope._enter(task, timeout)
        self._entered = scope, task, timeout, current_scope.set(scope)
        return scope

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered is not None
        scope, task, timeout, token = self._entered
        if scope._loop is asyncio.get_running_loop():
            scope._leave(task, timeout)
        try:
            current_scope.reset(token)
        except ValueError:  # a generator that was left early is closed in another context
            if token.old_value is not scope:
                scope._stand_for(token.old_value)
        try:
            await timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise _over(scope) from late.__cause__
        if timeout.expired() and error is not None and _is_late(error):
            raise _over(scope) from error


def _over(scope: DeadlineScope) -> TimeoutError:
    return TimeoutError(f"the deadline of {scope.seconds} s is over")


def _is_late(error: BaseException) -> bool:
    """Return True if an error says nothing but that time was up, in one task or in several.

    A `CancelledError` that `asyncio.timeout` lets through is no such error: the task was cancelled, too.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_late, error.exceptions))
    return isinstance(error, TimeoutError)
