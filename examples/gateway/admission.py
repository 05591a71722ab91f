"""Admission: how many exchanges are under way at once in this process.

A turn of the loop runs a step of every exchange that is ready: with 128 of them, each waits for 127 others
at each of its steps. So only as many are under way as the loop serves in time; the others wait in the order
in which they came. An exchange is under way until its record is made, so that the background path keeps up.

The limit follows the loop's delay. It shrinks where the delay is high, by as much as that is too high, and
grows by an eighth where the delay is low and requests wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, replace

from .errors import GatewayError

__all__ = ["Admission", "Limit", "adapted"]

PERIOD = 0.005
"""Seconds between two looks at the loop's delay, while anything is under way."""
LOOKS = 20
"""Looks between two changes of the limit."""
HIGH = 0.001
"""Mean delay in seconds above which the limit shrinks; one timer in a hundred is then some 5 ms late."""
LOW = 0.0005
"""Mean delay in seconds below which it grows."""
FIRST, LEAST = 16, 4
"""The limit at the start, and the lowest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many exchanges may be under way.

    Attributes:
        now: At this time.
        most: At any time.
    """

    now: int
    most: int


def adapted(limit: Limit, delays: list[float], *, waited: bool) -> Limit:
    """Return the limit after some looks at the loop's delay; pure.

    The mean counts, which is half a turn of the loop: one look that is late because the system gave the core
    to another process changes little.

    Args:
        limit: Until now.
        delays: Seconds; at least one.
        waited: A request had to wait since the last change.
    """
    mean = sum(delays) / len(delays)
    if mean > HIGH:
        shrunk = int(limit.now * max(0.5, HIGH / mean))
        return replace(limit, now=max(min(LEAST, limit.most), shrunk))
    if mean < LOW and waited:
        return replace(limit, now=min(limit.most, limit.now * 9 // 8 + 1))
    return limit


class Admission:
    """Places for exchanges, given in the order of asking. All state belongs to the event loop."""

    def __init__(self, most: int) -> None:
        self.limit = Limit(now=min(FIRST, most), most=most)
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waited = False
        self._delays: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiting)

    async def enter(self, timeout: float) -> None:
        """Take a place; it is held until `leave`.

        Raises:
            GatewayError: 503, none came free within `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._look_in(loop)
        if self.running < self.limit.now and not self._waiting:
            self.running += 1
            return
        self._waited = True
        place = loop.create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(timeout):
                await place
        except BaseException as error:
            if place in self._waiting:
                self._waiting.remove(place)
            elif place.done() and not place.cancelled():  # it came together with the end
                self.running -= 1
            self._admit()
            if isinstance(error, TimeoutError):
                message = "the gateway serves as many requests as it can; try again later"
                raise GatewayError(503, "overloaded", message, retry_after=1.0) from None
            raise

    def leave(self) -> None:
        """Give a place back."""
        self.running -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.running < self.limit.now:
            place = self._waiting.popleft()
            if not place.cancelled():
                place.set_result(None)
                self.running += 1

    def _look_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(PERIOD, self._look, loop, time.monotonic() + PERIOD)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._timer = None
        self._delays.append(max(0.0, time.monotonic() - due))
        if len(self._delays) >= LOOKS:
            self.limit = adapted(self.limit, self._delays, waited=self._waited)
            self._delays.clear()
            self._waited = bool(self._waiting)
            self._admit()
        if self.running or self._waiting:
            self._look_in(loop)
