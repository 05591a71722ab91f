"""The source of a pipe: what is on hand is taken on the loop, other iterators run in a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.notes import add_note
from hybridrt.offload import offload
from hybridrt.pipeline.failures import FAILURES, failure
from hybridrt.pipeline.joint import Joint
from hybridrt.streams.offloaded import OffloadedGenerator

__all__ = ["SOURCE", "SourceCourse", "check_source", "is_bulk"]

SOURCE = "source"


def check_source(source: object) -> None:
    """Refuse what cannot be iterated over.

    Raises:
        TypeError: It is neither an iterable nor an asynchronous one.
    """
    if not isinstance(source, (AsyncIterable, Iterable)) and not hasattr(source, "__getitem__"):
        hint = "; call it" if callable(source) else ""
        raise TypeError(f"the source of a pipe is an iterable or an asynchronous one, got {source!r}{hint}")


def is_bulk(source: object) -> bool:
    """Return True if the source gives many items at a time."""
    return not isinstance(source, AsyncIterable)


@offload
def _iterate(source: Iterable[Any]) -> Iterator[Any]:
    yield from source


class SourceCourse:
    """The source while its pipe runs.

    Args:
        source: What is iterated over.
        loop_binding: Through which its steps go out, if it has any.
        out: Takes the items.
    """

    def __init__(self, source: Any, loop_binding: LoopBinding, out: Joint) -> None:
        self._source, self._loop_binding, self._out = source, loop_binding, out
        self.items = 0
        self.ended: float | None = None

    async def run(self, pipe: asyncio.Task[None]) -> None:
        """Put all items into the output; `pipe` is the task of the pipe."""
        source, self._source = self._source, None
        try:
            if isinstance(source, AsyncIterable):
                await self._asynchronous(aiter(source))
            elif isinstance(source, Collection):
                await self._on_hand(iter(source))
            else:
                await self._offloaded(source)
        except FAILURES as error:
            failed = failure(error, "source", pipe)
            add_note(failed, f"in the source of the pipe, after {self.items} items")
            raise failed  # noqa: B904  # it is the error itself, or has it for its cause
        self._out.end()
        self.ended = time.perf_counter()

    async def _on_hand(self, items: Iterator[Any]) -> None:
        while some := list(islice(items, self._out.longest)):
            self.items += len(some)
            await self._out.put(some)

    async def _asynchronous(self, items: AsyncIterator[Any]) -> None:
        async with AsyncExitStack() as stack:
            if (close := getattr(items, "aclose", None)) is not None:
                stack.push_async_callback(close)
            async for item in items:
                self.items += 1
                await self._out.put([item])

    async def _offloaded(self, source: Iterable[Any]) -> None:
        make = (lambda: source) if isinstance(source, Iterator) else (lambda: iter(source))
        generator: OffloadedGenerator[..., Any] = _iterate
        steps = generator.open_over(self._loop_binding, make, self._out.buffer)
        items = steps.producer.items
        try:
            while await steps.more():
                some = [items.popleft() for _ in range(min(len(items), self._out.longest))]
                steps.refill()
                self.items += len(some)
                await self._out.put(some)
        finally:
            await steps.aclose()
