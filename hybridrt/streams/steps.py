"""The loop's side of a stream: submit the steps of one generator, take its items, end it.

Steps are calls of the pool, at most one at a time. A step is submitted when the buffer is half empty and ends
when it is full, so a generator whose consumer is slow holds no worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from hybridrt.deadline import current_scope, scopes
from hybridrt.errors import RuntimeClosedError
from hybridrt.loop.binding import LoopBinding, private_executor
from hybridrt.loop.call import LoopCall
from hybridrt.loop.cancel_scopes import shielded
from hybridrt.streams.producer import Producer

__all__ = ["MakeProducer", "MakeStep", "Start", "Steps", "without_deadline"]

logger = logging.getLogger("hybridrt")

MakeStep = Callable[[LoopBinding, Callable[[], None]], LoopCall]
"""Makes the call of a step, or of closing, from what it is to run; does not submit it."""
MakeProducer = Callable[[int, Callable[[], object]], Producer]
"""Makes a producer of the size of its buffer and of what wakes the consumer, from any thread."""
Start = Callable[[LoopCall], list[Any]]
"""Submits a call by the options of its function; returns what is to be cancelled when it has ended."""


class Steps:
    """One generator, as its loop sees it; every method runs on the loop.

    Args:
        loop_binding: Through which the steps go out.
        make_step: Makes a call for it.
        make_producer: Makes what runs in the workers.
        start: Submits a step.
        start_closing: Submits the call that closes the generator.
        bound: Items in the buffer at most.
        timeout: Seconds that the consumer waits for one item; None: no limit.
    """

    def __init__(
        self,
        loop_binding: LoopBinding,
        make_step: MakeStep,
        make_producer: MakeProducer,
        start: Start,
        start_closing: Start,
        bound: int,
        timeout: float | None,
    ) -> None:
        self._loop_binding, self._make_step = loop_binding, make_step
        self._start, self._start_closing = start, start_closing
        self.bound, self._refill_at, self._timeout = bound, bound // 2, timeout
        self._context: Context = copy_context()
        self._call: LoopCall | None = None
        self._timers: list[Any] = []
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        # The producer must not refer to this object: what the generator was called with would wait for a
        # garbage collection.
        self.producer = make_producer(bound, partial(_wake, loop_binding.loop, self._changed))

    async def more(self) -> bool:
        """Wait until there is an item; return False at the end.

        Raises:
            OffloadTimeoutError: None came in time.
            BaseException: What the generator raised.
        """
        producer, timer = self.producer, None
        try:
            while not producer.items:
                if self._error is not None:
                    self._raise()
                if producer.ended and self._call is None:
                    return False
                if self._call is None and not producer.closing:
                    self._submit(producer.run, self._start)
                self._changed.clear()
                producer.wanted = True
                if producer.items or (self._call is None and producer.ended) or self._error is not None:
                    continue
                if timer is None and self._timeout is not None:
                    timer = self._loop_binding.loop.call_later(self._timeout, self.expire_item)
                await self._changed.wait()
        finally:
            producer.wanted = False
            if timer is not None:
                timer.cancel()
        self.refill()
        return True

    def refill(self) -> None:
        """Submit the next step, if the buffer is half empty; `more` raises what keeps it from that."""
        producer = self.producer
        over = producer.ended or producer.closing or self._error is not None
        if self._call is None and not over and len(producer.items) <= self._refill_at:
            with suppress(Exception):
                self._submit(producer.run, self._start)

    def expire_item(self) -> None:
        """The consumer has waited for as long as it wants, unless an item came while the loop was busy."""
        if self._call is not None and self._timeout is not None and not self.producer.items:
            self._call.expire(self._timeout)

    async def aclose(self) -> None:
        """End the generator; its `finally` runs in a worker thread.

        Returns when that has happened, or at once if running calls are abandoned on cancelling. Being
        cancelled does not end the wait.
        """
        producer = self.producer
        producer.closing = True
        cancelled: asyncio.CancelledError | None = None
        if self._call is not None:
            self._call.cancel()
            cancelled = await self._wait()
        if not producer.inside and producer.claim_closing():
            self._close_generator()
            if self._call is not None and self._call._is_to_be_abandoned():
                self._call.add_done_callback(_log_error)
                self._call = None  # and thus not waited for
            cancelled = await self._wait() or cancelled
        error, self._error = self._error, None
        producer.items.clear()
        try:
            if cancelled is not None:
                raise cancelled
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error
        finally:
            del error, cancelled

    def _close_generator(self) -> None:
        run = self.producer.close
        try:
            self._submit(run, self._start_closing)
        except RuntimeClosedError:
            self._loop_binding = LoopBinding(self._loop_binding.loop, private_executor())
            try:
                self._submit(run, self._start_closing)
            except RuntimeClosedError:  # the program ends
                run()

    async def _wait(self) -> asyncio.CancelledError | None:
        """Wait for the call under way, whatever happens; return what cancelled the wait."""
        cancelled = None
        with shielded():
            while self._call is not None:
                self._changed.clear()
                try:
                    await self._changed.wait()
                except asyncio.CancelledError as error:
                    cancelled = error
        return cancelled

    def _submit(self, run: Callable[[], None], start: Start) -> None:
        call = self._make_step(self._loop_binding, run)
        if not call.isolated:
            # The thread of a step that was left behind may not have left the context yet.
            call.context = self._context.copy() if self.producer.left else self._context
        self._call = call
        try:
            self._timers = start(call)
        except BaseException:
            self._call = None
            raise
        call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Future[Any]) -> None:
        """A step has ended, or is waited for no more; on the loop."""
        assert isinstance(call, LoopCall)
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        self._call = None
        self.producer.left = self.producer.left or call.abandoned
        if call.cancelled():
            error: BaseException | None = call.error or asyncio.CancelledError()
            error = None if self.producer.closing else error
        else:
            error = call.exception()
        if error is not None:
            self.producer.closing = True
            self._error = error
        elif not scopes.ever_used or current_scope.get() is None:
            # The step's time slice is over, and there may be room. Within a deadline, whose block may have
            # been left, the consumer has to ask, and hears of it.
            self.refill()
        self._changed.set()
        del error, call

    def _raise(self) -> None:
        error, self._error = self._error, None
        assert error is not None
        self.producer.items.clear()
        try:
            raise error
        finally:
            del error


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and no task waits
        loop.call_soon_threadsafe(changed.set)


def _log_error(closing: asyncio.Future[Any]) -> None:
    """Log what a `finally` has raised that is not waited for."""
    assert isinstance(closing, LoopCall)
    if not closing.cancelled() and (error := closing.exception()) is not None:
        logger.warning("%s raised after its caller was gone", closing.profile.name, exc_info=error)


def without_deadline(start: Start) -> Start:
    """Return what submits a call that no deadline bounds: what has begun is to be ended."""

    def start_unbounded(call: LoopCall) -> list[Any]:
        if not scopes.ever_used or current_scope.get() is None:
            return start(call)
        token = current_scope.set(None)
        try:
            return start(call)
        finally:
            current_scope.reset(token)

    return start_unbounded
