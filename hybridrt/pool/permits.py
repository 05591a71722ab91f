"""Permits: how many calls may compute at once, over all executors of an interpreter.

Under a GIL only one thread computes at a time; more of them only make each other, and the loop,
wait. So one long call may compute, and one short call beside it, that a millisecond of work need
not wait for a second of it. Calls that leave the GIL free are limited by the cores. Without a GIL
the cores limit all of them.

A call that has started never waits for a permit: running code cannot be paused. A call that begins
to compute just takes one, so that the count may stand above its limit until somebody ends. The
interpreter's lock protects the counts.
"""

from __future__ import annotations

__all__ = ["FREE", "LONG", "NONE", "SHORT", "Permits"]

NONE, SHORT, LONG, FREE = range(4)


class Permits:
    """The permits of one interpreter.

    Args:
        gil: Whether there is a GIL.
        cores: Usable cores.
    """

    __slots__ = ("capacity", "cores", "held", "lifted", "moves")

    def __init__(self, *, gil: bool, cores: int) -> None:
        self.set_cores(cores, gil=gil)
        self.forget()

    def set_cores(self, cores: int, *, gil: bool) -> None:
        """Limit calls by so many cores; permits beyond that are given back as their calls end."""
        self.capacity = 1 if gil else cores
        self.cores = cores

    def forget(self) -> None:
        """Begin with all permits in hand, as in a forked child."""
        self.held = [0, 0, 0, 0]
        self.moves = 0
        """Permits given back so far; it stands still when nobody gets on."""
        self.lifted = False
        """True once the governor failed: nobody would ever hand a permit over, so none is asked for."""

    @property
    def computing(self) -> int:
        """Calls that hold a permit for GIL-bound work."""
        return self.held[SHORT] + self.held[LONG]

    def has_room(self, permit: int) -> bool:
        """Tell whether a call may start with `permit`."""
        held = self.held
        if self.lifted or permit == NONE:
            return True
        if permit == FREE:
            return held[FREE] < self.cores
        computing = held[SHORT] + held[LONG]
        if permit == SHORT:
            return held[SHORT] < 1 or computing < self.capacity
        return held[LONG] < self.capacity and computing <= self.capacity

    def has_room_for_free(self, gil_share: float | None) -> bool:
        """Tell whether a call may start that leaves the GIL free, save for `gil_share` of its time."""
        crowded = gil_share is not None and self.capacity < self.cores and self.held[FREE] * gil_share >= 1.0
        return self.lifted or (self.has_room(FREE) and not crowded)

    def has_room_for_unknown(self) -> bool:
        """Tell whether a call may start that turns out short or long: not if long ones overflow."""
        return self.lifted or (self.held[LONG] <= self.capacity and self.has_room(SHORT))

    def take(self, permit: int) -> None:
        """Take a permit, whatever the room."""
        self.held[permit] += 1

    def give_back(self, permit: int) -> None:
        """Give a permit back."""
        self.held[permit] -= 1
        self.moves += 1

    def exchange(self, old: int, new: int) -> None:
        """Give `old` back and take `new`, whatever the room; NONE stands for no permit."""
        if old:
            self.give_back(old)
        if new:
            self.take(new)
