"""What is known about a function's inputs of one size: what their calls cost, and what was chosen by it.

Nothing here is decided or run: the law in `control.placement` chooses, the function's `Router` acts by it and
writes under its lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from hybridrt.control.placement import AGAIN, Choice, Evidence, Prices
from hybridrt.loop.inline import HANDLING_NS
from hybridrt.observe.functions import WAITING_SHARE
from hybridrt.observe.placement import UNSIZED, Figures, Size
from hybridrt.placements import Placement, PlacementReason, SizePlacement
from hybridrt.values import GilClass, Kind

if TYPE_CHECKING:
    from hybridrt.observe.functions import Profile
    from hybridrt.remembered import Record

__all__ = ["NotInline", "SizeClass", "key_of"]

_WIDTH = 24
_BITS = (1 << _WIDTH) - 1
"""Room for the bits of the largest number in the key of a class; a number of two megabytes fits."""
_COLD = 3
"""Calls in a row for which an isolate was started, and that tell nothing yet. Not measured."""
_DOUBTS = 32
"""Calls in threads that show whether a function waits: two windows of its profile. The first that mostly
computes ends the doubt, for in isolates all of them seemed to wait."""
_UNSEEN_NS = 50_000_000
"""CPU time of calls in threads, 32 at most, that show what a function does with the GIL. Long calls show it
sooner. Not measured."""
_PASSING = (PlacementReason.LEARNING, PlacementReason.TRIAL, PlacementReason.FORCED)
"""Reasons of choices that are not kept from one run to the next."""


def key_of(size: int, largest: int, together: int) -> int:
    """Return what inputs of one class have in common: the bits of length, largest number and all numbers."""
    return (together << _WIDTH | largest) << 8 | size.bit_length()


class NotInline:
    """What `run_inline` returns of a call that it did not run.

    Attributes:
        room_ns: The room that the call needs in a later turn of the loop; 0: it may not run there.
    """

    __slots__ = ("room_ns",)

    def __init__(self, room_ns: int = 0) -> None:
        self.room_ns = room_ns


class SizeClass(Figures):
    """What is known about inputs of one size, and where they run.

    Attributes:
        carried_cold: Calls for which an isolate was started, and whose times tell nothing.
        cold_in_a_row: Those for which one was started since the last that found one.
        later: What tells of one that may run on the loop, but not in this turn.
        choice: Where they run, and why.
        doubts: Calls that go to a thread to show what they do there.
        doubted_at: `choice.again_at` when that was doubted last.
        judged_at: Calls measured or carried when that was decided last.
        retried_at: `choice.again_at` of the last time when the other place was tried again.
    """

    __slots__ = (
        "carried_cold", "choice", "cold_in_a_row", "doubted_at", "doubts", "judged_at", "key", "later",
        "retried_at",
    )  # fmt: skip

    def __init__(self, key: int, choice: Choice) -> None:
        super().__init__()
        self.key = key
        self.choice = choice
        self.later = NotInline()
        self.judged_at = self.retried_at = self.carried_cold = self.cold_in_a_row = 0
        self.doubts = self.doubted_at = 0

    def evidence(
        self, size: Size, profile: Profile, *, on_loop: bool, portable: bool, crowd: bool
    ) -> Evidence:
        """Return what a choice rests on; the last three are as `Evidence` has them, `on_loop` as `Router`."""
        waits = profile.kind is Kind.WAITING
        gil = profile.gil.name(waits=waits)
        away = self.choice.where == "isolate" and self.carried
        return Evidence(
            calls=self.calls,
            measured=self.measured,
            cpu_ns=self.child_cpu_ns if away else self.cpu_ns,
            wait_ns=min(profile.wait_mean_ns, self.blocked_most_ns) if waits else 0,
            blocked_ns=self.blocked_ns,
            longest_ns=self.longest_ns,
            small=on_loop and self.key != UNSIZED,
            portable=portable,
            classed=gil in (GilClass.HOLDS, GilClass.COOPERATES),
            holds=gil is GilClass.HOLDS,
            parallel=profile.leaves_gil,
            waits=waits,
            crowd=crowd,
            size=0 if size is None else size[0],
            carried=self.carried,
            carry_ns=self.carry_ns,
            child_cpu_ns=self.child_cpu_ns,
            hop_ns=self.hop_ns,
        )

    def was_cold(self, isolates: int) -> bool:
        """Take in that an isolate was started for a call; return True if that is now what calls find.

        One that tells nothing was no try of the other place either.

        Args:
            isolates: How many may start at once, for as many calls.
        """
        self.cold_in_a_row += 1
        is_away = self.choice.where == "isolate"
        if self.cold_in_a_row <= (max(_COLD, isolates) if is_away else _COLD):
            self.carried_cold += 1
            self.retried_at = self.retried_at if is_away else 0
            return False
        self._hop.clear()  # the least of those that found one is too little
        self.cold_in_a_row = self.cold_in_a_row if is_away else 0
        return True

    def doubt(self, *, classed: bool) -> None:
        """Send some calls to threads if what they do in isolates may be a mistake.

        They seem to wait there, but may only lack a core; or the function was never seen with the GIL, which
        it may leave to others.

        Args:
            classed: What the function does with the GIL has been seen.
        """
        choice = self.choice
        if choice.where != "isolate" or self.doubted_at == choice.again_at:
            return
        if self.may_wait_there:
            self.doubts, self.doubted_at = _DOUBTS, choice.again_at
        elif choice.reason is PlacementReason.SHARES_GIL and not classed:
            calls = int(_UNSEEN_NS / max(1.0, self.child_cpu_ns))
            self.doubts, self.doubted_at = min(_DOUBTS, calls), choice.again_at

    def worked(self, wall_ns: int, cpu_ns: int) -> None:
        """Take in a call in a worker thread."""
        super().worked(wall_ns, cpu_ns)
        if self.doubts and self.may_wait_there and wall_ns - cpu_ns < WAITING_SHARE * wall_ns:
            self.doubts = 0

    def know_room(self) -> None:
        """Tell from now on what room a call needs by the last ones in a worker."""
        self.later = NotInline(self.longest_ns + HANDLING_NS)

    # ------------------------------------------------------------------ told

    def placement(self, calls: int, choice: Choice, *, tried: bool, paused: bool) -> SizePlacement:
        """Return the public view, by what was copied under the lock."""
        is_away = paused and choice.where == "inline"
        sized, prices = self.key != UNSIZED, choice.prices
        return SizePlacement(
            size_max=(1 << (self.key & 255)) - 1 if sized else None,
            number_max=(1 << (self.key >> 8 & _BITS)) - 1 if sized else None,
            where="thread" if is_away else choice.where,
            reason=PlacementReason.OVERRUN if is_away else choice.reason,
            calls=calls,
            inline=_seconds(prices.inline),
            thread=_seconds(prices.thread),
            isolate=_seconds(prices.isolate),
            tried=tried,
        )

    # ------------------------------------------------------------------ kept

    def known(self) -> Record | None:
        """Return what is kept from one run to the next; None if it is not known where the calls run."""
        if self.choice.reason in _PASSING:
            return None
        prices = self.choice.prices
        return {
            "key": self.key,
            "where": self.choice.where,
            "reason": self.choice.reason,
            "prices": [prices.inline, prices.thread, prices.isolate],
            **self.to_record(),
        }

    @classmethod
    def from_known(cls, record: Record) -> SizeClass:
        """Return what was kept; the other place is tried again as after a choice.

        Raises:
            KeyError, TypeError, ValueError, OverflowError: It is no record of a size.
        """
        size_class = cls(int(record["key"]), Choice())
        size_class.restore(record)
        where, reason = record["where"], PlacementReason(record["reason"])
        if where not in get_args(Placement) or reason in _PASSING:
            raise ValueError(f"expected a place that was chosen, got {where!r} by {reason}")
        inline, thread, isolate = (None if price is None else float(price) for price in record["prices"])
        prices = Prices(inline=inline, thread=thread, isolate=isolate)
        again_at = size_class.calls + AGAIN
        size_class.choice = Choice(where=where, reason=reason, prices=prices, again_at=again_at)
        size_class.judged_at = size_class.measured + size_class.carried
        size_class.know_room()
        return size_class


def _seconds(price: float | None) -> float | None:
    return None if price is None else price / 1e9
