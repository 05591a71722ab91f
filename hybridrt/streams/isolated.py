"""Generators in isolates: when that is worth it, and how they are advanced there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from hybridrt.errors import NotPortableError
from hybridrt.isolates.child import inside
from hybridrt.isolates.context import crossing_context
from hybridrt.isolates.holder import Holder
from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.isolated_call import generator_step, isolate_route_of
from hybridrt.observe.functions import Profile
from hybridrt.streams.producer import SLICE_NS, Producer
from hybridrt.streams.steps import MakeStep
from hybridrt.values import GilClass, Isolation, Kind

__all__ = ["IsolatedProducer", "can_isolate", "hold", "is_worth_it"]

FAR_SLICE_NS = 5_000_000
"""After which a step in an isolate sends what there is. Not tuned."""
ENOUGH_NS = 50_000_000
"""What steps in threads must have taken in sum before anything is concluded from it,"""
EACH_NS = 50_000
"""and an item on average: carrying one costs some microseconds, a batch some hundred. Neither is tuned."""


def can_isolate(loop_binding: LoopBinding) -> bool:
    """Return True if steps may leave this interpreter: it is no isolate, and its calls have threads."""
    return not (inside() or loop_binding.at_once)


def is_worth_it(profile: Profile, ran_ns: int, items: int) -> bool:
    """Return True if a generator computes with the GIL, and for long enough an item to be carried away."""
    waits = profile.kind is Kind.WAITING
    holds = profile.gil.name(waits=waits) in (GilClass.HOLDS, GilClass.COOPERATES)
    return holds and not waits and ran_ns >= ENOUGH_NS and ran_ns >= EACH_NS * max(1, items)


def hold(
    loop_binding: LoopBinding,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    isolation: Isolation,
) -> tuple[Holder, MakeStep]:
    """Return what will keep an isolate for one generator, and makes its calls; none is taken yet.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """
    isolate_route = isolate_route_of(loop_binding, fn, isolation)
    variables = loop_binding.variables
    holder = Holder(
        isolate_route.reference,
        args,
        kwargs,
        isolate_route.isolate_pool,
        loop_binding.setup,
        variables,
        crossing_context(variables),
    )
    return holder, lambda loop_binding, run: generator_step(loop_binding, isolate_route, holder, run)


class IsolatedProducer(Producer):
    """Advances a generator in an isolate.

    Args:
        holder: Keeps the isolate.
        bound, wake: See `Producer`.
    """

    def __init__(self, holder: Holder, bound: int, wake: Callable[[], object]) -> None:
        super().__init__(bound, wake)
        self._holder = holder

    def _advance(self) -> None:
        until = time.perf_counter_ns() + SLICE_NS
        while not self.closing and len(self.items) < self._bound:
            self.open = True
            some, ended = self._holder.step(self._bound - len(self.items), FAR_SLICE_NS)
            self.items.extend(some)
            if self.wanted and some:
                self.wanted = False
                self._wake()
            if ended:
                self._end()
                self._holder.release()
                return
            if time.perf_counter_ns() > until:
                return

    def run(self) -> None:
        """Advance the generator until the buffer is full, the time slice is over or it ends."""
        try:
            super().run()
        except BaseException as error:
            try:
                if isinstance(error, NotPortableError):  # what it yields, and it stands where it was
                    self._holder.finish()
            finally:
                self._holder.release()
            raise

    def close(self) -> None:
        """Close the generator where it stands; raises what its `finally` raises."""
        try:
            self._holder.finish()
        finally:
            self._end()
            self._holder.release()
