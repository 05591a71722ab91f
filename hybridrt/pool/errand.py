"""Errands: calls that run elsewhere while no thread of the pool waits for them.

Whoever begins an errand sends its call on its way and goes on; whoever hears of the end takes the call in,
and may begin the next one that is queued with the same errand. To the pool an errand is a stint like a
worker's: its call has passed its gates, counts as one that waits, and can be abandoned and seen. Same lock
and same rules as `pool`.
"""

from __future__ import annotations

from hybridrt.pool.call import RUNNING, Call
from hybridrt.pool.ending import book_locked
from hybridrt.pool.lock import patiently
from hybridrt.pool.pool import Pool
from hybridrt.pool.stint import NOBODY, Stint
from hybridrt.pool.worker import Worker

__all__ = ["LATE_NS", "Errand", "begin_errand", "finish_errand"]

LATE_NS = 250_000_000
"""Time after which an errand is handed over: its loop may stand still, or never turn again."""


class Errand(Stint):
    """A call on its way.

    Attributes:
        begun_ns: When it was sent; valid while the errand is one of its pool's.
    """

    __slots__ = ("begun_ns", "left")

    begun_ns: int
    left: bool

    @property
    def bearer(self) -> str:
        """Say that it runs elsewhere."""
        return "its isolate"

    def position(self) -> str:
        """Say that nobody here knows."""
        return "in another interpreter"

    def leave_behind(self) -> bool:
        """Return True the first time: an errand holds no thread, but somebody may wait for it."""
        first, self.left = not self.left, True
        return first

    def takes(self, call: Call) -> bool:
        """Tell whether the errand can begin this call as soon as its own has ended; the lock is held."""
        raise NotImplementedError

    def hand_over(self) -> None:
        """Let a thread wait for the end, if nobody has heard of it yet; from any thread, without the lock."""
        raise NotImplementedError

    def cpu_so_far(self) -> int | None:
        """Return None: the call has no thread here."""
        return None


def begin_errand(errand: Errand, call: Call) -> bool:
    """Begin a new call with an errand if it may start at once; else nothing has happened to it."""
    pool = call.pool
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        if pool.refusal is not None or pool.queued or pool.governor.error is not None:
            return False
        if not pool.admits_at_once_locked(call):
            return False
        pool.tally.submitted += 1
        _begin_locked(pool, errand, call)
        call.queued_ns = errand.begun_ns
    if pool.governor.parked:
        pool.governor.ring()
    return True


def finish_errand(errand: Errand, call: Call, *, goes_on: bool) -> Call | None:
    """Book a call that has ended elsewhere.

    Args:
        errand: Brought it back.
        call: The call, with what came of it and what that took.
        goes_on: The errand takes a queued call if the next one is of its kind.

    Returns:
        That call, begun; the errand is the pool's no more if it is None.
    """
    pool, follower = call.pool, None
    hired = NOBODY
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        book_locked(pool, call)
        pool.end_stint_locked(errand)
        moved = pool.leave_gates_locked(call)
        if moved or pool.queued or pool.interpreter.starved or pool.crew.stopping():
            if goes_on and pool in moved:
                follower, hired = _take_next_locked(pool, errand)
            hired = hired + pool.dispatch_after_locked(moved)
        if follower is None:
            errand.call = None
            pool.crew.errands.discard(errand)
    if hired:
        pool.crew.start(hired)
    return follower


def _take_next_locked(pool: Pool, errand: Errand) -> tuple[Call | None, list[Worker]]:
    """Begin the next queued call with the errand, or give it to a worker."""
    call = pool.take_locked() if pool.crew.has_hands(pool.resolving) else None
    if call is None:
        return None, []
    if not errand.takes(call):
        return None, pool.assign_locked(call)
    _begin_locked(pool, errand, call)
    return call, []


def _begin_locked(pool: Pool, errand: Errand, call: Call) -> None:
    call.state, call.place = RUNNING, None
    pool.hold_locked(errand, call)
    errand.serving, errand.left = True, False
    errand.call = call
    call.started_ns = errand.begun_ns = pool.crew.wall_ns()
    pool.crew.errands.add(errand)
