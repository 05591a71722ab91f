"""The first calls of a function: a few run in threads, the others wait for what these show.

A `pure` function whose cost is not known yet runs in threads. A crowd of first calls would go there whole,
and each of them that holds the GIL keeps the loop from its turn. So only `TRIED` of them run at a time, more
once they are seen to wait. The others are held on their loops, in order, until the verdict is there.

A held call is in no queue of a pool yet. It can be cancelled, its timeouts run, and a runtime that closes
lets it go on first. Calls of several loops are woken on their own loops; the lock guards the counts.

What if a call is let go while its task is cancelled?

    1. `leave` gives the place to a held call, under the lock, and completes its future.
    2. The task is cancelled before its loop comes to it: the await raises `CancelledError` instead.
    3. The held call has the place by then, and `wait` passes it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from hybridrt.loop.call import not_started
from hybridrt.pool.lock import without_convoy
from hybridrt.values import Kind

if TYPE_CHECKING:
    from hybridrt.observe.functions import Profile

__all__ = ["FirstCalls", "Held", "HeldCalls"]

TRIED = 2
"""Calls of an unknown function that run at once: one of them may be long, as under the pool's permits."""
HELD_MAX = 10_000
"""Calls of one function that are held; the others go to the pool's queue."""
LOOK = 0.005
"""Seconds between two looks at what is known, beside those at the end of each call. Not measured."""
PATIENCE = 1.0
"""Seconds for which no call has ended or been let go until one more is: those that run may wait for it, in a
way that is not seen. Not measured."""


class Held:
    """A call that waits for a place or for a verdict.

    Attributes:
        future: True once the call has a place; False once it is known where its calls run.
        has_place: What it was completed with, or will be in its loop's next turn.
    """

    __slots__ = ("first", "future", "has_place", "is_decided", "of_loop", "profile")

    def __init__(
        self, first: FirstCalls, of_loop: HeldCalls, profile: Profile, is_decided: Callable[[], bool]
    ) -> None:
        self.first, self.of_loop, self.profile, self.is_decided = first, of_loop, profile, is_decided
        self.future: asyncio.Future[bool] = of_loop.loop.create_future()
        self.has_place = False

    async def wait(self, begun: float | None, timeout: float | None, queue_timeout: float | None) -> bool:
        """Wait until the call may go on; return True if it has a place, which `leave` gives back.

        Args:
            begun: Since when its times run, by the loop's time; None where it has none.
            timeout: As `offload` has it.
            queue_timeout: The same.

        Raises:
            OffloadTimeoutError: One of the times is up, or it was told to `expire`.
        """
        loop = self.of_loop.loop
        timers = [
            loop.call_later(begun + seconds - loop.time(), self.expire, seconds, limit)
            for limit, seconds in (("timeout", timeout), ("queue_timeout", queue_timeout))
            if begun is not None and seconds is not None
        ]
        try:
            return await self.future
        except BaseException:
            self.first.withdraw(self)
            raise
        finally:
            for timer in timers:
                timer.cancel()

    def wake(self) -> None:
        """Complete the future; on its loop."""
        self.of_loop.discard(self)
        if not self.future.done():
            self.future.set_result(self.has_place)

    def expire(self, seconds: float, limit: str = "timeout") -> None:
        """The time is up, as `limit` says: fail, unless the call goes on just now."""
        if not self.future.done():
            self.future.set_exception(not_started(self.profile.name, limit, seconds))


class HeldCalls:
    """The held calls of one loop, and the timer that looks after them; used on the loop's thread."""

    __slots__ = ("_held", "_timer", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._held: dict[Held, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: Held) -> None:
        """Look after a call until it goes on."""
        self._held[held] = None
        if self._timer is None:
            self._timer = self.loop.call_later(LOOK, self._look)

    def discard(self, held: Held) -> None:
        """Look after it no more."""
        self._held.pop(held, None)

    def let_all_go(self) -> None:
        """Let all calls go on; their tasks run in the loop's next turn."""
        for held in tuple(self._held):
            held.first.let_go(held)

    def _look(self) -> None:
        self._timer = None
        for first in {held.first: None for held in self._held}:
            first.look(self.loop.time())
        if self._held:
            self._timer = self.loop.call_later(LOOK, self._look)


class FirstCalls:
    """Who of one function's calls may run while it is not known where they should.

    Attributes:
        running: Calls that have a place.
    """

    __slots__ = ("_held", "_lock", "_moved", "_since", "running")

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[Held, None] = {}
        self.running = 0
        self._moved = True
        """A call has ended or been let go since the last look."""
        self._since = 0.0

    @property
    def held(self) -> int:
        """Calls that wait."""
        return len(self._held)

    def enter(self, of_loop: HeldCalls, profile: Profile, is_decided: Callable[[], bool]) -> Held | None:
        """Take a place for a call and return None, or hold the call and return what to wait for."""
        with without_convoy(self._lock):
            if len(self._held) >= HELD_MAX or (not self._held and self._has_room(profile)):
                self.running += 1
                return None
            held = Held(self, of_loop, profile, is_decided)
            self._held[held] = None
        of_loop.add(held)
        return held

    def leave(self) -> None:
        """Give a place back: its call has ended."""
        self._wake(self._give_back(1))

    def _give_back(self, places: int) -> list[Held]:
        """Give places back and return the calls that have them now, to be woken."""
        with without_convoy(self._lock):
            self.running -= places
            self._moved = True
            return self._let_go_in_order_locked()

    def withdraw(self, held: Held) -> None:
        """Take back a call that waits no longer."""
        held.of_loop.discard(held)
        with without_convoy(self._lock):
            waited = self._held.pop(held, self) is None
        if not waited and held.has_place:
            self.leave()

    def let_go(self, held: Held) -> None:
        """Give a held call a place whatever is known."""
        with without_convoy(self._lock):
            woken = [held] if held in self._held else []
            self._take_out_locked(woken, place=True)
        self._wake(woken)

    def look(self, now: float) -> None:
        """See who may go on by what is known now.

        Args:
            now: The time in seconds, by the loop's clock.
        """
        with without_convoy(self._lock):
            decided = [held for held in self._held if held.is_decided()]
            self._take_out_locked(decided, place=False)
            woken = decided + self._let_go_in_order_locked()
            if self._moved or woken:
                self._moved, self._since = False, now
            elif self._held and now - self._since >= PATIENCE:
                self._since = now
                woken = [next(iter(self._held))]
                self._take_out_locked(woken, place=True)
        self._wake(woken)

    def _has_room(self, profile: Profile) -> bool:
        """Return True if one more call may run: the pool itself bounds those that wait or leave the GIL."""
        known = profile.kind is Kind.WAITING or profile.leaves_gil
        return known or self.running < max(TRIED, profile.slow_start)

    def _let_go_in_order_locked(self) -> list[Held]:
        woken: list[Held] = []
        while self._held:
            held = next(iter(self._held))
            decided = held.is_decided()
            if not decided and not self._has_room(held.profile):
                break
            self._take_out_locked([held], place=not decided)
            woken.append(held)
        return woken

    def _take_out_locked(self, leaving: list[Held], *, place: bool) -> None:
        for held in leaving:
            del self._held[held]
            held.has_place = place
            self.running += place

    def _wake(self, woken: list[Held]) -> None:
        here = asyncio._get_running_loop()
        while woken:
            lost = 0
            for held in woken:
                loop = held.of_loop.loop
                if loop is here:
                    held.wake()
                    continue
                try:
                    loop.call_soon_threadsafe(held.wake)
                except RuntimeError:  # the loop is closed: its task will never go on
                    lost += held.has_place
            woken = self._give_back(lost) if lost else []
