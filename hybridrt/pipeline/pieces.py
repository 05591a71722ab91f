"""Pieces: some items of one stage in work, and how their results are handed on.

A piece is started, and its results are put in the order in which its emitter asks for them; or it runs and
puts its results itself, where order does not matter.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from anyio import create_memory_object_stream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from hybridrt.callables import as_iterator
from hybridrt.loop.binding import LoopBinding
from hybridrt.offloaded import Offloaded
from hybridrt.options import first_place
from hybridrt.pipeline.failures import FAILURES
from hybridrt.streams.steps import Steps

__all__ = ["Batch", "Chunk", "Course", "Made", "Piece", "Single", "Streamed"]

Put = Callable[[list[Any]], Awaitable[None]]
AHEAD = 16
"""Items that an asynchronous generator may be ahead of its turn. Not tuned."""


class Course(Protocol):
    """The stage that a piece belongs to, as far as pieces ask for it.

    Attributes:
        stopped: The pipe ends: what runs is to stop after its item.
        skips: Items that fail are noted, and left out.
    """

    stopped: bool
    skips: bool
    fn: Any
    loop_binding: LoopBinding

    def fail(self, number: int, item: Any, error: BaseException) -> None:
        """Note that an item failed with one of `FAILURES`; raises the error unless failures are skipped."""
        ...

    def took(self, items: int, wall_ns: int) -> None:
        """Learn what items have taken in the stage's function."""
        ...

    def awaits(self) -> None:
        """Learn that what the function returns is to be awaited."""
        ...


class Piece:
    """Some items in work.

    Args:
        course: The stage.
        first: Number of the first item.
        items: They.
    """

    def __init__(self, course: Course, first: int, items: list[Any]) -> None:
        self.course, self.first, self.items = course, first, items

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[Any] | None:
        """Begin to work, for a later `emit`; return the task that does it, if there is one."""
        raise NotImplementedError

    async def emit(self, put: Put) -> None:
        """Hand the results on, as far as they are not yet."""
        raise NotImplementedError

    async def run(self, put: Put) -> None:
        """Work, and hand the results on, where `start` is not called."""
        await self.emit(put)

    async def drop(self) -> None:
        """End what was started, where `emit` is not called any more."""
        raise NotImplementedError


class Results(Piece):
    """A piece whose results come together."""

    task: asyncio.Task[list[Any]] | None = None

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[Any] | None:
        self.task = group.create_task(self._work())
        return self.task

    async def emit(self, put: Put) -> None:
        assert self.task is not None
        try:
            results = await self.task
        finally:
            self.task = None  # its frames refer to this object
        await put(results)

    async def run(self, put: Put) -> None:
        await put(await self.work())

    async def drop(self) -> None:
        """Let go of the task, which ends with its group: its frames refer to this object."""
        self.task = None

    async def _work(self) -> list[Any]:
        try:
            return await self.work()
        finally:
            self.items.clear()  # they do not wait for the turn of their results

    async def work(self) -> list[Any]:
        """Return the results of the items that did not fail."""
        raise NotImplementedError


class Batch(Results):
    """The items of one batch; where it fails, all of them do."""

    async def work(self) -> list[Any]:
        begun = time.perf_counter_ns()
        try:
            return await self.call()
        except FAILURES as error:
            for at, item in enumerate(self.items):
                self.course.fail(self.first + at, item, error)
            return []
        finally:
            self.course.took(len(self.items), time.perf_counter_ns() - begun)

    async def call(self) -> list[Any]:
        """Return the results."""
        return await self.course.fn.run_batch(self.course.loop_binding, self.items)  # type: ignore[no-any-return]


class Single(Batch):
    """One item, awaited on the loop."""

    async def call(self) -> list[Any]:
        return [await self.course.fn(self.items[0])]


class Chunk(Results):
    """Short items, run one after the other in one call off the loop."""

    async def work(self) -> list[Any]:
        done = _Done(self.course, self.items)
        try:
            return await self._run(done)
        except BaseException:
            done.close()
            raise

    async def _run(self, done: _Done) -> list[Any]:
        course, items = self.course, self.items
        fn: Offloaded[..., Any] = course.fn
        plain: Callable[[Any], Any] = partial(fn._fn, *fn._head) if fn._head else fn._fn
        if first_place(fn._options)[0] == "inline":
            done.run(plain)
        else:
            call = fn._make(course.loop_binding, (plain,), {})
            call.fn = done.run
            try:
                await fn._run(call)
            finally:
                del call  # an error's traceback holds this frame
        course.took(len(done.results) + len(done.failures), done.wall_ns)
        failed = tuple(done.failures)
        for at in failed:
            course.fail(self.first + at, items[at], done.failures.pop(at))
        if any(map(inspect.isawaitable, {id(type(each)): each for each in done.results}.values())):
            course.awaits()
            return await self._awaited(done, failed)
        return done.results

    async def _awaited(self, done: _Done, failed: tuple[int, ...]) -> list[Any]:
        """Await what a `def` has returned that can be awaited, as `lambda url: fetch(url)` does."""
        values: list[Any] = []
        returned = (at for at in range(len(self.items)) if at not in failed)
        for at, result in zip(returned, done.results, strict=False):  # it may have stopped before its end
            try:
                values.append(await result if inspect.isawaitable(result) else result)
            except FAILURES as error:
                self.course.fail(self.first + at, self.items[at], error)
        return values


class _Done:
    """What a chunk has come to; filled in by the worker."""

    def __init__(self, course: Course, items: list[Any]) -> None:
        self._course, self._items = course, items
        self.results: list[Any] = []
        self.failures: dict[int, BaseException] = {}
        self.wall_ns = 0

    def run(self, fn: Callable[[Any], Any]) -> None:
        """Run the items, in a worker."""
        course, rest, append = self._course, iter(self._items), self.results.append
        begun = time.perf_counter_ns()
        while True:
            try:
                for item in rest:
                    append(fn(item))
                    if course.stopped:
                        break
            except FAILURES as error:
                self.failures[len(self.results) + len(self.failures)] = error
                if course.skips and not course.stopped:
                    continue
            self.wall_ns = time.perf_counter_ns() - begun
            del self, course, rest, append, item  # an error that is kept keeps this frame
            return

    def close(self) -> None:
        """Close what will not be awaited, and would warn of that."""
        for result in self.results:
            if inspect.iscoroutine(result):
                result.close()


class Streamed(Piece):
    """Items of a generator function, run one after the other, their results in steps."""

    def __init__(self, course: Course, first: int, items: list[Any]) -> None:
        super().__init__(course, first, items)
        self._at = 0
        """Which item is under way."""
        self._failures: dict[int, BaseException] = {}
        self._steps: Steps | None = None

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[Any] | None:
        """Let the first step run; the others run as there is room."""
        self._open().refill()
        return None

    async def emit(self, put: Put) -> None:
        """Hand on what the generators yield, as it comes."""
        steps = self._steps or self._open()
        items, course = steps.producer.items, self.course
        try:
            try:
                while await self._has_more(steps):
                    part = [items.popleft() for _ in range(len(items))]
                    steps.refill()
                    await put(part)
            finally:
                await steps.aclose()
                course.took(len(self.items), steps.producer.ran_ns)
            for at in tuple(self._failures):
                course.fail(self.first + at, self.items[at], self._failures[at])
        finally:
            self._forget()

    async def _has_more(self, steps: Steps) -> bool:
        """Wait for results; where a step fails, the item under way and those after it do."""
        try:
            return await steps.more()
        except FAILURES as error:
            self._failures |= dict.fromkeys(range(self._at, len(self.items)), error)
            return False

    async def drop(self) -> None:
        if self._steps is not None:
            try:
                await self._steps.aclose()
            finally:
                self._forget()

    def _forget(self) -> None:
        """Let go of the items: errors that are kept refer to this object, and so do the steps."""
        self.items.clear()
        self._failures.clear()

    def _open(self) -> Steps:
        self._steps = self.course.fn.open_over(self.course.loop_binding, self._all)
        return self._steps

    def _all(self) -> Iterator[Any]:
        """Yield what all items give; in a worker."""
        course, fn = self.course, self.course.fn.sync
        for at in range(len(self.items)):
            if self._is_over():
                return
            self._at = at
            try:
                yield from as_iterator(fn(self.items[at]))
            except FAILURES as error:
                if course.stopped:
                    raise  # `emit` may not come to the failures any more
                self._failures[at] = error
                if not course.skips or self._is_over():
                    return

    def _is_over(self) -> bool:
        """Return True if no item is to begin any more; in a worker."""
        return self.course.stopped or (self._steps is not None and self._steps.producer.closing)


class Made(Piece):
    """One item of an asynchronous generator function, or of one that may run outside of threads."""

    _receive: MemoryObjectReceiveStream[Any] | None = None

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[Any] | None:
        """Begin to work, a little ahead of `emit`."""
        send, self._receive = create_memory_object_stream[Any](AHEAD)
        task = group.create_task(self._ahead(send))
        task.add_done_callback(lambda _: send.close())  # it may be cancelled before it begins
        return None

    async def drop(self) -> None:
        if self._receive is not None:
            self._receive.close()

    async def run(self, put: Put) -> None:
        await self._generate(lambda result: put([result]))

    async def emit(self, put: Put) -> None:
        assert self._receive is not None
        with self._receive as receive:
            async for result in receive:
                await put([result])

    async def _ahead(self, send: MemoryObjectSendStream[Any]) -> None:
        with send:
            await self._generate(send.send)

    async def _generate(self, send: Callable[[Any], Awaitable[None]]) -> None:
        begun, elsewhere_ns = time.perf_counter_ns(), 0
        try:
            async with aclosing(self.course.fn(self.items[0])) as results:
                async for result in results:
                    sent = time.perf_counter_ns()
                    await send(result)
                    elsewhere_ns += time.perf_counter_ns() - sent
        except FAILURES as error:
            self.course.fail(self.first, self.items[0], error)
        finally:
            self.course.took(1, time.perf_counter_ns() - begun - elsewhere_ns)
