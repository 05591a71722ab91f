"""Gathers the calls of one loop into batches, and gives each caller its result.

Everything here runs on the loop. A batch starts in the next turn of the loop, so that calls made together go
together; while one runs, what comes gathers, and goes next. So a lone caller waits for nothing, and the
busier the callers are, the larger the batches get, without a time to be tuned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from itertools import islice
from typing import Any

from hybridrt.batches.figures import BatchFigures
from hybridrt.deadline import current_scope
from hybridrt.errors import OffloadTimeoutError
from hybridrt.loop.notes import add_note

__all__ = ["Gatherer", "Item", "list_results"]

Run = Callable[[list[Any]], Awaitable[Any]]
"""Runs a batch off the loop."""


class Item(asyncio.Future[Any]):
    """One call: what it was called with, and the future of its result.

    Attributes:
        value: What the call was made with.
        at: When, by the loop's time.
        context: A copy of the caller's.
        batch: The task of its batch, once that has been handed over.
    """

    def __init__(self, name: str, value: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._name = name
        self.value = value
        self.at = loop.time()
        self.context = copy_context()
        self.batch: Batch | None = None

    def expire_soon(self, timeout: float) -> None:
        """The call's time is up, unless its batch ended while the loop was busy: that shows in two turns."""
        loop = self.get_loop()
        loop.call_soon(lambda: loop.call_soon(self.expire, timeout))

    def expire(self, timeout: float, limit: str = "timeout") -> None:
        """The call's time is up; the rest of its batch goes on."""
        if self.done():
            return
        if self.batch is None:
            text = f"{self._name} did not start within its {limit} of {timeout} s and was removed"
        else:
            text = f"the batch of {self._name} still ran after the call's {limit} of {timeout} s"
        self.set_exception(OffloadTimeoutError(text, started=self.batch is not None))


class Batch:
    """Items that run together."""

    __slots__ = ("items", "task")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.task: asyncio.Task[None] | None = None

    def left(self) -> None:
        """An item is waited for no more; cancel the batch if it was the last one."""
        if self.task is not None and all(item.done() for item in self.items):
            self.task.cancel()


class Gatherer:
    """Batches of one function on one loop.

    Args:
        loop: The loop.
        name: The function, in errors.
        run: Runs a batch.
        size: Items in a batch at most.
        wait: Seconds that the first item of a batch waits for more; None: for none.
        most: Batches that run at once.
        figures: Counts them.
        on_idle: Called when nothing waits or runs any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        run: Run,
        *,
        size: int,
        wait: float | None,
        most: int,
        figures: BatchFigures,
        on_idle: Callable[[], object],
    ) -> None:
        self._loop, self._name, self._run = loop, name, run
        self._size, self._wait, self._most = size, wait, most
        self._figures, self._on_idle = figures, on_idle
        self._waiting: dict[Item, None] = {}
        self._running: set[Batch] = set()
        self._next: asyncio.Handle | None = None
        self._waits = False
        """The next batch waits to become full."""

    def add(self, value: Any) -> Item:
        """Take an item up; its future is the item."""
        item = Item(self._name, value, self._loop)
        self._waiting[item] = None
        self._schedule()
        return item

    def leave(self, item: Item) -> None:
        """Drop an item whose caller has left."""
        if self._waiting.pop(item, item) is not item:
            self._figures.drop()
            self._schedule()
        elif item.batch is not None and item.batch in self._running:
            self._figures.drop()
            item.batch.left()

    def _schedule(self) -> None:
        """See to it that the next batch starts, as soon as it may; say so if none waits or runs any more."""
        waiting = self._waiting
        if not waiting and not self._running:
            if self._next is not None:
                self._next.cancel()
                self._next = None
            self._on_idle()
            return
        if not waiting or len(self._running) >= self._most:
            return
        full = len(waiting) >= self._size
        left = 0.0
        if self._wait is not None and not full:
            left = next(iter(waiting)).at + self._wait - self._loop.time()
        if self._next is not None:
            if not (full and self._waits):
                return
            self._next.cancel()
        self._waits = left > 0.0
        if self._waits:
            self._next = self._loop.call_later(left, self._start)
        else:
            self._next = self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._next = None
        waiting = self._waiting
        batch = Batch([])
        for item in tuple(islice(waiting, self._size)):
            del waiting[item]
            if not item.done():  # else its time is up, and its caller hears of it in this turn
                item.batch = batch
                batch.items.append(item)
        if batch.items:
            # Not this turn's context, which may be that of the batch before. A batch belongs to several
            # callers: the deadline of the first must not end it for all.
            context = batch.items[0].context
            context.run(current_scope.set, None)
            self._running.add(batch)
            coro = self._run_batch(batch)
            try:
                # With neither `context=` nor `name=`, which a task factory of the program's own may not take.
                batch.task = context.run(self._loop.create_task, coro)
            except BaseException as error:
                coro.close()
                self._running.discard(batch)
                _fail(self._name, batch.items, error)
            else:
                batch.task.add_done_callback(lambda _: self._end_unbegun(batch))
                if hasattr(batch.task, "set_name"):
                    batch.task.set_name(f"batch of {self._name}")
        self._schedule()

    async def _run_batch(self, batch: Batch) -> None:
        items, begun, failed = batch.items, self._loop.time(), False
        handed_over = time.perf_counter()  # uvloop's time is in whole milliseconds
        try:
            results = await self._run([item.value for item in items])
            _settle(items, list_results(self._name, len(items), results))
        except asyncio.CancelledError:
            for item in items:
                item.cancel()
            raise
        except BaseException as error:
            failed = True
            _fail(self._name, items, error)
        finally:
            self._running.discard(batch)
            waited = sum(begun - item.at for item in items)
            self._figures.note(len(items), time.perf_counter() - handed_over, waited, failed=failed)
            batch.task, batch.items = None, []  # the items refer to it
            del items  # an error's traceback holds this frame
            self._schedule()

    def _end_unbegun(self, batch: Batch) -> None:
        """End a batch whose task was cancelled before it began, for example by `asyncio.run`."""
        if batch in self._running:
            self._running.discard(batch)
            for item in batch.items:
                item.cancel()
            batch.items = []
            self._schedule()


def _settle(items: list[Item], results: list[Any]) -> None:
    """Give each caller its result."""
    for item, result in zip(items, results, strict=True):
        if not item.done():
            item.set_result(result)


def list_results(name: str, count: int, results: Any) -> list[Any]:
    """Return a list of what a batch has returned.

    Raises:
        TypeError: It has no length, or no order, or is a table, which gives its columns.
        ValueError: It has another length, or gives another number of results.
    """
    text = f"{name} got a list of {count} items and must return as many results, in their order, got"
    of_columns = isinstance(results, Mapping) or hasattr(type(results), "columns")  # as a data frame has
    if not hasattr(results, "__len__") or not hasattr(results, "__getitem__") or of_columns:
        raise TypeError(f"{text} {type(results).__qualname__}")
    # A table may have as many rows as there are items, and yet give its columns.
    listed: list[Any] = list(results) if len(results) == count else results
    if len(listed) != count:
        raise ValueError(f"{text} {len(listed)}; every item of the batch fails")
    return listed


def _fail(name: str, items: list[Item], error: BaseException) -> None:
    if len(items) > 1:
        add_note(error, f"raised by a batch of {len(items)} calls of {name}, which all fail")
    for item in items:
        if not item.done():
            item.set_exception(error)
