"""Isolates that run calls in a thread and cost what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hybridrt.errors import NotPortableError
from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.loop.binding import LoopBinding, current_binding
from hybridrt.loop.call import LoopCall
from hybridrt.loop.router import Router
from hybridrt.pool.state import QUEUED

__all__ = ["Isolates", "show_holding", "show_releasing"]


class Isolates:
    """Stands in for `isolated_call`.

    Args:
        carry: CPU seconds here for carrying a call.
        cpu: CPU seconds of the call there.

    Attributes:
        calls: Calls carried, as far as the arguments.
        refuses: Why a function cannot be carried; "" lets all pass.
        loses: Why a result cannot be carried back; "" lets all pass.
        fails: What keeps isolates from starting; None lets all start.
        isolation: What was asked for last.
        spills: Whether the last call may run elsewhere if no isolate comes free.
    """

    def __init__(self, carry: float, cpu: float) -> None:
        self.carry, self.cpu = carry, cpu
        self.calls = 0
        self.spills = False
        self.refuses = self.loses = self.isolation = ""
        self.fails: Exception | None = None

    def __call__(
        self,
        loop_binding: LoopBinding,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        isolation: str,
        on_round_trip: Callable[[RoundTrip], object],
        *,
        spills: bool,
    ) -> LoopCall:
        """Make the call."""
        self.isolation, self.spills = isolation, spills
        if self.refuses:
            raise NotPortableError(self.refuses)

        def carry(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.fails is not None:
                raise self.fails
            if self.loses:
                raise NotPortableError(self.loses)
            on_round_trip(self._round_trip())
            return args[0] if args else None

        call = LoopCall(loop=loop_binding.loop)
        call.state, call.fn, call.args, call.kwargs, call.context = QUEUED, carry, args, kwargs, None
        call.completions, call.pool, call.profile = (
            loop_binding.completions,
            loop_binding.pool,
            loop_binding.pool.profiles.of(carry),
        )
        return call

    def warm_up(self, loop_binding: LoopBinding, router: Router, isolation: str) -> None:
        """Start none ahead."""
        router.wants_isolates, router.warmed = False, True

    def _round_trip(self) -> RoundTrip:
        carry_ns, cpu_ns = int(self.carry * 1e9), int(self.cpu * 1e9)
        return RoundTrip(
            wall_ns=carry_ns + cpu_ns,
            host_cpu_ns=carry_ns,
            child_wall_ns=cpu_ns,
            child_cpu_ns=cpu_ns,
            cold=self.calls == 1,
        )


def show_holding(fn: Callable[..., Any]) -> None:
    """Let the running loop's pool have seen a function hold the GIL."""
    profile = current_binding().pool.profiles.of(fn)
    for _ in range(16):
        profile.gil.saw_taken(16_000_000, 100_000)


def show_releasing(fn: Callable[..., Any]) -> None:
    """Let it have seen that the function leaves the GIL to others."""
    profile = current_binding().pool.profiles.of(fn)
    for _ in range(64):
        profile.saw_free()
