"""How a loop hears that isolates have answered."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import Protocol

from hybridrt.loop.outlet import forget_closed

__all__ = ["Awaiter", "Replies", "replies_of"]


class Awaiter(Protocol):
    """Who waits for a reply.

    Attributes:
        descriptor: Of the wire on which it will come.
    """

    descriptor: int

    def takes_token(self) -> bool:
        """Tell whether it still waits."""
        ...

    def goes_for(self, line: object) -> bool:
        """Tell whether it is out for this line."""
        ...

    def arrive(self) -> None:
        """Take in what has come."""
        ...


class Replies:
    """Tells one loop when isolates answer.

    The isolates' descriptors are in a set of their own, and the loop watches only that: a loop that watched
    them itself might change them (uvloop makes them non-blocking), and would have to be told at each call.

    Attributes:
        loop: The loop.
        late: It had to be helped, and has not turned since: it may stand still, or be about to close.

    Args:
        loop: The loop, which runs in this thread.

    Raises:
        NotImplementedError: The loop watches no descriptors.
        OSError: There are no descriptors left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.late = False
        self._ready = select.epoll()
        self._once = select.EPOLLIN | select.EPOLLONESHOT
        self._awaited: dict[int, Awaiter] = {}
        loop.add_reader(self._ready.fileno(), self._arrived)

    def expect(self, awaiter: Awaiter) -> None:
        """Wait for one reply."""
        descriptor = awaiter.descriptor
        self._awaited[descriptor] = awaiter
        try:
            self._ready.modify(descriptor, self._once)
        except FileNotFoundError:  # the first time
            self._ready.register(descriptor, self._once)

    def awaits(self, line: object) -> bool:
        """Tell whether a reply will come for this line."""
        return any(awaiter.goes_for(line) for awaiter in tuple(self._awaited.values()))

    def turn(self) -> None:
        """Note that the loop turns."""
        self.late = False

    def forget(self, awaiter: Awaiter) -> None:
        """Wait for a reply no more; from any thread that has the awaiter's token."""
        self._awaited.pop(awaiter.descriptor, None)
        with suppress(OSError):
            self._ready.unregister(awaiter.descriptor)

    def _arrived(self) -> None:
        self.late = False
        for descriptor, _ in self._ready.poll(0, 1):
            awaiter = self._awaited.pop(descriptor, None)
            if awaiter is not None and awaiter.takes_token():
                awaiter.arrive()


_replies: dict[asyncio.AbstractEventLoop, Replies | None] = {}


def replies_of(loop: asyncio.AbstractEventLoop) -> Replies | None:
    """Return what tells the running loop of replies, or None where nothing can."""
    if loop not in _replies:
        forget_closed(_replies)
        try:
            _replies[loop] = Replies(loop)
        except (AttributeError, NotImplementedError, OSError):
            _replies[loop] = None
    return _replies[loop]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replies.clear)
