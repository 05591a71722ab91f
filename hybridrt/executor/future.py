"""The future that `submit` returns: a `concurrent.futures.Future` that is also the call."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from threading import Condition, RLock
from types import CodeType
from typing import Any, Protocol

from hybridrt.compat import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, FuturesError
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool.permits import NONE
from hybridrt.pool.state import ASSIGNED, QUEUED, RUNNING, Call
from hybridrt.pool.thread import make_thread
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.withdraw import withdraw
from hybridrt.pool.worker import current_worker

__all__ = ["Completions", "ThreadCall", "chained_to"]

_CANCELLED = (CANCELLED, CANCELLED_AND_NOTIFIED)
_ENDED = (FINISHED, *_CANCELLED)
_NO_KWARGS: dict[str, Any] = {}
_UNCOPIED = (FuturesError, StopIteration)
"""Errors that asyncio translates when it copies them."""

logger = logging.getLogger("hybridrt")


class Completions(Protocol):
    """Where what ended waits for a loop."""

    loop: asyncio.AbstractEventLoop
    abandon_on_cancel: bool

    def put(self, call: Call) -> None:
        """Hand over an ended call, from any thread."""
        ...

    def settle_soon(self) -> None:
        """Look soon for what has ended; on the loop."""
        ...


class ThreadCall(Call, Future[Any]):
    """A submitted call.

    Everything is as in the standard library, but for two things. Cancelling it takes it out of the
    queue at once. And a worker that waits for it without a timeout while it is still queued in the
    worker's own pool runs it itself, so that nested waits get through even with one worker.
    """

    # What every call sets; the rest is rare and lies in the instance's dict.
    __slots__ = (
        "_destination",
        "_done_callbacks",
        "_exception",
        "_lock",
        "_result",
        "_state",
        "_waiters",
        "_waiting_room",
        "args",
        "completions",
        "context",
        "cpu_ns",
        "fn",
        "kwargs",
        "permit",
        "place",
        "pool",
        "profile",
        "queued_ns",
        "quick",
        "started_ns",
        "state",
        "value",
        "wall_ns",
    )  # fmt: skip

    completions: Completions | None
    """Of the loop whose thread submitted the call: asyncio hears of the end through it."""
    _destination: asyncio.Future[Any] | None
    """The future that is awaited on that loop, from the end of the call until it is told."""
    _asyncio_future_blocking = None
    """None says to asyncio that this is no future of its own; it asks for it three times a call."""

    def __init__(self) -> None:
        # The fields of the base class, whose own `__init__` would make a condition, half its cost.
        self._lock = RLock()
        self._waiting_room: Condition | None = None
        self._state = PENDING
        self._result = self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self.permit = NONE
        self.quick = True

    @property
    def _condition(self) -> Condition:  # type: ignore[override]  # there it is a plain attribute
        """What the base class, `wait` and `as_completed` wait on; made when the first of them asks.

        The race between a waiter and `deliver`, with one lock for both:

            1. The waiter makes the condition, built on `_lock`, and takes it.
            2. It sees that the call has not ended, and waits, which gives the lock back.
            3. `deliver` gets the lock, sees the condition, and wakes all who wait.

        With 3 before 2, be it before the condition was made or just before it was taken, the waiter
        finds the call ended and does not wait.
        """
        with self._lock:
            if self._waiting_room is None:
                self._waiting_room = Condition(self._lock)
            return self._waiting_room

    def done(self) -> bool:
        """Return True if the call has ended or was cancelled."""
        return self._state in _ENDED

    def cancelled(self) -> bool:
        """Return True if the call was cancelled."""
        return self._state in _CANCELLED

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` with the call once it has ended; at once if it has."""
        with self._lock:
            if self._state == PENDING:
                # asyncio's only wakes a loop; any other may take any time.
                lone = not self._done_callbacks
                self.quick = lone and getattr(fn, "__module__", None) == "asyncio.futures"
                self._done_callbacks.append(fn)
                return
        super().add_done_callback(fn)

    @uninterrupted
    def cancel(self) -> bool:
        """Cancel the call if it has not started; return whether it is cancelled.

        A finalizer or signal handler that has interrupted a step of the pool cannot take back anything.
        """
        try:
            withdrawn = self.state in (QUEUED, ASSIGNED) and withdraw(self)
        except SelfWaitError:
            withdrawn = False
        if withdrawn:
            self.drop()
            return True
        self.cancel_requested = self.cancel_requested or not self.done()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        """Return the value, waiting for it; see the class for a wait inside a worker."""
        self._help(timeout)
        try:
            return super().result(timeout)
        finally:
            self = None  # type: ignore[assignment]  # break the cycle: error -> this frame -> future

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised, waiting for it; see the class for a wait inside a worker.

        asyncio up to 3.12.1 copies it into a loop's future, which refuses `StopIteration`, and
        its awaiter hangs. So it is wrapped there; `result()` still raises the original.
        """
        self._help(timeout)
        error = super().exception(timeout)
        if not (isinstance(error, StopIteration) and sys.version_info < (3, 13)):
            return error
        wrapped = RuntimeError(
            "StopIteration interacts badly with generators and cannot be raised into a Future"
        )
        wrapped.__cause__ = error
        return wrapped

    def _help(self, timeout: float | None) -> None:
        """Run the call here if it is queued and the waiting thread is a worker of its pool."""
        worker = current_worker()
        if worker is None:
            return
        worker.release()
        if timeout is None and self.state in (QUEUED, ASSIGNED) and worker.pool is self.pool:
            worker.help(self)

    def _invoke_callbacks(self) -> None:
        """Run the done-callbacks; asyncio's, which only wake its loop, with others of the same turn.

        Those of the loop that submitted the call, that is: another one may await it, after this has ended.
        """
        if not self._done_callbacks:
            return
        if self.completions is not None and self.quick:
            self._destination = _awaited(self, self.completions.loop)
            if self._destination is not None:
                self.completions.put(self)
                return
        super()._invoke_callbacks()  # type: ignore[misc]

    def settle(self) -> None:
        """Tell asyncio, on the loop that submitted the call.

        Its callback would wake the loop once more, from the loop itself, only to copy the result
        into the future that is awaited. So the result is put there right away.
        """
        destination = self._destination
        error: BaseException | None = self._exception
        if destination is None:
            return
        try:
            if error is None:
                destination.set_result(self._result)
            else:
                destination.set_exception(error)
        except asyncio.InvalidStateError:  # cancelled meanwhile
            pass
        self._destination = None

    def running(self) -> bool:
        """Return True if the call runs; the base class would have to be told, under its lock."""
        return self.state == RUNNING and not self.done()

    def deliver(self) -> None:
        """Set value or error; done-callbacks run here, in the worker's thread."""
        error, value = self.error, self.value
        self.fn = self.context = self.value = None
        self.args, self.kwargs = (), _NO_KWARGS
        with self._lock:
            # Code that settles, cancels or waits does so through the condition.
            alone = self._waiting_room is None
            if alone:
                self._result, self._exception, self._state = value, error, FINISHED
        if alone:
            self._invoke_callbacks()
        else:
            self._deliver_to_waiters(value, error)

    def deliver_quickly(self) -> None:
        """Do so where no code of the user's may run: a callback added just now gets its own thread."""
        with self._lock:
            if self.quick:
                self.deliver()
                return
        try:
            make_thread(self.deliver, "hybridrt-callback").start()
        except (RuntimeError, MemoryError):  # there is no thread for it, and the call must end
            self.deliver()

    def _deliver_to_waiters(self, value: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except InvalidStateError:
            logger.warning("the future of %s was completed by other code", self.profile.name)

    def drop(self) -> None:
        """Go over to "cancelled", and wake `wait` and `as_completed`."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def refuse(self, error: BaseException) -> None:
        """Fail, without having run."""
        if not self.done():
            self.set_exception(error)


def _awaited(call: ThreadCall, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any] | None:
    """Return the future of the loop that asyncio chained to this one, if it may be completed as it is.

    None, too, if it is not where every asyncio so far keeps it.
    """
    callbacks = call._done_callbacks
    if call._state != FINISHED or len(callbacks) != 1 or isinstance(call._exception, _UNCOPIED):
        return None
    destination: asyncio.Future[Any] | None = chained_to(callbacks[0])
    return destination if destination is not None and destination.get_loop() is loop else None


def chained_to(callback: Any) -> Any:
    """Return the future that a callback of asyncio copies a result to; None of other callbacks."""
    cell = _destination_cell(getattr(callback, "__code__", None))
    return None if cell is None else callback.__closure__[cell].cell_contents


@functools.lru_cache(maxsize=8)
def _destination_cell(code: CodeType | None) -> int | None:
    """Return which cell of asyncio's chaining callback holds the future that is awaited."""
    if code is None or code.co_name != "_call_set_state" or "destination" not in code.co_freevars:
        return None
    return code.co_freevars.index("destination")
