"""Where each call of one function runs: the law is asked with the figures, and the call runs by its answer.

The figures are in `SizeClass`, the law in `control.placement`; the feedback between them is closed here.

One `Router` belongs to one function, whatever loops and executors its calls come from. Calls that ran in a
worker or an isolate are booked under its lock, in their thread. A call on the loop books itself without it:
the counts of two loops may lose one another, and no choice depends on them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hybridrt.control.placement import (
    Choice,
    Machine,
    decide,
    is_due,
    is_settled,
    next_place,
    wants_isolate,
)
from hybridrt.errors import HybridrtError, WorkerLostError
from hybridrt.loop.first_calls import FirstCalls
from hybridrt.loop.inline import HANDLING_NS, TURN_NS
from hybridrt.loop.size_class import NotInline, SizeClass, key_of
from hybridrt.measure.gil import switch_interval_ns
from hybridrt.observe.function_name import identify
from hybridrt.observe.placement import INLINE_MAX_NS, SIZED, UNSIZED, Overruns, Size, measure
from hybridrt.placements import Placement, PlacementReason, PlacementStatistics
from hybridrt.pool.lock import without_convoy
from hybridrt.remembered import Remembered, remembered

if TYPE_CHECKING:
    from hybridrt.isolates.round_trip import RoundTrip
    from hybridrt.loop.binding import LoopBinding
    from hybridrt.observe.functions import Profile

__all__ = ["Router", "keep_all"]

_NOT_INLINE: Any = NotInline()
_SIZE_CLASSES_MAX = 256
"""Sizes told apart; numbers of any magnitude could make more,"""
_BEYOND = 1024
"""and calls of such until the sizes with the fewest calls, a quarter of all, make room. Not tuned."""
_BARRED, _BARRED_MAX = 256, 1 << 16
"""Calls in threads after one that could not be carried until one is again: the first time, and at most. Each
time doubles them. Not measured."""
_LOST_MAX = 8
"""Calls in a row that find but isolates that end as they start, until the next ones stay in threads. Not
measured."""
_KEPT_MAX = 32
"""Sizes of a function that are kept from one run to the next, the most used ones."""
_routers: WeakSet[Router] = WeakSet()


class Router:
    """Places the calls of one function.

    Args:
        fn: The function.
        forced: Where all its calls run; None chooses.
        on_loop: Calls may run on the loop.

    Attributes:
        first: Who may run while nothing is known.
        wants_isolates: Calls will run in isolates soon, as far as is known, and none was started ahead yet.
        warming_calls: Those that start isolates for them, of the warm-up begun last.
        warmed: That has begun.
    """

    def __init__(self, fn: Callable[..., Any], *, forced: Placement | None, on_loop: bool) -> None:
        self.fn = fn
        self.forced = forced
        self.on_loop = on_loop
        self._first_choice = (
            Choice() if forced is None else Choice(where=forced, reason=PlacementReason.FORCED)
        )
        self._part = "placement" if on_loop else "placement_off_loop"
        """Under which name it is kept: with other options other places are chosen."""
        self.not_portable: str | None = None
        self.first = FirstCalls()
        self.wants_isolates = self.warmed = False
        self.warming_calls: tuple[asyncio.Future[Any], ...] = ()
        self.overruns = Overruns()
        self._lock = Lock()
        self._barred, self._bar = 0, _BARRED
        """Calls until one is carried again, and how many that will be the next time."""
        _routers.add(self)
        self._lost = 0
        """Calls in a row for which isolates were started and ended at once."""
        self._told: object = None
        """Where it was noted last for the statistics."""
        self._size_classes: dict[int, SizeClass] = {}
        self._inline: dict[int, SizeClass] = {}
        """Those of them whose calls may run on the loop; none while it pauses for an overrun."""
        self._largest = -1
        self._beyond = 0
        """Calls of sizes for which there was no room."""
        self._forgotten = SizeClass(UNSIZED, Choice())
        """The calls of those that made room, in sum."""
        self.restore(remembered)

    @property
    def warming(self) -> bool:
        """Isolates are being started for the function; those of a loop that was closed are not waited for."""
        calls = self.warming_calls
        if calls and all(call.done() or call.get_loop().is_closed() for call in calls):
            self.warming_calls = calls = ()  # they keep their loop
        return bool(calls)

    # ------------------------------------------------------------------ on the loop

    def run_inline(
        self,
        loop_binding: LoopBinding,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        charge_ns: int = HANDLING_NS,
    ) -> Any:
        """Run a call here if it may, or return a `NotInline`.

        `charge_ns` is what it takes of the turn beside itself; less if it has waited for room in it.
        """
        turn, one = loop_binding.turn, len(args) == 1 and not kwargs
        if self._told is not loop_binding.placed:
            self._told = loop_binding.placed
            loop_binding.show(self.fn, self)
        if self.forced is None:
            if one and type(args[0]) in SIZED:  # the common case of `measure`
                size = len(args[0])
                size_class = self._inline.get(size.bit_length())
            else:
                sizes = measure(args, kwargs)
                if sizes is None:
                    return _NOT_INLINE
                size = sizes[0]
                size_class = self._inline.get(key_of(*sizes))
            if size_class is None or size > self._largest:
                return _NOT_INLINE
            if turn.spent_ns >= TURN_NS and charge_ns == HANDLING_NS:
                return size_class.later
        elif self.forced == "inline":
            size_class = self.size_class(None)
        else:
            return _NOT_INLINE
        fn = self.fn if not loop_binding.watched else loop_binding.with_events(self.fn)
        wall = loop_binding.wall_ns
        start = wall()
        if start > turn.mark_until_ns:
            turn.mark(start, loop_binding.cpu_ns())
        try:
            if one:  # unpacking costs more
                return copy_context().run(fn, args[0])
            return copy_context().run(fn, *args, **kwargs)
        finally:
            took = wall() - start
            size_class.inline_calls += 1
            size_class.inline_wall_ns += took
            spent = turn.spent_ns = turn.spent_ns + took + charge_ns
            if spent >= turn.notice_ns:
                turn.notice()
            if took > INLINE_MAX_NS:
                computed = loop_binding.cpu_ns() - turn.marked_cpu_ns - (start - turn.marked_ns)
                self._took_long(took, computed, turn.waits())
                turn.mark_until_ns = 0  # the next is to be known exactly

    def _took_long(self, wall_ns: int, cpu_ns: int, waits: int | None) -> None:
        """Book an overrun, unless the call was only kept from the GIL or a core."""
        with without_convoy(self._lock):
            calls = sum(size_class.inline_calls for size_class in self._all())
            if self.overruns.is_one(wall_ns, cpu_ns, waits, switch_interval_ns(), calls):
                self.overruns.note(wall_ns, calls, pauses=self.forced is None)
                self._admit()

    # ------------------------------------------------------------------ elsewhere

    def size_class(self, size: Size) -> SizeClass:
        """Return what is known about inputs of a size."""
        key = UNSIZED if size is None else key_of(*size)
        size_class = self._size_classes.get(key)
        if size_class is None:
            with without_convoy(self._lock):
                if len(self._size_classes) >= _SIZE_CLASSES_MAX and key not in self._size_classes:
                    key = self._key_beyond(key)
                size_class = self._size_classes.setdefault(key, SizeClass(key, self._first_choice))
        return size_class

    def _key_beyond(self, key: int) -> int:
        """Return the key of inputs without a size, or now and then `key`, for which others make room."""
        self._beyond += 1
        if self._beyond % _BEYOND:
            return UNSIZED
        sized = (size_class for size_class in self._size_classes.values() if size_class.key != UNSIZED)
        for size_class in sorted(sized, key=lambda each: each.calls)[: _SIZE_CLASSES_MAX // 4]:
            self._forgotten.inline_calls += size_class.inline_calls
            self._forgotten.inline_wall_ns += size_class.inline_wall_ns
            self._forgotten.carried += size_class.carried + size_class.carried_cold
            del self._size_classes[size_class.key]
        self._admit()
        return key

    def _all(self) -> tuple[SizeClass, ...]:
        return (self._forgotten, *self._size_classes.values())

    def is_decided(self, size_class: SizeClass) -> bool:
        """Return True if it is known where calls of a size run, and they can run there now."""
        return is_settled(size_class.choice, warming=self.warming)

    def choose(self, size_class: SizeClass) -> Placement:
        """Return where a call runs that does not run on the loop: "thread" or "isolate"."""
        choice = size_class.choice
        if self.overruns.left:
            with without_convoy(self._lock):
                self.overruns.left = max(0, self.overruns.left - 1)
                self._admit()
        if size_class.doubts > 0:
            size_class.doubts -= 1
            return "thread"
        where, retries = next_place(
            choice,
            calls=size_class.calls,
            carried=size_class.carried,
            retried_at=size_class.retried_at,
            warming=self.warming,
        )
        if retries:
            size_class.retried_at = choice.again_at
        return where

    def work(
        self,
        size_class: SizeClass,
        size: Size,
        loop_binding: LoopBinding,
        profile: Profile,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Run a call in a worker thread, and measure it."""
        cpu, wall = loop_binding.cpu_ns, loop_binding.wall_ns
        cpu_start, start = cpu(), wall()
        try:
            return self.fn(*args, **kwargs)
        finally:
            took, computed = wall() - start, cpu() - cpu_start
            with without_convoy(self._lock):
                size_class.worked(took, computed)
                if size is not None:
                    self._largest = max(self._largest, size[0])
                self._judge(size_class, size, loop_binding, profile)
                size_class.know_room()

    def crossed(
        self,
        size_class: SizeClass,
        size: Size,
        loop_binding: LoopBinding,
        profile: Profile,
        round_trip: RoundTrip,
    ) -> None:
        """Take in what it cost to carry a call to an isolate and back."""
        with without_convoy(self._lock):
            self._lost = 0
            if not self._barred:
                self.not_portable, self._bar = None, max(_BARRED, self._bar // 2)
            if not round_trip.cold:
                size_class.cold_in_a_row = 0
            elif not size_class.was_cold(loop_binding.pool.budget.cores):
                return
            size_class.crossed(
                carry_ns=round_trip.host_cpu_ns,
                child_cpu_ns=round_trip.child_cpu_ns,
                child_wall_ns=round_trip.child_wall_ns,
                hop_ns=max(0, round_trip.wall_ns - round_trip.child_wall_ns),
            )
            self._judge(size_class, size, loop_binding, profile)

    def no_isolate_lasted(self, error: WorkerLostError) -> None:
        """Note that a call found but isolates that ended as they started; each such attempt takes long."""
        self._lost += 1
        if self._lost >= _LOST_MAX:
            self._lost = 0
            self.stay(error)

    def stay(self, error: HybridrtError) -> None:
        """Carry no more calls for a while: one could not be."""
        with without_convoy(self._lock):
            if not self._barred:  # else several were on their way
                self._barred, self._bar = self._bar, min(2 * self._bar, _BARRED_MAX)
            self.not_portable = str(error)
            for size_class in self._size_classes.values():
                if size_class.choice.where == "isolate":
                    reason = PlacementReason.NOT_PORTABLE
                    size_class.choice = replace(size_class.choice, where="thread", reason=reason)

    def _judge(self, size_class: SizeClass, size: Size, loop_binding: LoopBinding, profile: Profile) -> None:
        """Choose anew for a size, of which a call has ended; the lock is held."""
        if self._barred:
            self._barred -= 1
        seen = size_class.measured + size_class.carried
        if self.forced is not None or not is_due(size_class.choice, seen, size_class.judged_at):
            return
        size_class.judged_at = seen
        budget = loop_binding.pool.budget
        machine = Machine(cores=budget.cores, gil=budget.gil)
        evidence = size_class.evidence(
            size,
            profile,
            on_loop=self.on_loop,
            portable=not self._barred,
            crowd=self.first.held > 0,
        )
        size_class.choice = decide(size_class.choice, evidence, machine)
        size_class.doubt(classed=evidence.classed)
        if machine.gil and not self.warmed and wants_isolate(size_class.choice, evidence):
            self.wants_isolates = True
        self._admit()

    def _admit(self) -> None:
        """Let calls run on the loop by what was decided last; the lock is held."""
        size_classes = () if self.overruns.left else self._size_classes.values()
        self._inline = {
            size_class.key: size_class for size_class in size_classes if size_class.choice.where == "inline"
        }

    # ------------------------------------------------------------------ kept

    def keep(self, kept: Remembered) -> None:
        """Note what is known in what outlives the process."""
        if self.forced is not None:
            return
        with without_convoy(self._lock):
            used = sorted(self._size_classes.values(), key=lambda size_class: -size_class.calls)
            records = [size_class.known() for size_class in used[:_KEPT_MAX]]
            largest = self._largest
        known = [record for record in records if record is not None]
        if known:
            key, name, _ = identify(self.fn)
            kept.add(name, key, self._part, {"largest": largest, "sizes": known})

    def restore(self, kept: Remembered) -> None:
        """Begin with what was known before."""
        if self.forced is not None or kept.is_empty:
            return
        key, name, _ = identify(self.fn)
        record = kept.of(name, key).get(self._part)
        if record is None:
            return
        try:
            size_classes = [SizeClass.from_known(one) for one in record["sizes"][:_KEPT_MAX]]
            self._largest = int(record["largest"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            kept.warn(name, error)
            return
        self._size_classes.update((size_class.key, size_class) for size_class in size_classes)
        self._admit()

    # ------------------------------------------------------------------ told

    @property
    def inline_ns(self) -> int:
        """Return for how long calls on the loop have kept it, in sum."""
        return sum(size_class.inline_wall_ns for size_class in self._all())

    def statistics(self) -> PlacementStatistics:
        """Return the public view."""
        with without_convoy(self._lock):  # a loop may wait for it, so nothing is built here
            size_classes = [
                (size_class, size_class.calls, size_class.choice, size_class.carried > 0)
                for size_class in self._size_classes.values()
            ]
            inline_calls = sum(size_class.inline_calls for size_class in self._all())
            inline_ns = self.inline_ns
            isolate_calls = sum(size_class.carried + size_class.carried_cold for size_class in self._all())
            overruns, longest_ns, left = self.overruns.count, self.overruns.longest_ns, self.overruns.left
        size_classes.sort(key=lambda row: -row[1])
        return PlacementStatistics(
            inline_calls=inline_calls,
            inline_wall=inline_ns / 1e9,
            overruns=overruns,
            longest_overrun=longest_ns / 1e9,
            paused=left,
            isolate_calls=isolate_calls,
            not_portable=self.not_portable,
            sizes=tuple(
                size_class.placement(calls, choice, tried=tried, paused=left > 0)
                for size_class, calls, choice, tried in size_classes
            ),
            held=self.first.held,
        )


def keep_all(kept: Remembered) -> None:
    """Note what is known about all functions."""
    # A list at once: iterating a `WeakSet` fails when a function is decorated in another thread.
    for reference in list(_routers.data):  # type: ignore[attr-defined]  # typeshed does not know
        if (router := reference()) is not None:
            router.keep(kept)


def _start_clean() -> None:
    """Free all locks in a forked child, where those who hold them are not."""
    for router in list(_routers):
        router._lock = Lock()
        router.first = FirstCalls()
        router.wants_isolates = router.warmed = False
        router.warming_calls = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_clean)
