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

import anyio

from .errors import GatewayError

__all__ = ["Admission", "adapted"]

PERIOD = 0.005
"""Seconds between two looks at the loop's delay, while anything is under way."""
LOOKS = 20
"""Looks between two changes of the limit."""
HIGH = 0.0006
"""Mean delay in seconds above which the limit shrinks; one timer in a hundred is then less than 5 ms late."""
LOW = 0.0003
"""Mean delay in seconds below which it grows."""
FIRST, LEAST = 16, 4
"""The limit at the start, and the lowest one."""


def adapted(limit: int, most: int, delays: list[float], *, waited: bool) -> int:
    """Return the limit after some looks at the loop's delay; pure.

    The mean counts, which is half a turn of the loop: one look that is late because the system gave the core
    to another process changes little.

    Args:
        limit: Until now.
        most: The highest limit.
        delays: Seconds; at least one.
        waited: A request had to wait since the last change.
    """
    mean = sum(delays) / len(delays)
    if mean > HIGH:
        return max(min(LEAST, most), int(limit * max(0.5, HIGH / mean)))
    if mean < LOW and waited:
        return min(most, limit * 9 // 8 + 1)
    return limit


class Admission:
    """Places for exchanges, given in the order of asking. All state belongs to the event loop.

    Args:
        most: The highest number of places.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = anyio.CapacityLimiter(min(FIRST, most))
        self._waited = False
        self._delays: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Exchanges that may be under way now."""
        return int(self._places.total_tokens)

    @property
    def running(self) -> int:
        """Exchanges under way."""
        return self._places.borrowed_tokens

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return self._places.statistics().tasks_waiting

    async def enter(self, timeout: float) -> object:
        """Return a place; it is held until `leave`.

        Raises:
            GatewayError: 503, none came free within `timeout` seconds.
        """
        if self._timer is None:
            self._look_later()
        place = object()
        try:
            self._places.acquire_on_behalf_of_nowait(place)  # the other way gives the loop a turn first
        except anyio.WouldBlock:
            self._waited = True
            await self._wait_for(place, timeout)
        return place

    async def _wait_for(self, place: object, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._places.acquire_on_behalf_of(place)
        except TimeoutError:
            message = "the gateway serves as many requests as it can; try again later"
            raise GatewayError(503, "overloaded", message, retry_after=1.0) from None

    def leave(self, place: object) -> None:
        """Give a place back."""
        self._places.release_on_behalf_of(place)

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PERIOD, self._look, time.monotonic() + PERIOD)

    def _look(self, due: float) -> None:
        self._timer = None
        self._delays.append(max(0.0, time.monotonic() - due))
        if len(self._delays) >= LOOKS:
            self._places.total_tokens = adapted(self.limit, self._most, self._delays, waited=self._waited)
            self._delays.clear()
            self._waited = self.waiting > 0
        if self.running:
            self._look_later()
