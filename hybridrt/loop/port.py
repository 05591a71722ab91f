"""Ports: through which executor the calls of a loop go out, and how they come back."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import get_running_loop
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from hybridrt.loop.call import LoopCall
from hybridrt.loop.first_calls import HeldCalls
from hybridrt.loop.inline import Turn
from hybridrt.loop.outlet import forget_closed, outlet_of
from hybridrt.observe.functions import Profile
from hybridrt.pool.executor import AdaptiveThreadPoolExecutor
from hybridrt.pool.isolates.context import Variables
from hybridrt.pool.isolates.setup import Setup
from hybridrt.pool.state import QUEUED, Pool

__all__ = [
    "Port",
    "close_private_executor",
    "current_port",
    "has_port",
    "known_port",
    "make_call",
    "private_executor",
    "set_port",
]


class Port:
    """Where the calls of one loop go out and come back.

    Args:
        loop: The loop.
        executor: Runs its calls.
        call_type: What its calls are; those of another type than the usual one run where they are made.
    """

    __slots__ = (
        "__weakref__", "at_once", "call_type", "copies_context", "cpu_ns", "executor", "held", "lines",
        "loop", "outlet", "placed", "pool", "setup", "turn", "variables", "wall_ns", "warming", "watched",
    )  # fmt: skip

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
        self.outlet = outlet_of(loop)
        self.turn = Turn(loop)
        self.placed = self.pool.placed
        self.watched = self.pool.hooks.on_event is not None
        clock = self.pool.interpreter.clock
        self.wall_ns, self.cpu_ns = clock.wall_ns, clock.cpu_ns
        self.held = HeldCalls(loop)
        """First calls of functions, until it is known where they run."""
        self.warming: set[LoopCall] = set()
        """Calls that start isolates ahead of those that need them."""
        self.setup: Setup | None = None
        """Prepares the isolates of its calls; None for what all have."""
        self.variables: Variables = ()
        """Context variables that cross to isolates."""
        self.lines: dict[tuple[str, int], Any] = {}
        """The ways of functions to their isolates, by the isolation and the identity of the function,
        which a line keeps alive."""


def make_call(
    port: Port, fn: Callable[..., Any], profile: Profile, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LoopCall:
    """Return a call of a function through the port of the running loop; `go` submits it."""
    call = port.call_type(loop=port.loop)
    call.state = QUEUED
    call.fn = fn
    call.args = args
    call.kwargs = kwargs
    call.context = copy_context() if port.copies_context else None
    call.outlet = port.outlet
    call.pool = port.pool
    call.profile = profile
    return call


_ports: dict[asyncio.AbstractEventLoop, Port] = {}
known_port: Callable[[asyncio.AbstractEventLoop | None], Port | None] = _ports.get  # type: ignore[assignment]
"""Return the port of a loop that has one already, for the price of the lookup."""
_private: AdaptiveThreadPoolExecutor | None = None
_private_lock = threading.Lock()


def current_port() -> Port:
    """Return the port of the running loop; without a runtime, one to the private executor.

    Raises:
        RuntimeError: No event loop is running.
    """
    try:
        port = _ports.get(loop := get_running_loop())
    except RuntimeError as error:
        raise RuntimeError(f"{error}; hybridrt needs one of asyncio or uvloop in this thread") from None
    if port is None:
        forget_closed(_ports)
        port = _ports[loop] = Port(loop, private_executor())
    return port


def set_port(loop: asyncio.AbstractEventLoop, port: Port | None, *, abandon_on_cancel: bool = False) -> None:
    """Let the loop's calls go through `port`; None goes back to the private executor.

    Args:
        loop: The loop.
        port: Its calls go through this one.
        abandon_on_cancel: What cancelling does to a running call whose function does not say.
    """
    forget_closed(_ports)
    outlet_of(loop).abandon_on_cancel = abandon_on_cancel
    if port is None:
        _ports.pop(loop, None)
    else:
        _ports[loop] = port


def has_port(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether a runtime serves the loop."""
    port = _ports.get(loop)
    return port is not None and port.executor is not _private


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
    for loop, port in list(_ports.items()):
        if port.executor is executor:
            del _ports[loop]
    if executor is not None:
        executor.shutdown()


def _start_clean() -> None:
    global _private_lock
    _private_lock = threading.Lock()
    for port in _ports.values():
        port.lines.clear()  # the crews of isolates have forgotten who uses them


if hasattr(os, "register_at_fork"):
    # Held across the fork like the interpreter's lock, which is taken after it, here as elsewhere; the
    # child gets a new one, because the thread that would release the old one is not there.
    os.register_at_fork(
        before=lambda: _private_lock.acquire(),
        after_in_parent=lambda: _private_lock.release(),
        after_in_child=_start_clean,
    )
