"""`pipe`: a source and stages that overlap, as one asynchronous iterator."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Literal

from hybridrt.arguments import check_choice, check_flag
from hybridrt.offload import is_async
from hybridrt.pipeline.flow import Flow
from hybridrt.pipeline.source import check_source
from hybridrt.pipeline.stage import Stage, as_stage
from hybridrt.pipeline.values import PipeStatistics

__all__ = ["Pipe", "pipe"]

OnError = Literal["raise", "skip"]
Progress = Callable[[PipeStatistics], object]
PROGRESS_EVERY = 0.1
"""Seconds between two calls of `progress`, at least."""


def pipe(
    source: Iterable[Any] | AsyncIterable[Any],
    *stages: Callable[[Any], Any] | Stage,
    ordered: bool = True,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> Pipe:
    """Let items flow through functions that overlap; iterate over what comes out.

    Everything that can overlap does: while one item is parsed in a thread, others are fetched on the loop.
    Stages are plain functions of one item: a `def` is offloaded, short items several to a call; an `async
    def` runs on the loop; a generator function of either kind gives any number of items for one; a batched
    function gets batches. Between them are bounded streams, so a slow stage, or a slow consumer, slows down
    those before it, and memory does not depend on the number of items.

    The first error ends the pipe: everything under way is cancelled and awaited, and the error is raised as
    it is, with a note that names the stage and the item. So does leaving the loop over it: use `async with`,
    or `aclose()`, to have that happen at once.

    Args:
        source: Items. Collections are iterated over on the loop, other iterators in a worker thread.
        *stages: Functions, or `stage(function, concurrency=..., buffer=...)`.
        ordered: Results leave in the order of the items. False: as they are ready, so that one slow item
            holds up no others.
        on_error: "raise", or "skip": an item that a stage raises on is left out and noted in `skipped`. An
            error of the source always ends the pipe.
        progress: Called on the loop with the statistics, at most ten times a second, and at the end.

    Raises:
        TypeError: The source cannot be iterated over, or a stage cannot be called.
        ValueError: An option has another value.

    Example:
        >>> async def main() -> None:
        ...     async with pipe(["a b", "c"], str.split, len) as lengths:
        ...         print([length async for length in lengths])
        >>> import asyncio
        >>> asyncio.run(main())
        [2, 1]
    """
    check_source(source)
    check_flag("ordered", ordered)
    check_choice("on_error", on_error, ("raise", "skip"))
    if progress is not None and (is_async(progress) or not callable(progress)):
        raise TypeError(f"progress is a function of the statistics, not awaited, or None, got {progress!r}")
    flow = Flow(source, tuple(map(as_stage, stages)), ordered=ordered, skips=on_error == "skip")
    return Pipe(flow, progress)


class Pipe(AsyncIterator[Any]):
    """Items on their way through stages; made by `pipe`. It is iterated over once.

    Attributes:
        skipped: Items that a stage raised on, with `on_error="skip"`, in the order of their failing.
    """

    def __init__(self, flow: Flow, progress: Progress | None) -> None:
        self._flow = flow
        self.skipped = flow.skipped
        # It must not refer to this object: without a circle it ends as soon as both are dropped.
        self._items = _iterate(flow, progress)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        return self._items

    def __anext__(self) -> Any:
        """Return the next item, to be awaited."""
        return self._items.__anext__()

    async def __aenter__(self) -> Pipe:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the pipe: cancel what is under way, and wait for it. It may be called again.

        Raises:
            RuntimeError: Another task waits for an item of this pipe, or ends it just now.
        """
        if self._items.ag_running:  # type: ignore[attr-defined]  # it is one of Python's own
            raise RuntimeError(
                "another task waits for an item of this pipe, or ends it just now; cancel that task, which "
                "ends the pipe, or let it get there before you call aclose()"
            )
        await self._items.aclose()

    def statistics(self) -> PipeStatistics:
        """Return how far the pipe is, and which stage the others wait for."""
        return self._flow.statistics()


async def _iterate(flow: Flow, progress: Progress | None) -> AsyncGenerator[Any, None]:
    told_at = time.perf_counter()
    flow.start()
    try:
        while some := await flow.take():
            begun = time.perf_counter()
            for item in some:
                flow.items_out += 1
                yield item
            del item
            now = time.perf_counter()
            flow.consumed(len(some), now - begun)
            if progress is not None and now - told_at >= PROGRESS_EVERY:
                told_at = now
                progress(flow.statistics())
    finally:
        await flow.end()
        if progress is not None:
            progress(flow.statistics())
