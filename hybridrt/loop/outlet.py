"""Completions in batches: one wake-up of the loop per turn, not one per call.

Workers append ended calls to their loop's outlet; the first of them since the last turn wakes the
loop, which then settles all that have gathered. Why no wake-up is lost, worker W, loop L:

    1. W appends its call.
    2. W reads `scheduled`. True: somebody's wake-up is on its way, done. False: W sets it, and wakes.
    a. L sets `scheduled` to False.
    b. L settles everything in the queue.

    If W reads True in 2, L has not done a yet, so b comes after 1 and takes W's call with it. If two
    workers both read False, L is woken twice and finds nothing the second time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import Any

from hybridrt.pool.future import Settles

__all__ = ["Outlet", "forget_closed", "outlet_of"]

logger = logging.getLogger("hybridrt")


class Outlet:
    """Where ended calls wait for one loop to settle them.

    Args:
        loop: The loop.
    """

    __slots__ = ("_done", "_scheduled", "_settle", "loop", "recognisable")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.recognisable = isinstance(loop, asyncio.BaseEventLoop)
        """Its `run_in_executor` is Python code and can be told by its frame."""
        self._done: deque[Settles] = deque()
        self._scheduled = False
        self._settle = self._settle_all

    def put(self, call: Settles) -> None:
        """Hand over an ended call, from any thread."""
        self._done.append(call)
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._settle)
            except RuntimeError:  # the loop is closed: nobody can wait any more
                logger.debug("a call ended after its event loop was closed")

    def _settle_all(self) -> None:
        self._scheduled = False
        done = self._done
        for _ in range(len(done)):
            done.popleft().settle()


class _Here(threading.local):
    outlet: Outlet | None = None


_here = _Here()
_outlets: dict[asyncio.AbstractEventLoop, Outlet] = {}


def outlet_of(loop: asyncio.AbstractEventLoop) -> Outlet:
    """Return the outlet of a loop."""
    outlet = _outlets.get(loop)
    if outlet is None:
        forget_closed(_outlets)
        outlet = _outlets[loop] = Outlet(loop)
    return outlet


def forget_closed(table: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Drop what belongs to closed loops. Weak keys would not do: the values refer to their loops."""
    for loop in list(table):
        if loop.is_closed():
            table.pop(loop, None)


def current_outlet(loop: asyncio.AbstractEventLoop) -> Outlet:
    """Return the outlet of the loop that runs in this thread; faster than `outlet_of`."""
    outlet = _here.outlet
    if outlet is None or outlet.loop is not loop:
        outlet = _here.outlet = outlet_of(loop)
    return outlet
