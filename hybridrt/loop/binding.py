"""Bindings: through which executor the calls of a loop go out, and how they come back."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import get_running_loop
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from hybridrt.executor.executor import AdaptiveThreadPoolExecutor
from hybridrt.isolates.context import Variables
from hybridrt.isolates.setup import Setup
from hybridrt.loop.call import LoopCall
from hybridrt.loop.completions import completions_of, forget_closed, forget_idle
from hybridrt.loop.first_calls import HeldCalls
from hybridrt.loop.inline import Turn
from hybridrt.loop.submitters import watch_submitter
from hybridrt.observe.functions import Profile
from hybridrt.pool.protocols import Placed
from hybridrt.pool.state import QUEUED, Pool

__all__ = [
    "LoopBinding",
    "close_private_executor",
    "current_binding",
    "has_binding",
    "known_binding",
    "make_call",
    "private_executor",
    "running_loop",
    "set_binding",
]

_SHOWN_MAX = 8
"""Routers of one function that are in the statistics at most, the first and those shown last: each set of
options has its own, and so has a function that is decorated anew for each request. Not tuned."""
_PLACED_MAX = 512
"""Functions that are in the statistics by their routers at most, as many as have profiles."""


class LoopBinding:
    """Where the calls of one loop go out and come back.

    Args:
        loop: The loop.
        executor: Runs its calls.
        call_type: What its calls are; those of another type than the usual one run where they are made.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: AdaptiveThreadPoolExecutor,
        call_type: type[LoopCall] = LoopCall,
    ) -> None:
        self.loop = loop
        self.executor = executor
        self.pool: Pool = executor._pool
        self.call_type = call_type
        self.at_once = call_type is not LoopCall
        self.copies_context = executor._copies_context
        self.completions = completions_of(loop)
        self.turn = Turn(loop)
        self.placed = self.pool.placed
        self.watched = self.pool.hooks.on_event is not None
        clock = self.pool.budget.clock
        self.wall_ns, self.cpu_ns = clock.wall_ns, clock.cpu_ns
        self.held = HeldCalls(loop)
        """First calls of functions, until it is known where they run."""
        self.warming: set[LoopCall] = set()
        """Calls that start isolates ahead of those that need them."""
        self.setup: Setup | None = None
        """Prepares the isolates of its calls; None for what all have."""
        self.variables: Variables = ()
        """Context variables that cross to isolates."""
        self.isolate_routes: dict[tuple[str, int], Any] = {}
        """The ways of functions to their isolates, by the isolation and the identity of the function,
        which a line keeps alive."""

    def show(self, fn: Callable[..., Any], placed: Placed) -> None:
        """Have the calls of a function seen in the statistics of the pool."""
        profile = self.pool.profiles.of(fn)
        _, shown = self.placed.get(profile.key, (profile, ()))
        if placed not in shown:
            # The first is kept: it has no end, as a rule.
            shown = (*shown[:1], *shown[1:][2 - _SHOWN_MAX :], placed)
        self.placed.pop(profile.key, None)
        self.placed[profile.key] = (profile, shown)
        for key in tuple(self.placed)[:-_PLACED_MAX]:
            self.placed.pop(key, None)

    def with_events(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function so that a call of it here and now has its events."""
        pool = self.pool
        return pool.hooks.inline(fn, pool.profiles.of(fn).name, pool.budget.clock)


def make_call(
    loop_binding: LoopBinding,
    fn: Callable[..., Any],
    profile: Profile,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> LoopCall:
    """Return a call of a function through the binding of the running loop; `go` submits it."""
    call = loop_binding.call_type(loop=loop_binding.loop)
    call.state = QUEUED
    call.fn = fn
    call.args = args
    call.kwargs = kwargs
    call.context = copy_context() if loop_binding.copies_context else None
    call.completions = loop_binding.completions
    call.pool = loop_binding.pool
    call.profile = profile
    return call


_bindings: dict[asyncio.AbstractEventLoop, LoopBinding] = {}
known_binding: Callable[[asyncio.AbstractEventLoop | None], LoopBinding | None] = _bindings.get  # type: ignore[assignment]
"""Return the binding of a loop that has one already, for the price of the lookup."""
_private: AdaptiveThreadPoolExecutor | None = None
_private_lock = threading.Lock()


def current_binding() -> LoopBinding:
    """Return the binding of the running loop; without a runtime, one to the private executor.

    Raises:
        RuntimeError: No event loop is running.
    """
    try:
        loop_binding = _bindings.get(loop := get_running_loop())
    except RuntimeError:
        running_loop()  # says what is missing
        raise
    if loop_binding is None:
        forget_idle(_bindings, lambda known: known.completions.governed)
        loop_binding = _bindings[loop] = LoopBinding(loop, private_executor())
        watch_submitter(loop_binding.completions, loop_binding.executor._pool)
    return loop_binding


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop.

    Raises:
        RuntimeError: There is none.
    """
    try:
        return get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(f"{error}; hybridrt needs one of asyncio or uvloop in this thread") from None


def set_binding(
    loop: asyncio.AbstractEventLoop, loop_binding: LoopBinding | None, *, abandon_on_cancel: bool = False
) -> None:
    """Let the loop's calls go through `loop_binding`; None goes back to the private executor.

    `abandon_on_cancel` is what cancelling does to a running call whose function does not say.
    """
    forget_closed(_bindings)
    completions = completions_of(loop)
    completions.abandon_on_cancel, completions.governed = abandon_on_cancel, loop_binding is not None
    if loop_binding is None:
        _bindings.pop(loop, None)
    else:
        _bindings[loop] = loop_binding


def has_binding(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if a runtime serves the loop."""
    loop_binding = _bindings.get(loop)
    return loop_binding is not None and loop_binding.executor is not _private


def private_executor() -> AdaptiveThreadPoolExecutor:
    """Return the executor of `@offload` where no runtime is; shared by all loops."""
    global _private
    with _private_lock:
        if _private is None:
            _private = AdaptiveThreadPoolExecutor(thread_name_prefix="hybridrt-private")
        return _private


def close_private_executor() -> None:
    """Let the private executor's calls end and drop it; the next use makes a new one."""
    global _private
    with _private_lock:
        executor, _private = _private, None
    for loop, loop_binding in list(_bindings.items()):
        if loop_binding.executor is executor:
            del _bindings[loop]
    if executor is not None:
        executor.shutdown()


def _start_clean() -> None:
    global _private_lock
    _private_lock = threading.Lock()
    for loop_binding in _bindings.values():
        loop_binding.isolate_routes.clear()  # the pools of isolates have forgotten who uses them


if hasattr(os, "register_at_fork"):
    # Held across the fork like the shared lock, which is taken after it, here as elsewhere; the
    # child gets a new one, because the thread that would release the old one is not there.
    os.register_at_fork(
        before=lambda: _private_lock.acquire(),
        after_in_parent=lambda: _private_lock.release(),
        after_in_child=_start_clean,
    )
