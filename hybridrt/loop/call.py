"""The call that a coroutine awaits: an `asyncio.Future` that is also the call.

`Task.cancel()` calls `cancel()` of the future the task awaits, at once and in the same thread. That
is what lets a queued call be withdrawn in the same instant, where a call of `run_in_executor` hears
of it only a turn of the loop later and may have started by then.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from hybridrt.errors import OffloadTimeoutError, RuntimeClosedError
from hybridrt.executor.future import Completions
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool.state import DONE, Call
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.withdraw import abandon, withdraw

__all__ = ["LoopCall", "not_started"]

logger = logging.getLogger("hybridrt")


class LoopCall(Call, asyncio.Future[Any]):
    """A call of `@offload`. Everything but `deliver`, `refuse` and `drop` runs on its loop."""

    # What every call sets; the rest is rare and lies in the instance's dict.
    __slots__ = (
        "args",
        "completions",
        "context",
        "fn",
        "kwargs",
        "place",
        "pool",
        "profile",
        "queued_ns",
        "started_ns",
        "state",
        "value",
    )  # fmt: skip

    quick = True
    patient = True
    abandon_on_cancel: bool | None = None
    cancel_message: Any = None
    scope: Any = None
    """The cancel scope of anyio in which its task awaits it, if that is in one."""
    completions: Completions

    @property
    def unready(self) -> bool:
        """Whether it was abandoned while an isolate was made ready for it."""
        return False

    @property
    def when_abandoned(self) -> str:
        """What the error says of a call that its caller has left."""
        return "its thread is abandoned"

    def go(self) -> None:
        """Submit the call."""
        self.pool.push(self)

    async def wait_within(self, scope: Any) -> Any:
        """Return what the call returns, awaited in a cancel scope of anyio: see `cancel_scopes`."""
        with scope:
            self.scope = scope
            try:
                return await self
            finally:
                self.scope = None  # which refers to the task
                del self  # an error's traceback holds this frame

    @uninterrupted
    def cancel(self, msg: Any = None) -> bool:
        """Cancel: queued, it never runs; running, the await ends when the call ends, or now.

        Returns True although the future of a running call is not cancelled yet: the task must not
        be interrupted before that. The same holds if a signal handler or a finalizer cancels in the
        middle of a step of the pool; then the loop's next turn goes on with it:

            1. The loop's thread has the lock.
            2. A signal handler there cancels the task that awaits the call: asyncio's, at Ctrl-C.
            3. What cannot be done before the lock is free is put off, and the call is marked.
            4. If it ends before the loop comes to that, `settle` cancels the future, by the mark.
        """
        if self.done():
            return False
        try:
            if withdraw(self):
                return super().cancel(msg)
            self.cancel_requested = True
            if self._is_to_be_abandoned() and abandon(self):
                return super().cancel(msg)
            if self.scope is not None:
                self.scope.shield = True
        except SelfWaitError:
            self.cancel_requested = True
            self.get_loop().call_soon_threadsafe(self.cancel, msg)
        self.completions.settle_soon()
        if self.cancel_message is None or not hasattr(self.scope, "_cancelling_at_enter"):
            # A scope of anyio knows its own cancel by the message, also if that of a timeout within it came
            # later. One that does not count cancels would swallow both.
            self.cancel_message = msg
        return True

    @uninterrupted
    def expire(self, timeout: float, limit: str = "timeout") -> None:
        """The call's time is up, as `limit` says: withdraw it, or leave it running."""
        if self.done():
            return
        name = self.profile.name
        for _ in range(2):  # between the two it may come back to the queue, once
            if withdraw(self, OffloadTimeoutError.__name__):
                self._end_early(not_started(name, limit, timeout))
                break
            if abandon(self, OffloadTimeoutError.__name__):
                text = f"{name} still ran after its {limit} of {timeout} s; {self.when_abandoned}"
                self._end_early(OffloadTimeoutError(text, started=True))
                break

    def expire_in_queue(self, queue_timeout: float) -> None:
        """The time to start is up; a call that runs is left alone."""
        self.fail_in_queue(not_started(self.profile.name, "queue_timeout", queue_timeout))

    @uninterrupted
    def fail_in_queue(self, error: BaseException) -> None:
        """Fail a call that has not started; one that runs is left alone."""
        if not self.done() and withdraw(self, type(error).__name__):
            self._end_early(error)

    @uninterrupted
    def give_up(self, error: BaseException) -> None:
        """Fail now: the close no longer waits for the thread."""
        abandon(self, type(error).__name__)
        if not self.done():
            self._end_early(error)

    def _end_early(self, error: BaseException) -> None:
        """Fail before the call has ended; a task that was cancelled meanwhile hears of that instead."""
        if self.cancel_requested:
            super().cancel(self.cancel_message)
        else:
            self.cancel_requested = True
            self.set_exception(error)

    def _is_to_be_abandoned(self) -> bool:
        """Return True if cancelling ends the await while the call runs, as function or runtime say."""
        asked = self.abandon_on_cancel
        return self.completions.abandon_on_cancel if asked is None else asked

    def drop_work(self) -> None:
        """Keep function and arguments: the future lives no longer than the await."""

    def deliver(self) -> None:
        """Send the ended call to its loop."""
        self.completions.put(self)

    def refuse(self, error: BaseException) -> None:
        """Send the call to its loop to fail there."""
        self.error = error
        self.completions.put(self)

    def drop(self) -> None:
        """Send the call to its loop to fail there: the task that awaits it was not cancelled."""
        self.refuse(
            RuntimeClosedError(f"the runtime closed before {self.profile.name} started; it never runs")
        )

    def settle(self) -> None:
        """Complete the future."""
        error = shown = self.error
        message: tuple[Any, ...] | None = None  # of a `CancelledError`
        if error is not None:
            shown = _presentable(error)
            message = error.args[:1] if isinstance(error, asyncio.CancelledError) else None
        done = self.done()
        # What calls anything stands above: between the look at the mark and the completion no signal
        # handler runs, which might cancel and leave nothing but the mark.
        if self.cancel_requested or done:
            self._settle_unwanted(error)
        elif shown is None:
            self.set_result(self.value)
        elif message is not None:
            super().cancel(*message)
        else:
            self.set_exception(shown)

    def _settle_unwanted(self, error: BaseException | None) -> None:
        if not self.done():
            super().cancel(self.cancel_message)
        ran = self.state == DONE  # else it was refused
        if ran and error is not None and not isinstance(error, asyncio.CancelledError):
            logger.warning("%s raised after its caller was gone", self.profile.name, exc_info=error)
        if ran and inspect.iscoroutine(value := getattr(self, "value", None)):
            value.close()  # who would have awaited it is gone


def not_started(name: str, limit: str, seconds: float) -> OffloadTimeoutError:
    """Return the error of a call that was removed because its time to start was up."""
    text = f"{name} did not start within its {limit} of {seconds} s and was removed"
    return OffloadTimeoutError(text, started=False)


def _presentable(error: BaseException) -> BaseException:
    """Return an error that a future can carry: `StopIteration` would end the awaiting coroutine."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("the offloaded function raised StopIteration")
    wrapped.__cause__ = error
    return wrapped
