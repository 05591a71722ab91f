"""Joints: the bounded streams of lists between two stages of a pipe.

Items cross in lists, so that a short item costs a fraction of a hand-over. A stream holds a few lists, and
a list holds no more than the next stage wants at a time: what waits is bounded by both.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Any

from anyio import ClosedResourceError, EndOfStream, WouldBlock, create_memory_object_stream

__all__ = ["Joint"]

BULK_LISTS = 2
"""Lists that wait where the stage before makes many items at a time."""
SINGLE_LISTS = 32
"""The same where it makes one at a time. Neither is tuned."""


class Joint:
    """A bounded stream from one stage to the next; both ends are on one loop.

    Args:
        bulk: The stage before makes many items at a time.
        buffer: Items that may wait, as the user says; None: chosen.

    Attributes:
        buffer: As given.
        wants: Items that the next stage takes at a time, by its own word; a list has no more.
        given: Items put in.
        taken: Items taken out.
        waiting: The time for which the next stage has waited for items.
        blocked: The time for which the stage before has waited for room.
    """

    def __init__(self, *, bulk: bool, buffer: int | None) -> None:
        lists = BULK_LISTS if bulk else SINGLE_LISTS
        self.buffer = buffer
        self._longest: int | None = None
        if buffer is not None:
            lists = min(lists, buffer)
            self._longest = max(1, buffer // lists)
        self._send, self._receive = create_memory_object_stream[list[Any]](lists)
        self._rest: deque[Any] = deque()
        self.wants = 1
        self.waiting, self.blocked = _Waits(), _Waits()
        self.given = self.taken = 0

    @property
    def longest(self) -> int:
        """Items of a list at most."""
        return self.wants if self._longest is None else min(self.wants, self._longest)

    async def put(self, items: list[Any]) -> None:
        """Hand items on; waits for room."""
        longest = self.longest
        for start in range(0, len(items), longest):
            await self._put(items[start : start + longest])

    async def _put(self, items: list[Any]) -> None:
        try:
            self._send.send_nowait(items)
        except WouldBlock:
            with self.blocked:
                await self._send.send(items)
        self.given += len(items)

    async def take(self, most: int) -> list[Any]:
        """Return the items that are there, at most so many, or wait for some; none at the end."""
        rest, receive = self._rest, self._receive
        try:
            if not rest:
                rest.extend(await self._next())
            while len(rest) < most:
                rest.extend(receive.receive_nowait())
        except (WouldBlock, EndOfStream, ClosedResourceError):
            pass
        items = [rest.popleft() for _ in range(min(most, len(rest)))]
        self.taken += len(items)
        return items

    async def _next(self) -> list[Any]:
        try:
            return self._receive.receive_nowait()
        except WouldBlock:
            with self.waiting:
                return await self._receive.receive()

    def end(self) -> None:
        """Say that no more items come."""
        self._send.close()

    def close(self) -> None:
        """Close both ends, and forget what waits."""
        with suppress(WouldBlock, EndOfStream, ClosedResourceError):
            while True:
                self._receive.receive_nowait()
        self._send.close()
        self._receive.close()
        self._rest.clear()


class _Waits:
    """The time in which one or more wait, within `with`: several at once may hand on unordered results."""

    def __init__(self) -> None:
        self._seconds = self._since = 0.0
        self._count = 0

    @property
    def seconds(self) -> float:
        """So far."""
        return self._seconds + (time.perf_counter() - self._since if self._count else 0.0)

    def __enter__(self) -> None:
        if not self._count:
            self._since = time.perf_counter()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._seconds += time.perf_counter() - self._since
