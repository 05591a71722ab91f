"""Calls that run in isolates, as a coroutine awaits them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hybridrt.errors import NotPortableError
from hybridrt.loop.call import LoopCall
from hybridrt.loop.placing import Placing
from hybridrt.loop.port import Port
from hybridrt.observe.functions import Profile
from hybridrt.observe.naming import identify
from hybridrt.pool.governing import LENGTHY_NS, no_isolate_free
from hybridrt.pool.isolates.carrier import Carrier, WarmingCarrier, crew_for
from hybridrt.pool.isolates.child import inside
from hybridrt.pool.isolates.context import crossing_context
from hybridrt.pool.isolates.crew import Crew, processes, used_by
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.frames import hide_own_frames
from hybridrt.pool.isolates.profile import IsolateProfile
from hybridrt.pool.isolates.reference import find, refer
from hybridrt.pool.state import DONE, QUEUED, Pool
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.values import Isolation

__all__ = ["IsolatedCall", "Line", "calls_at_once", "generator_step", "isolated_call", "line_of", "warm_up"]

logger = logging.getLogger("hybridrt")

_WARMING = "hybridrt:warm_up"
"""The key and the name of the profile of calls that start isolates ahead."""
_LINES_MAX = 256
"""Functions whose lines are kept; programs that make functions could have any number."""


class IsolatedCall(LoopCall):
    """A call in an isolate: abandoning it stops its process.

    Attributes:
        carrier: Does what a worker thread does, and keeps what that cost.
        line: The way to the isolate.
    """

    # All that every call sets or asks for several times; an instance's dict would cost more.
    __slots__ = (
        "cancel_requested", "carrier", "cpu_ns", "error", "gates", "gates_passed", "in_waiting_lane", "line",
        "permit", "spills", "wall_ns",
    )  # fmt: skip

    carrier: Carrier
    line: Line
    elsewhere = True

    def __init__(self, line: Line, carrier: Carrier, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.line, self.carrier, self.gates = line, carrier, line.gates
        self.error = None
        self.gates_passed = self.permit = self.wall_ns = self.cpu_ns = 0
        self.cancel_requested = self.in_waiting_lane = self.spills = False

    @property
    def when_abandoned(self) -> str:
        """What is said of the call when nobody waits for it."""
        return self.line.when_abandoned

    def settle(self) -> None:
        """Complete the future."""
        if self.state == DONE:
            hide_own_frames(self.error)
            if self.carrier.took_ns:
                self.line.profile.took(self.carrier.took_ns)
        elif self.cancel_requested:  # it never began, and there is nothing to tell of why
            self.error = None
        super().settle()

    @uninterrupted
    def cancel(self, msg: Any = None) -> bool:
        """Cancel as every call; one that may be abandoned while it runs is stopped."""
        cancelled = super().cancel(msg)
        self._stop_if_abandoned()
        return cancelled

    @uninterrupted
    def expire(self, timeout: float, limit: str = "timeout") -> None:
        """The call's time is up, as `limit` says: withdraw it, or stop it."""
        super().expire(timeout, limit)
        self._stop_if_abandoned()

    @uninterrupted
    def give_up(self, error: BaseException) -> None:
        """Nobody will wait for the call any more: fail now and stop it."""
        super().give_up(error)
        self._stop_if_abandoned()

    def _stop_if_abandoned(self) -> None:
        if self.abandoned:
            self.carrier.stop()


class Line:
    """The way of one function's calls to their isolates, so that it is looked up once.

    Args:
        port: Of the calls.
        fn: The function.
        isolation: What `isolated_call` was given.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """

    __slots__ = (
        "crew", "fn", "gates", "isolation", "named", "profile", "reference", "warming", "when_abandoned",
    )  # fmt: skip

    def __init__(self, port: Port, fn: Callable[..., Any], isolation: Isolation) -> None:
        pool = port.pool
        self.fn, self.isolation = fn, isolation
        self.reference = refer(fn)
        self.named = find(self.reference.module, self.reference.qualname)
        self.crew = crew = crew_for(self.reference, isolation)
        self.gates = (crew.gate,)
        self.when_abandoned = "its process is ended" if crew is processes else "its interpreter is left to it"
        self.profile = _profile(pool, fn, crew)
        self.warming = pool.profiles.under(_WARMING, lambda: IsolateProfile(_WARMING, _WARMING))
        used_by(pool)

    def holds(self) -> bool:
        """Return True if the function still has its profile, its name and its crew."""
        reference = self.reference
        return (
            self.profile.owner is not None
            and find(reference.module, reference.qualname) is self.named
            and crew_for(reference, self.isolation) is self.crew
        )


def isolated_call(
    port: Port,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    isolation: Isolation = "auto",
    on_crossing: Callable[[Crossing], object] | None = None,
    *,
    spills: bool = False,
) -> LoopCall:
    """Make, and do not push, a call that runs in another interpreter.

    Inside an isolate it is a call in a thread, because nothing is carried any further from there; a pool
    that runs calls at once runs it at once.

    Args:
        port: Through which it goes out.
        fn: The function, without what wraps it.
        args: Positional arguments; they must not change until the call has ended.
        kwargs: Keyword arguments.
        isolation: "process", "interpreter", or "auto" for the latter where there are any.
        on_crossing: Hears, in any thread, what a call cost that returned or raised.
        spills: Fail the call with `IsolateStartError` rather than let it wait for long for an isolate.

    Raises:
        NotPortableError: Another interpreter could not find the function.
        IsolateStartError: The call `spills`, and others wait in vain for an isolate.
    """
    if inside() or port.at_once:
        return _ready(port.call_type(loop=port.loop), port, fn, args, kwargs, port.pool.profiles.of(fn))
    line = line_of(port, fn, isolation)
    if spills and line.crew.gate.stands_still and line.profile.usual_ns < LENGTHY_NS:
        raise no_isolate_free()
    variables = port.variables
    context = crossing_context(variables)
    carrier = Carrier(line.reference, line.crew, on_crossing, port.setup, variables, context)
    call = IsolatedCall(line, carrier, port.loop)
    call.spills = spills
    return _ready(call, port, carrier, args, kwargs, line.profile)


def line_of(port: Port, fn: Callable[..., Any], isolation: Isolation) -> Line:
    """Return the way of a function's calls to their isolates.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """
    line = port.lines.get((isolation, id(fn)))
    if line is None or not line.holds():
        line = _new_line(port, fn, isolation)
    return line


def generator_step(port: Port, line: Line, carrier: Carrier, run: Callable[[], None]) -> LoopCall:
    """Make, and do not push, a call that advances or closes a generator in its isolate.

    Args:
        port: Through which it goes out.
        line: The way of the generator function.
        carrier: Keeps the isolate.
        run: What the worker does with it.
    """
    if line.profile.owner is not port.pool.profiles:  # its runtime has closed
        line = line_of(port, line.fn, line.isolation)
    return _ready(IsolatedCall(line, carrier, port.loop), port, run, (), {}, line.profile)


def warm_up(port: Port, placing: Placing, isolation: Isolation = "auto") -> None:
    """Start isolates for a function ahead of its calls, as many as may run at once, and import its module.

    The calls of the function run in threads until all of them are ready.
    """
    placing.wants_isolates, placing.warmed = False, True
    if inside() or port.at_once or port.pool.refusal is not None:
        return
    try:
        line = Line(port, placing.fn, isolation)
    except NotPortableError as error:
        placing.stay(error)
        return
    placing.warming = True
    port.warming.update(calls := [_warming_call(port, line) for _ in range(line.crew.gate.limit)])
    for call in calls:
        call.add_done_callback(partial(_warmed, port, placing))
        try:
            call.go()
        except RuntimeError:  # the pool closes
            call.cancel()


def calls_at_once(port: Port, fn: Callable[..., Any], isolation: Isolation = "auto") -> int:
    """Return how many calls of a function may run in isolates at once.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """
    return 1 if inside() or port.at_once else crew_for(refer(fn), isolation).gate.limit


def _warming_call(port: Port, line: Line) -> IsolatedCall:
    carrier = WarmingCarrier(line.reference, line.crew, None, port.setup)
    call = IsolatedCall(line, carrier, port.loop)
    _ready(call, port, carrier, (), {}, line.warming)
    return call


def _warmed(port: Port, placing: Placing, call: asyncio.Future[Any]) -> None:
    """Take note that one isolate is ready, or will not be: the first call then tells why."""
    assert isinstance(call, IsolatedCall)
    port.warming.discard(call)
    if not call.cancelled() and (error := call.exception()) is not None:
        logger.debug("an isolate for %s could not be made ready: %r", call.line.reference, error)
    if not any(other.line.fn is placing.fn for other in port.warming if isinstance(other, IsolatedCall)):
        placing.warming = False


def _new_line(port: Port, fn: Callable[..., Any], isolation: Isolation) -> Line:
    line, key = Line(port, fn, isolation), (isolation, id(fn))
    if line.reference.pickled is None:  # else what it holds may change between two calls
        if len(port.lines) >= _LINES_MAX and key not in port.lines:
            port.lines.clear()
        port.lines[key] = line
    return line


def _ready(
    call: LoopCall,
    port: Port,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    profile: Profile,
) -> LoopCall:
    call.state = QUEUED
    call.fn, call.args, call.kwargs = fn, args, kwargs
    call.context = None  # the carrier takes along what is to cross
    call.outlet, call.pool, call.profile = port.outlet, port.pool, profile
    return call


def _profile(pool: Pool, fn: Callable[..., Any], crew: Crew) -> IsolateProfile:
    """Return the profile of the function in this kind of isolate, beside that of its calls in threads."""
    code = getattr(fn, "__code__", None)
    name = "process" if crew is processes else "interpreter"
    key = (name, identify(fn)[0] if code is None else code)
    profile = pool.profiles.under(key, lambda: IsolateProfile(key, f"{identify(fn)[1]} [{name}]"))
    assert isinstance(profile, IsolateProfile)
    return profile
