"""Where each call of one function runs: the figures, the choice made of them, and the run on the loop.

One `Placing` belongs to one function, whatever loops and executors its calls come from. Calls that ran in a
worker or an isolate are booked under its lock, in their thread. A call on the loop books itself without it:
the counts of two loops may lose one another, and no choice depends on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hybridrt.control.placement import Evidence, Machine, Prices, Standing, decide, wants_isolate
from hybridrt.errors import NotPortableError
from hybridrt.loop.first_calls import FirstCalls
from hybridrt.loop.inline import HANDLING_NS, TURN_NS
from hybridrt.loop.remembering import SPOTS_MAX, spot_record, standing_of
from hybridrt.measure.gil import switch_interval_ns
from hybridrt.observe.naming import identify
from hybridrt.observe.placement import INLINE_MAX_NS, SIZED, UNSIZED, Figures, Overruns, Size, measure
from hybridrt.placements import Placement, PlacementReason, PlacementStatistics, SizePlacement
from hybridrt.pool.lock import patiently
from hybridrt.remembered import Record, Remembered, remembered
from hybridrt.values import GilClass, Kind

if TYPE_CHECKING:
    from hybridrt.loop.port import Port
    from hybridrt.observe.functions import Profile
    from hybridrt.pool.isolates.crossing import Crossing

__all__ = ["Elsewhere", "Placing", "Spot", "keep_all"]


class Elsewhere:
    """What `run_inline` returns of a call that it did not run.

    Attributes:
        room_ns: The room that the call needs in a later turn of the loop; 0: it may not run there.
    """

    __slots__ = ("room_ns",)

    def __init__(self, room_ns: int = 0) -> None:
        self.room_ns = room_ns


_ELSEWHERE: Any = Elsewhere()
_SPOTS_MAX = 256
"""Sizes told apart; numbers of any magnitude could make more."""
_WIDTH = 24
_BITS = (1 << _WIDTH) - 1
"""Room for the bits of the largest number in the key of a class; a number of two megabytes fits."""
_OFTEN = 8
"""The first calls of a size are all judged, then one in so many."""
_placings: WeakSet[Placing] = WeakSet()


class Spot(Figures):
    """What is known about inputs of one size, and where they run.

    Attributes:
        carried_cold: Calls for which an isolate was started; their times tell nothing.
        later: What tells of one that may run on the loop, but not in this turn.
        standing: Where they run, and why.
        judged_at: Calls measured or carried when that was decided last.
        retried_at: `standing.again_at` of the last time when the other place was tried again.
    """

    __slots__ = ("carried_cold", "judged_at", "key", "later", "retried_at", "standing")

    def __init__(self, key: int, standing: Standing) -> None:
        super().__init__()
        self.key = key
        self.standing = standing
        self.later = Elsewhere()
        self.judged_at = self.retried_at = 0
        self.carried_cold = 0

    @property
    def size_max(self) -> int | None:
        """The largest size of the class; None where sizes cannot be told."""
        return None if self.key == UNSIZED else (1 << (self.key & 255)) - 1

    @property
    def number_max(self) -> int | None:
        """The largest number of the class."""
        return None if self.key == UNSIZED else (1 << (self.key >> 8 & _BITS)) - 1


class Placing:
    """Places the calls of one function.

    Args:
        fn: The function.
        forced: Where all its calls run; None chooses.
        on_loop: Calls may run on the loop.

    Attributes:
        first: Who may run while nothing is known.
        wants_isolates: Calls will run in isolates soon, as far as is known, and none was started ahead yet.
        warming: Isolates are being started for them.
        warmed: That has begun.
    """

    def __init__(self, fn: Callable[..., Any], *, forced: Placement | None, on_loop: bool) -> None:
        self.fn = fn
        self.forced = forced
        self.on_loop = on_loop
        self.not_portable: str | None = None
        self.first = FirstCalls()
        self.wants_isolates = self.warming = self.warmed = False
        self.overruns = Overruns()
        self._lock = Lock()
        _placings.add(self)
        self._told: object = None
        """Where it was noted last for the statistics."""
        self._spots: dict[int, Spot] = {}
        self._inline: dict[int, Spot] = {}
        """Those of them whose calls may run on the loop; none while it pauses for an overrun."""
        self._largest = -1
        self.restore(remembered)

    # ------------------------------------------------------------------ on the loop

    def run_inline(
        self, port: Port, args: tuple[Any, ...], kwargs: Mapping[str, Any], charge_ns: int = HANDLING_NS
    ) -> Any:
        """Run a call here if it may, or return an `Elsewhere`.

        Args:
            port: Of the running loop.
            args: Positional arguments.
            kwargs: Keyword arguments.
            charge_ns: What it takes of the turn beside itself; where it has waited for room in this turn,
                less by that.
        """
        turn, one = port.turn, len(args) == 1 and not kwargs
        if self._told is not port.placed:
            self._tell(port)
        if self.forced is None:
            if one and type(args[0]) in SIZED:  # the common case of `measure`
                size = len(args[0])
                spot = self._inline.get(size.bit_length())
            else:
                sizes = measure(args, kwargs)
                if sizes is None:
                    return _ELSEWHERE
                size = sizes[0]
                spot = self._inline.get(_key(*sizes))
            if spot is None or size > self._largest:
                return _ELSEWHERE
            if turn.spent_ns >= TURN_NS and charge_ns == HANDLING_NS:
                return spot.later
        elif self.forced == "inline":
            spot = self.spot(None)
        else:
            return _ELSEWHERE
        fn = self.fn if not port.watched else self._watched(port)
        wall = port.wall_ns
        start = wall()
        if start > turn.mark_until_ns:
            turn.mark(start, port.cpu_ns())
        try:
            if one:  # unpacking costs more
                return copy_context().run(fn, args[0])
            return copy_context().run(fn, *args, **kwargs)
        finally:
            took = wall() - start
            spot.inline_calls += 1
            spot.inline_wall_ns += took
            spent = turn.spent_ns = turn.spent_ns + took + charge_ns
            if spent >= turn.notice_ns:
                turn.notice()
            if took > INLINE_MAX_NS:
                computed = port.cpu_ns() - turn.marked_cpu_ns - (start - turn.marked_ns)
                self._took_long(took, computed, turn.waits())
                turn.mark_until_ns = 0  # the next is to be known exactly

    def _watched(self, port: Port) -> Callable[..., Any]:
        """Return the function so that a call of it here and now has its events."""
        pool = port.pool
        return pool.hooks.inline(self.fn, pool.profiles.of(self.fn).name, pool.interpreter.clock)

    def _tell(self, port: Port) -> None:
        """Be seen in the statistics of a pool."""
        profile = port.pool.profiles.of(self.fn)
        self._told = port.placed
        port.placed[profile.name] = (profile, self)

    def _took_long(self, wall_ns: int, cpu_ns: int, waits: int | None) -> None:
        """Book an overrun, unless the call was only kept from the GIL or a core."""
        with patiently(self._lock):
            calls = sum(spot.inline_calls for spot in self._spots.values())
            if self.overruns.is_one(wall_ns, cpu_ns, waits, switch_interval_ns(), calls):
                self.overruns.note(wall_ns, calls, pauses=self.forced is None)
                self._admit()

    # ------------------------------------------------------------------ elsewhere

    def spot(self, size: Size) -> Spot:
        """Return what is known about inputs of a size."""
        key = UNSIZED if size is None else _key(*size)
        spot = self._spots.get(key)
        if spot is None:
            with patiently(self._lock):
                key = UNSIZED if len(self._spots) >= _SPOTS_MAX else key
                spot = self._spots.setdefault(key, Spot(key, self._first_standing()))
        return spot

    def _first_standing(self) -> Standing:
        if self.forced is None:
            return Standing()
        return Standing(where=self.forced, reason=PlacementReason.FORCED)

    def is_decided(self, spot: Spot) -> bool:
        """Return True if it is known where calls of a size run, and they can run there now."""
        reason = spot.standing.reason
        return reason is not PlacementReason.LEARNING and not (
            self.warming and reason is PlacementReason.TRIAL
        )

    def choose(self, spot: Spot) -> Placement:
        """Return where a call runs that does not run on the loop: "thread" or "isolate"."""
        standing = spot.standing
        if self.overruns.left:
            with patiently(self._lock):
                self.overruns.left = max(0, self.overruns.left - 1)
                self._admit()
        where: Placement = "isolate" if standing.where == "isolate" else "thread"
        if self.warming and standing.reason is PlacementReason.TRIAL:
            return "thread"
        if self.forced is not None or spot.calls < standing.again_at or spot.retried_at == standing.again_at:
            return where
        spot.retried_at = standing.again_at
        if where == "isolate":
            return "thread"
        return "isolate" if standing.reason is PlacementReason.CARRYING and spot.carried else "thread"

    def work(self, spot: Spot, size: Size, port: Port, profile: Profile, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call in a worker thread, and measure it."""
        cpu, wall = port.cpu_ns, port.wall_ns
        cpu_start, start = cpu(), wall()
        try:
            return self.fn(*args, **kwargs)
        finally:
            took, computed = wall() - start, cpu() - cpu_start
            with patiently(self._lock):
                spot.worked(took, computed)
                if size is not None:
                    self._largest = max(self._largest, size[0])
                self._judge(spot, size, port, profile)
                spot.later = Elsewhere(spot.longest_ns + HANDLING_NS)

    def crossed(self, spot: Spot, size: Size, port: Port, profile: Profile, crossing: Crossing) -> None:
        """Take in what it cost to carry a call to an isolate and back."""
        with patiently(self._lock):
            if crossing.cold:
                spot.carried_cold += 1
                return
            spot.crossed(
                carry_ns=crossing.host_cpu_ns,
                child_cpu_ns=crossing.child_cpu_ns,
                hop_ns=max(0, crossing.wall_ns - crossing.child_wall_ns),
            )
            self._judge(spot, size, port, profile)

    def stay(self, error: NotPortableError) -> None:
        """Carry no more calls: one could not be."""
        with patiently(self._lock):
            self.not_portable = str(error)
            for spot in self._spots.values():
                if spot.standing.where == "isolate":
                    reason = PlacementReason.NOT_PORTABLE
                    spot.standing = replace(spot.standing, where="thread", reason=reason)

    def _judge(self, spot: Spot, size: Size, port: Port, profile: Profile) -> None:
        """Choose anew for a size; the lock is held."""
        seen = spot.measured + spot.carried
        learning = spot.standing.reason is PlacementReason.LEARNING
        if self.forced is not None or (not learning and _OFTEN < seen < spot.judged_at + _OFTEN):
            return
        spot.judged_at = seen
        interpreter = port.pool.interpreter
        machine = Machine(cores=interpreter.cores, gil=interpreter.gil)
        evidence = self._evidence(spot, size, profile)
        spot.standing = decide(spot.standing, evidence, machine)
        if machine.gil and not self.warmed and wants_isolate(spot.standing, evidence):
            self.wants_isolates = True
        self._admit()

    def _admit(self) -> None:
        """Let calls run on the loop by what was decided last; the lock is held."""
        spots = () if self.overruns.left else self._spots.values()
        self._inline = {spot.key: spot for spot in spots if spot.standing.where == "inline"}

    def _evidence(self, spot: Spot, size: Size, profile: Profile) -> Evidence:
        waits = profile.kind is Kind.WAITING
        gil = profile.gil.name(waits=waits)
        away = spot.standing.where == "isolate" and spot.carried
        return Evidence(
            calls=spot.calls,
            measured=spot.measured,
            cpu_ns=spot.child_cpu_ns if away else spot.cpu_ns,
            wait_ns=profile.wait_mean_ns if waits else 0,
            blocked_ns=spot.blocked_ns,
            longest_ns=spot.longest_ns,
            small=self.on_loop and spot.key != UNSIZED,
            portable=self.not_portable is None,
            classed=gil in (GilClass.HOLDS, GilClass.COOPERATES),
            holds=gil is GilClass.HOLDS,
            parallel=profile.leaves_gil,
            waits=waits,
            crowd=self.first.held > 0,
            size=0 if size is None else size[0],
            carried=spot.carried,
            carry_ns=spot.carry_ns,
            child_cpu_ns=spot.child_cpu_ns,
            hop_ns=spot.hop_ns,
        )

    # ------------------------------------------------------------------ kept

    def keep(self, kept: Remembered) -> None:
        """Note what is known in what outlives the process."""
        if self.forced is not None:
            return
        with patiently(self._lock):
            spots = sorted(self._spots.values(), key=lambda spot: -spot.calls)[:SPOTS_MAX]
            records = [spot_record(spot.key, spot, spot.standing) for spot in spots]
            largest = self._largest
        known = [record for record in records if record is not None]
        if known:
            key, name, _ = identify(self.fn)
            kept.add(name, key, _part(on_loop=self.on_loop), {"largest": largest, "sizes": known})

    def restore(self, kept: Remembered) -> None:
        """Begin with what was known before."""
        if self.forced is not None or kept.is_empty:
            return
        key, name, _ = identify(self.fn)
        record = kept.of(name, key).get(_part(on_loop=self.on_loop))
        if record is None:
            return
        try:
            spots = [self._restored(one) for one in record["sizes"][:SPOTS_MAX]]
            self._largest = int(record["largest"])
        except (KeyError, TypeError, ValueError) as error:
            kept.warn(name, error)
            return
        self._spots.update((spot.key, spot) for spot in spots)
        self._admit()

    @staticmethod
    def _restored(record: Record) -> Spot:
        spot = Spot(int(record["key"]), Standing())
        spot.restore(record)
        spot.standing = standing_of(record, spot.calls)
        spot.judged_at = spot.measured + spot.carried
        spot.later = Elsewhere(spot.longest_ns + HANDLING_NS)
        return spot

    # ------------------------------------------------------------------ told

    @property
    def inline_ns(self) -> int:
        """Return for how long calls on the loop have kept it, in sum."""
        return sum(spot.inline_wall_ns for spot in tuple(self._spots.values()))

    def statistics(self) -> PlacementStatistics:
        """Return the public view."""
        with patiently(self._lock):  # a loop may wait for it, so nothing is built here
            spots = [(spot, spot.calls, spot.standing, spot.carried > 0) for spot in self._spots.values()]
            inline_calls = sum(spot.inline_calls for spot, *_ in spots)
            inline_wall_ns = sum(spot.inline_wall_ns for spot, *_ in spots)
            isolate_calls = sum(spot.carried + spot.carried_cold for spot, *_ in spots)
            overruns, longest_ns, left = self.overruns.count, self.overruns.longest_ns, self.overruns.left
        spots.sort(key=lambda row: -row[1])
        return PlacementStatistics(
            inline_calls=inline_calls,
            inline_wall=inline_wall_ns / 1e9,
            overruns=overruns,
            longest_overrun=longest_ns / 1e9,
            paused=left,
            isolate_calls=isolate_calls,
            not_portable=self.not_portable,
            sizes=tuple(_size(*row, paused=left > 0) for row in spots),
            held=self.first.held,
        )


def _size(spot: Spot, calls: int, standing: Standing, tried: bool, *, paused: bool) -> SizePlacement:
    is_away = paused and standing.where == "inline"
    return SizePlacement(
        size_max=spot.size_max,
        number_max=spot.number_max,
        where="thread" if is_away else standing.where,
        reason=PlacementReason.OVERRUN if is_away else standing.reason,
        calls=calls,
        tried=tried,
        **_in_seconds(standing.prices),
    )


def keep_all(kept: Remembered) -> None:
    """Note what is known about all functions."""
    for placing in list(_placings):
        placing.keep(kept)


def _part(*, on_loop: bool) -> str:
    """Return under which name it is kept: with other options other places are chosen."""
    return "placement" if on_loop else "placement_off_loop"


def _key(size: int, largest: int, together: int) -> int:
    """Return what inputs of one class have in common: the bits of length, largest number and all numbers."""
    return (together << _WIDTH | largest) << 8 | size.bit_length()


def _in_seconds(prices: Prices) -> dict[str, float | None]:
    places = {"inline": prices.inline, "thread": prices.thread, "isolate": prices.isolate}
    return {name: None if price is None else price / 1e9 for name, price in places.items()}


def _start_clean() -> None:
    """Free all locks in a forked child, where those who hold them are not."""
    for placing in list(_placings):
        placing._lock = Lock()
        placing.first = FirstCalls()
        placing.wants_isolates = placing.warming = placing.warmed = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_clean)
