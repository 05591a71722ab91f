"""A call: one function with its arguments, on its way through a pool.

Its life, every step under the interpreter's lock:

    QUEUED -> ASSIGNED -> RUNNING -> DONE
       \\----------\\--> CANCELLED

QUEUED lies in exactly one container, `place`. ASSIGNED is on its way to a parked worker and can
still be withdrawn. RUNNING was claimed by the thread that runs it; nothing can take it back. In a
batch the claim itself is not under the lock; see `worker`. The
future that callers see is the call itself: `ThreadCall` for `submit`, the loop's own class for
`@offload`. A call that ended keeps neither function nor arguments.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

from hybridrt.placements import Placement

if TYPE_CHECKING:
    from hybridrt.observe.functions import Profile
    from hybridrt.pool.gates import Gate
    from hybridrt.pool.pool import Pool

__all__ = ["ASSIGNED", "CANCELLED", "DONE", "QUEUED", "RUNNING", "Call", "Submission"]

QUEUED, ASSIGNED, RUNNING, DONE, CANCELLED = range(5)


class Submission(NamedTuple):
    """What all events of a call say of it."""

    id: int
    context: Context
    place: Placement


class Call:
    """What every kind of call has; a mixin for a future class.

    Rarely used fields are class attributes, so that an ordinary call does not pay for them.
    """

    fn: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    context: Context | None
    profile: Profile
    pool: Pool

    state: int = QUEUED
    place: OrderedDict[Call, None] | deque[Call] | None = None
    """The container it is queued in, or the batch of the worker it is assigned to."""
    quick: bool = False
    """Delivering its result takes no time and runs nobody's code."""
    patient: bool = False
    """Waits for space in a full queue instead of being refused."""
    resolves: bool = False
    """Belongs to the name-resolution lane."""
    permit: int = 0
    """What it was started with; from then on its worker holds it."""
    in_waiting_lane: bool = False
    unjudged: bool = False
    gates: tuple[Gate, ...] = ()
    gates_passed: int = 0
    spills: bool = False
    """It can run somewhere else: one that waits for too long at a watched gate is sent back to its caller."""
    elsewhere: bool = False
    """It runs in an isolate, whoever waits for that."""
    abandoned: bool = False
    cancel_requested: bool = False
    queued_ns: int = 0
    started_ns: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    run_delay_ns: int = 0
    """Time it was ready to run and had no core; 0 of calls that were not asked."""
    submission: Submission | None = None
    """What its events say, if there is a hook for them."""
    blocks: int | None = None
    """How often it waited for anything, the GIL included; None if it was not asked."""
    value: Any = None
    error: BaseException | None = None

    def age_ns(self) -> int:
        """Return the time since the call was queued."""
        return self.pool.crew.wall_ns() - self.queued_ns

    def deliver(self) -> None:
        """Hand value or error to whoever waits; called once, without the lock."""
        raise NotImplementedError

    def settle(self) -> None:
        """Complete what is awaited; called on the loop whose outlet has the call."""
        raise NotImplementedError

    def refuse(self, error: BaseException) -> None:
        """Fail a call that never ran; called once, without the lock."""
        raise NotImplementedError

    def drop(self) -> None:
        """Cancel a call that a close took out of the queue; called once, without the lock."""
        raise NotImplementedError

    def drop_work(self) -> None:
        """Forget function, arguments and context."""
        self.fn = None
        self.args = ()
        self.kwargs = {}
        self.context = None
