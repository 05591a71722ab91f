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
        self._waited = self._was_blocked = 0.0
        self._waits_since: float | None = None
        self._blocked_since: float | None = None
        self._blocked_now = 0
        """How many wait for room; unordered results are handed on by several at once."""
        self.given = self.taken = 0

    @property
    def longest(self) -> int:
        """Items of a list at most."""
        return self.wants if self._longest is None else min(self.wants, self._longest)

    @property
    def waiting(self) -> float:
        """Seconds that the next stage has waited for items."""
        since = self._waits_since
        return self._waited + (0.0 if since is None else time.perf_counter() - since)

    @property
    def blocked(self) -> float:
        """Seconds that the stage before has waited for room."""
        since = self._blocked_since
        return self._was_blocked + (0.0 if since is None else time.perf_counter() - since)

    async def put(self, items: list[Any]) -> None:
        """Hand items on; waits for room."""
        longest = self.longest
        if len(items) <= longest:
            if items:
                await self._put(items)
            return
        for start in range(0, len(items), longest):
            await self._put(items[start : start + longest])

    async def _put(self, items: list[Any]) -> None:
        try:
            self._send.send_nowait(items)
        except WouldBlock:
            if not self._blocked_now:
                self._blocked_since = time.perf_counter()
            self._blocked_now += 1
            try:
                await self._send.send(items)
            finally:
                self._blocked_now -= 1
                if not self._blocked_now:
                    self._was_blocked = self.blocked
                    self._blocked_since = None
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
        if len(rest) <= most:
            items = list(rest)
            rest.clear()
        else:
            items = [rest.popleft() for _ in range(most)]
        self.taken += len(items)
        return items

    async def _next(self) -> list[Any]:
        try:
            return self._receive.receive_nowait()
        except WouldBlock:
            self._waits_since = time.perf_counter()
            try:
                return await self._receive.receive()
            finally:
                self._waited = self.waiting
                self._waits_since = None

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
