"""Calls that run in isolates, as a coroutine awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hybridrt.loop.call import LoopCall
from hybridrt.loop.courier import Courier, send_out, set_out_locked
from hybridrt.loop.port import Port
from hybridrt.loop.replies import Replies, replies_of
from hybridrt.observe.functions import Profile
from hybridrt.observe.naming import identify
from hybridrt.pool.call import DONE, QUEUED
from hybridrt.pool.governing import LENGTHY_NS, no_isolate_free
from hybridrt.pool.isolates.carrier import Carrier, crew_for, hide_own_frames
from hybridrt.pool.isolates.child import inside
from hybridrt.pool.isolates.crew import Crew, processes, used_by
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.packing import LIGHT, weigh_call
from hybridrt.pool.isolates.profile import IsolateProfile
from hybridrt.pool.isolates.reference import find, refer
from hybridrt.pool.pool import Pool
from hybridrt.values import Isolation

__all__ = ["IsolatedCall", "Line", "isolated_call"]

_LINES_MAX = 256
"""Functions whose lines are kept; programs that make functions could have any number."""
_ENOUGH, _PAUSE = 3, 16
"""Brief calls in a row after which the loop carries the next, and how many more after one that was not."""
_FIRST, _OFTEN = 16, 8
"""Calls in a row that are measured, and one in so many of those that the loop carries after them."""
_BRIEF_NS = 5_000_000
"""A longer call loses little by the way through a thread."""
_TOGETHER, _TOGETHER_NS = 16, 500_000
"""Calls in one message, and what they may take together: the first waits for the last."""
_TINY_NS = 20_000
"""Time in the isolate below which that is hardly worth a message of its own: a message costs some 50 us."""
_CROWD = 8
"""Calls that set out alone after a batch until the next is not waited for any more."""
_HANDLING_NS = 500_000
"""CPU time for carrying a call there and back, above which it is too much for a loop."""


class IsolatedCall(LoopCall):
    """A call in an isolate: abandoning it stops its process.

    Attributes:
        carrier: Does what a worker thread does, and keeps what that cost.
        line: The way to the isolate.
        replies: Of the loop, if it carries the call itself as soon as an isolate is free for that.
        weight: About how many bytes its arguments take, if so.
    """

    # All that every call sets or asks for several times; an instance's dict would cost more.
    __slots__ = (
        "cancel_requested", "carrier", "cpu_ns", "error", "gates", "gates_passed", "in_waiting_lane", "line",
        "permit", "replies", "spills", "wall_ns", "weight",
    )  # fmt: skip

    carrier: Carrier
    line: Line
    replies: Replies | None
    weight: int
    elsewhere = True

    def __init__(self, line: Line, carrier: Carrier, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.line, self.carrier, self.gates = line, carrier, line.gates
        self.replies = self.error = None
        self.weight = self.gates_passed = self.permit = self.wall_ns = self.cpu_ns = 0
        self.cancel_requested = self.in_waiting_lane = self.spills = False

    @property
    def when_abandoned(self) -> str:
        """What is said of the call when nobody waits for it."""
        return self.line.when_abandoned

    def go(self) -> None:
        """Submit the call, by the loop or through its pool."""
        replies = self.line.replies
        if replies is not None and self.pool.hooks.on_event is None:
            self.weight = weigh_call(self.args, self.kwargs)
            if self.weight <= LIGHT:
                self.replies = replies
                if send_out(self, replies):
                    return
        super().go()

    def sets_out_locked(self) -> bool:
        """Let the loop carry the call now that it may start; True if it will."""
        replies = self.replies
        return replies is not None and replies is self.line.replies and set_out_locked(self, replies)

    def settle(self) -> None:
        """Complete the future, and note what the way took."""
        if self.state == DONE:
            self.line.came_back(self.carrier.crossing)
            hide_own_frames(self.error)
        elif self.cancel_requested:  # it never began, and there is nothing to tell of why
            self.error = None
        super().settle()

    def cancel(self, msg: Any = None) -> bool:
        """Cancel as every call; one that may be abandoned while it runs is stopped."""
        cancelled = super().cancel(msg)
        self._stop_if_abandoned()
        return cancelled

    def expire(self, timeout: float) -> None:
        """The call's time is up: withdraw it, or stop it."""
        super().expire(timeout)
        self._stop_if_abandoned()

    def give_up(self, error: BaseException) -> None:
        """Nobody will wait for the call any more: fail now and stop it."""
        super().give_up(error)
        self._stop_if_abandoned()

    def _stop_if_abandoned(self) -> None:
        if self.abandoned:
            self.carrier.stop()


class Line:
    """The way of one function's calls to their isolates, so that it is looked up once.

    Attributes:
        replies: Of the loop while it may carry the function's calls, as far as they are light.
        is_measured: Reading CPU clocks makes a call dearer, so only some that the loop carries are measured:
            the next one is.
        cpu_ns: What the last of them took of the loop's CPU time.
        together: How many of the calls may go in one message.
        lingers: The courier that others may join in this turn of the loop.

    Args:
        port: Of the calls.
        fn: The function.
        isolation: What `isolated_call` was given.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """

    __slots__ = (
        "_brief", "_crowd", "_loop", "_most", "_usual_ns", "cpu_ns", "crew", "fn", "gates", "is_measured",
        "isolation", "lingers", "named", "profile", "reference", "replies", "together", "when_abandoned",
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
        self.replies: Replies | None = None
        self.is_measured = True
        self.cpu_ns = 0
        self.together = 1
        self.lingers: Courier | None = None
        self._usual_ns = self._crowd = 0
        self._most = _TOGETHER
        self._loop = port.loop
        self._brief = 0
        used_by(pool)

    def holds(self) -> bool:
        """Tell whether the function still has its profile; now and then, whether it has its name and crew."""
        if not self.is_measured:
            return self.profile.owner is not None
        reference = self.reference
        return (
            self.profile.owner is not None
            and find(reference.module, reference.qualname) is self.named
            and crew_for(reference, self.isolation) is self.crew
        )

    def came_back(self, crossing: Crossing | None) -> None:
        """Learn from a call what the next will be like; None: it was lost, or a thread had to help."""
        wall_ns = _BRIEF_NS if crossing is None else crossing.child_wall_ns
        self._came_back(wall_ns, brief=crossing is not None and _is_brief(crossing))

    def came_again(self, child_wall_ns: int) -> None:
        """The same after a call that the loop has carried without measuring it."""
        self._came_back(child_wall_ns, brief=child_wall_ns <= _BRIEF_NS)

    def saw_crowd(self, others: int) -> None:
        """Learn how many calls set out with another: while some do, couriers linger for more."""
        self._crowd = _CROWD if others else max(0, self._crowd - 1)

    def fell_apart(self) -> None:
        """Send fewer together from now on: one of them took long, or ended its isolate."""
        self._most = max(1, self._most // 2)

    @property
    def is_tiny(self) -> bool:
        """Tell whether a call takes so little that many in one isolate cost less than two messages do."""
        return self._usual_ns < _TINY_NS

    def lingers_now(self) -> bool:
        """Tell whether a call that begins had better linger, and is the first to."""
        return self._crowd > 0 and self.together > 1 and self.lingers is None

    def _came_back(self, child_wall_ns: int, *, brief: bool) -> None:
        self._brief = self._brief + 1 if brief else -_PAUSE
        self._usual_ns = max(min(child_wall_ns, _BRIEF_NS), self._usual_ns - self._usual_ns // 8)
        self.is_measured = self._brief < _FIRST or not self._brief % _OFTEN
        self.together = min(self._most, max(1, _TOGETHER_NS // (self._usual_ns + 1)))
        self.replies = replies_of(self._loop) if self._brief >= _ENOUGH else None


def _is_brief(crossing: Crossing) -> bool:
    return (
        not crossing.cold
        and crossing.bytes_in <= LIGHT
        and crossing.child_wall_ns <= _BRIEF_NS
        and crossing.host_cpu_ns <= _HANDLING_NS
    )


def isolated_call(
    port: Port,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    isolation: Isolation = "auto",
    on_crossing: Callable[[Crossing | None], object] | None = None,
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
        on_crossing: Hears, in any thread, what a call cost that returned or raised; None: as much as before.
        spills: Fail the call with `IsolateStartError` rather than let it wait for long for an isolate.

    Raises:
        NotPortableError: Another interpreter could not find the function.
        IsolateStartError: The call `spills`, and others wait in vain for an isolate.
    """
    if inside() or port.at_once:
        return _ready(LoopCall(loop=port.loop), port, fn, args, kwargs, port.pool.profiles.of(fn))
    line = port.lines.get((isolation, id(fn)))
    if line is None or not line.holds():
        line = _new_line(port, fn, isolation)
    if spills and line.crew.gate.stands_still and line.profile.usual_ns < LENGTHY_NS:
        raise no_isolate_free()
    carrier = Carrier(line.reference, line.crew, on_crossing)
    call = IsolatedCall(line, carrier, port.loop)
    call.spills = spills
    return _ready(call, port, carrier, args, kwargs, line.profile)


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
    call.context = None  # context variables do not cross
    call.outlet, call.pool, call.profile = port.outlet, port.pool, profile
    return call


def _profile(pool: Pool, fn: Callable[..., Any], crew: Crew) -> Profile:
    """Return the profile of the function in this kind of isolate, beside that of its calls in threads."""
    code = getattr(fn, "__code__", None)
    name = "process" if crew is processes else "interpreter"
    key = (name, identify(fn)[0] if code is None else code)
    return pool.profiles.under(key, lambda: IsolateProfile(key, f"{identify(fn)[1]} [{name}]"))
