"""The course of one stage: take items, keep as many in work as make sense, hand results on."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import create_memory_object_stream

from hybridrt.deadline import current_scope
from hybridrt.errors import OffloadTimeoutError, RuntimeClosedError
from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.notes import add_note
from hybridrt.options import first_place
from hybridrt.pipeline.failures import failure, whole
from hybridrt.pipeline.joint import Joint
from hybridrt.pipeline.pieces import Batch, Chunk, Made, Piece, Single, Streamed
from hybridrt.pipeline.stage import Stage
from hybridrt.pipeline.values import SkippedItem
from hybridrt.streams.offloaded import OffloadedGenerator
from hybridrt.values import Kind

__all__ = ["CHUNK_MAX", "CHUNK_NS", "StageCourse"]

CHUNK_NS = 5_000_000
"""Work of short items that one call gets: a hundred hand-overs. A chunk is one unit of order, of
cancelling and of memory, so it should not be longer. Not tuned."""
CHUNK_MAX = 256
"""Items of one call at most."""
WAITING = 32
"""Items in work at once of functions that wait; as of `Runtime.map`."""
UNKNOWN = 4
"""The same while nothing is known of a function."""
ITEMS_MAX = 1024
"""Short items in work at once, whatever is known of the function: a bound of memory."""
SPARE = 3
"""Calls with short items that are queued behind those that compute. Not tuned."""

_PIECES: dict[str, Callable[..., Piece]] = {
    "chunks": Chunk,
    "items": Single,
    "batches": Batch,
    "generator": Streamed,
    "async generator": Made,
}


class StageCourse:
    """A stage while its pipe runs; on the loop, but for what pieces run in workers.

    Args:
        stage: What it runs.
        loop_binding: Through which its calls go out.
        into: Its input.
        out: Its output.
        ordered: Results leave in the order of their items.
        skips: Items that fail are noted, and left out.
        on_failure: Hears of an item that failed.
    """

    def __init__(
        self,
        stage: Stage,
        loop_binding: LoopBinding,
        into: Joint,
        out: Joint,
        *,
        ordered: bool,
        skips: bool,
        on_failure: Callable[[SkippedItem], None],
    ) -> None:
        self.stage, self.loop_binding = stage, loop_binding
        self.fn: Any = stage.fn
        self.skips = skips
        self.stopped = False
        self.ended: float | None = None
        """When its input had ended and all its results had left."""
        self.work_ns = self.done = self.failed = self.most_at_once = 0
        self._pipe: asyncio.Task[None]
        self._into, self._out = into, out
        self._ordered, self._on_failure = ordered, on_failure
        self._piece = _PIECES[stage.kind]
        self._chunks = stage.kind in ("chunks", "generator")
        self._keeps_isolates = False
        """Each item in work has an isolate to itself, from its first step to its last."""
        if isinstance(stage.fn, OffloadedGenerator):
            # Options hold for each item: in one generator with others, a late item would end them all.
            self._chunks = stage.kind == "generator" and not stage.fn._special
            self._keeps_isolates = first_place(stage.fn._options)[0] == "isolate"
        self._each_ns = 0.0
        self._under_way = self._unsent = 0
        self._started: dict[Piece, None] = {}
        """Pieces that wait for their turn to leave. A stream alone would not do: a task that is cancelled
        while it takes one out of it loses that, and what it has started would never be ended."""
        self._room = asyncio.Event()

    # ------------------------------------------------------------------ what pieces ask for

    def fail(self, number: int, item: Any, error: BaseException) -> None:
        """Note that an item failed with one of `FAILURES`; raises the error unless failures are skipped.

        Raises:
            asyncio.CancelledError: The pipe was cancelled: the item has not failed.
            RuntimeClosedError: The runtime has closed: the items that follow would fail, too.
            OffloadTimeoutError: The deadline is over: the same.
        """
        try:
            error = failure(error, "function", self._pipe)
            self.failed += 1
            if not self.skips or isinstance(error, RuntimeClosedError) or _is_over(error):
                add_note(error, f"in stage {self.stage.name!r} of the pipe, item {number}: {_short(item)}")
                raise error
            self._on_failure(SkippedItem(stage=self.stage.name, number=number, item=item, error=error))
        finally:
            del error  # its traceback holds this frame

    def took(self, items: int, wall_ns: int) -> None:
        """Learn what items have taken in the stage's function."""
        self.work_ns += wall_ns
        if items:
            each = wall_ns / items
            # Being kept from a core makes items look long, and nothing makes them look short.
            weight = 0.2 if each > self._each_ns else 0.6
            self._each_ns = each if not self.done else (1 - weight) * self._each_ns + weight * each
            self.done += items

    # ------------------------------------------------------------------ how much at once

    def limit(self) -> int:
        """Return how many pieces may be in work at once now."""
        if self.stage.concurrency is not None:
            return self.stage.concurrency
        if self.stage.kind == "batches":
            return int(self.fn._options.limit or 1)
        machine = self.loop_binding.pool.budget
        if not self._chunks:
            return machine.cores if self._keeps_isolates else WAITING
        kind = self.fn._own_profile(self.loop_binding.pool).kind
        if kind is Kind.WAITING:
            return min(WAITING, max(UNKNOWN, ITEMS_MAX // self.most()))
        if kind is Kind.UNKNOWN:
            return UNKNOWN
        at_once = machine.cores if kind is Kind.FREE or not machine.gil else 1
        # Those behind keep the workers busy until the loop has handed over more, which may take it some
        # milliseconds; one long item is enough for that.
        return at_once + (SPARE if self._each_ns < CHUNK_NS else 1)

    def awaits(self) -> None:
        """Learn that what the function returns is to be awaited: each item alone, many at once."""
        self._chunks = False

    def most(self) -> int:
        """Return how many items the next piece takes at most."""
        if self.stage.kind == "batches":
            return int(self.fn._options.batch)
        if not self._chunks or not self.done:
            return 1
        wanted = CHUNK_MAX if self._each_ns <= 0 else int(CHUNK_NS / self._each_ns)
        return max(1, min(wanted, CHUNK_MAX, self._out.longest))

    # ------------------------------------------------------------------ the course

    async def run(self, group: asyncio.TaskGroup, pipe: asyncio.Task[None]) -> None:
        """Run the stage until its input ends, in tasks of the group, which that of the pipe waits for."""
        self._pipe = pipe
        if self._ordered:
            await self._run_ordered(group)
        else:
            await self._dispatch(lambda piece: self._start(group, piece))
            await self._until(0)
        self._out.end()
        self.ended = time.perf_counter()

    async def _run_ordered(self, group: asyncio.TaskGroup) -> None:
        send, receive = create_memory_object_stream[tuple[Piece, bool]](math.inf)  # `_unsent` is the bound
        emitter = group.create_task(whole(partial(self._emit, receive), self._pipe))

        def queue(piece: Piece) -> None:
            task = piece.start(group)
            if task is not None:
                task.add_done_callback(self._piece_ended)
            self._started[piece] = None
            self._unsent += 1
            send.send_nowait((piece, task is None))

        try:
            with send:
                await self._dispatch(queue)
            await emitter
        finally:
            receive.close()
            ending = [piece.drop() for piece in self._started]
            self._started.clear()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _dispatch(self, start: Callable[[Piece], None]) -> None:
        """Make pieces of the input, as long as there is some."""
        while True:
            most = self.most()
            limit = self.limit()
            await self._until(limit - 1)
            self._into.wants = max(1, min(most * limit, CHUNK_MAX))
            number = self._into.taken
            items = await self._into.take(most)
            if not items:
                return
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            start(self._piece(self, number, items))
            del items

    def _start(self, group: asyncio.TaskGroup, piece: Piece) -> None:
        task = group.create_task(whole(partial(piece.run, self._out.put), self._pipe))
        task.add_done_callback(self._piece_ended)

    def _piece_ended(self, _: object) -> None:
        self._under_way -= 1
        self._room.set()

    async def _until(self, most: int) -> None:
        """Wait until no more pieces than that are in work, and about as many wait for their turn to leave."""
        window = most + 2 if self._chunks else 2 * most + 1
        while self._under_way > most or self._unsent > window:
            self._room.clear()
            await self._room.wait()

    async def _emit(self, pieces: Any) -> None:
        """Hand on the results of pieces, in order."""
        async for piece, holds in pieces:
            if piece not in self._started:  # the stage has ended, and dropped it
                return
            del self._started[piece]
            await piece.emit(self._out.put)
            del piece
            self._unsent -= 1
            if holds:
                self._under_way -= 1
            self._room.set()


def _is_over(error: BaseException) -> bool:
    """Return True if a call is late by the deadline of the pipe: all that follow would be."""
    scope = current_scope.get()
    return isinstance(error, OffloadTimeoutError) and scope is not None and scope.expired()


def _short(item: Any) -> str:
    if isinstance(item, (str, bytes, bytearray, list, tuple)) and len(item) > 200:
        item = item[:200]  # the whole of a large one would keep the loop
    try:
        text = repr(item)
    except Exception as error:
        text = f"<{type(item).__qualname__} whose repr raises {error!r}>"
    return text if len(text) <= 200 else f"{text[:197]}..."
