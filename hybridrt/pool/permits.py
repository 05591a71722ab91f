"""Permits: how many calls may compute at once, over all executors of an interpreter.

Under a GIL only one thread computes at a time; more of them only make each other, and the loop,
wait. So one long call may compute, and one short call beside it, that a millisecond of work need
not wait for a second of it. Calls that leave the GIL free are limited by the cores. Without a GIL
the cores limit all of them.

A call that has started holds its permit while it computes. One that comes back from a wait stands in a
line for the next (see `phases`), and the call that gives a permit back hands it to the first there at once;
so calls that come back go before new ones. `_IN_A_ROW` of them, then a queued call has its turn if it lacks
one. The thread that gets a permit has to wake up first, and meanwhile a core would be idle. Therefore
`_SPARE` GIL-free calls that come back may compute beyond the cores. A call that was only seen to compute
just takes a permit, so that the count may stand above its limit until a call ends. The shared lock protects
the counts and the lines.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from hybridrt.pool.permit import Permit

__all__ = ["FREE", "LONG", "NONE", "SHORT", "Asking", "Permits"]

NONE: int = Permit.NONE
SHORT: int = Permit.SHORT
LONG: int = Permit.LONG
FREE: int = Permit.FREE
_SPARE = 1
"""With 1 and 2 of them, 256 calls that wait 50 ms and run MobileNetV2 did 1.04 and 1.10 times the calls per
second of none, at a loop p99 of 5.6 and 9.6 ms instead of 4.1; two cores, medians of three. Calls under the
GIL have none: with 1, 128 calls that wait 5 or 50 ms and compute for 1 or 5 did no more of them a second, at
a loop p99 of 9 to 17 ms instead of 2; two runs each."""
_IN_A_ROW = 4
"""Permits that go to calls that come back, until one is left for a call that is queued. Not measured."""


class Asking(Protocol):
    """A call that waits for a permit to go on."""

    gil_share: float | None

    def granted_locked(self, permit: int) -> bool:
        """Go on with the permit; return False if the call is over and needs none."""
        ...


class Holder(Protocol):
    """What holds a permit, or none: a worker."""

    permit: int


class Permits:
    """The permits of one interpreter.

    Args:
        gil: Whether there is a GIL.
        cores: Usable cores.
    """

    __slots__ = (
        "capacity",
        "cores",
        "ended",
        "gil",
        "held",
        "in_a_row",
        "left",
        "lifted",
        "lines",
        "moves",
        "queued",
        "waits",
    )

    def __init__(self, *, gil: bool, cores: int) -> None:
        self.set_cores(cores, gil=gil)
        self.forget()

    def set_cores(self, cores: int, *, gil: bool) -> None:
        """Limit calls by so many cores; permits beyond that are given back as their calls end."""
        self.gil = gil
        self.capacity = 1 if gil else cores
        self.cores = cores

    def forget(self) -> None:
        """Begin with all permits in hand, as in a forked child."""
        self.held = [0, 0, 0, 0]
        self.moves = 0
        """Permits given back so far; it stands still when no call gets on."""
        self.lifted = False
        """True once the governor failed: permits would never be handed over, so none is asked for."""
        self.ended = False
        """True once the interpreter ends and only calls that were left behind go on: they get no permit."""
        self.lines: tuple[deque[Asking], ...] = tuple(deque[Asking]() for _ in range(4))
        """Calls that came back from a wait, by the permit that they ask for; the first goes first."""
        self.waits = 0
        """Length of all lines."""
        self.in_a_row = 0
        self.left = False
        """A permit was left for a queued call; what such calls do not take is handed on."""
        self.queued: dict[Any, None] = {}
        """Pools with queued calls that lack a permit; the interpreter's own."""

    @property
    def computing(self) -> int:
        """Calls that hold a permit for GIL-bound work."""
        return self.held[SHORT] + self.held[LONG]

    def has_room(self, permit: int) -> bool:
        """Return True if a call may start with `permit`."""
        held = self.held
        if self.lifted or permit == NONE:
            return True
        if permit == FREE:
            return held[FREE] < self.cores + (_SPARE if self.left else 0)
        computing = held[SHORT] + held[LONG]
        if permit == SHORT:
            return held[SHORT] < 1 or computing < self.capacity
        return held[LONG] < self.capacity and computing <= self.capacity

    def has_room_for_free(self, gil_share: float | None) -> bool:
        """Return True if a call may start that leaves the GIL free, save for `gil_share` of its time."""
        return self.lifted or (self.has_room(FREE) and not self._is_crowded(gil_share))

    def _is_crowded(self, gil_share: float | None) -> bool:
        return gil_share is not None and self.capacity < self.cores and self.held[FREE] * gil_share >= 1.0

    def has_room_for_unknown(self) -> bool:
        """Return True if a call may start that turns out short or long: not if long ones overflow."""
        return self.lifted or (self.held[LONG] <= self.capacity and self.has_room(SHORT))

    def take(self, permit: int) -> None:
        """Take a permit, whatever the room."""
        self.held[permit] += 1

    def give_back(self, permit: int) -> None:
        """Give a permit back, to the first in the line if there is one."""
        self._drop(permit)
        if self.waits:
            self._pass_on()

    def exchange(self, holder: Holder, new: int) -> None:
        """Let a holder give back what it has and take `new`, whatever the room; NONE stands for no permit.

        What it holds is noted before the line moves, so that it is given back once, whatever becomes of that.
        """
        old = holder.permit
        if old:
            self._drop(old)
        if new:
            self.take(new)
        holder.permit = new
        if old and self.waits:
            self._pass_on()

    def _drop(self, permit: int) -> None:
        moves = self.moves + 1  # where memory is lacking for it, nothing has changed
        self.held[permit] -= 1
        self.moves = moves

    def _pass_on(self) -> None:
        """Let a call in the line have the permit that was given back, or a queued one whose turn it is."""
        if self.queued and self.in_a_row >= _IN_A_ROW and not self.lifted:
            self.in_a_row, self.left = 0, True
        else:
            self.hand_on()

    def has_room_to_return(self, permit: int, gil_share: float | None) -> bool:
        """Return True if a call that comes back may go on at once: there is room and none waits before it."""
        if self.ended or (self.lines[permit] and not self.lifted):
            return False
        return self._has_room_for(permit, gil_share)

    def ask(self, permit: int, asking: Asking) -> None:
        """Put a call that comes back into the line."""
        self.lines[permit].append(asking)
        self.waits += 1

    def withdraw(self, permit: int, asking: Asking) -> None:
        """Take a call out of the line, if it stands there."""
        if asking in self.lines[permit]:
            self.lines[permit].remove(asking)
            self.waits -= 1

    def hand_on(self) -> None:
        """Let those go on in the lines for whom there is room."""
        self.left = False
        if self.ended:
            return
        for permit in (SHORT, FREE, LONG):
            line = self.lines[permit]
            while line and self._has_room_for(permit, line[0].gil_share):
                self.held[permit] += 1  # before it is granted, so that none is held that is not counted
                if line[0].granted_locked(permit):
                    self.in_a_row = min(_IN_A_ROW, self.in_a_row + 1)
                else:
                    self.held[permit] -= 1
                line.popleft()
                self.waits -= 1

    def _has_room_for(self, permit: int, gil_share: float | None) -> bool:
        """Return True if a call may go on that comes back."""
        if permit != FREE or self.lifted:
            return self.has_room(permit)
        return self.held[FREE] < self.cores + _SPARE and not self._is_crowded(gil_share)
