"""Take back a call that nobody has claimed, and leave one that runs.

The rules of the lock are those of `scheduler`. `worker` tells how a cancel and a claim exclude each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from hybridrt.pool.lock import patiently
from hybridrt.pool.roster import gone, holder_of
from hybridrt.pool.scheduler import (
    dispatch_after_locked,
    dispatch_locked,
    leave_gates_locked,
    left_queue_locked,
)
from hybridrt.pool.state import ASSIGNED, CANCELLED, QUEUED, RUNNING, Call, Pool
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = ["abandon", "withdraw"]


@uninterrupted
def withdraw(call: Call, why: str = "CancelledError") -> bool:
    """Take back a call that no thread has claimed; return whether it never runs.

    The caller completes the future. Function and arguments are let go at once. The call's last event names
    an error, `why`.

    Raises:
        SelfWaitError: It was called within a step of the pool; nothing has happened.
    """
    pool = call.pool
    with patiently(pool.lock):
        if not _unqueue(pool, call):
            return False
        call.state = CANCELLED
        pool.tally.cancelled += 1
        call.judged_locked()
        hired = dispatch_after_locked(pool, leave_gates_locked(pool, call))
    call.drop_work()
    pool.start(hired)
    if pool.draining:
        gone(pool)
    pool.hooks.withdrawn(call, why)
    return True


def _unqueue(pool: Pool, call: Call) -> bool:
    place, call.place = call.place, None
    if call.state == ASSIGNED:
        if not isinstance(place, deque):  # an earlier cancel found it claimed
            return False
        try:
            place.remove(call)
        except ValueError:  # claimed
            return False
        return True
    if call.state != QUEUED or place is None:
        return False
    assert isinstance(place, OrderedDict)
    del place[call]
    pool.at_gates.pop(call, None)
    if place is not pool.backlog:
        left_queue_locked(pool, 1)
    return True


@uninterrupted
def abandon(call: Call, why: str = "CancelledError") -> bool:
    """Nobody waits for a running call any more; its place goes to another call. `why` is as in `withdraw`.

    Raises:
        SelfWaitError: As `withdraw` does.
    """
    pool = call.pool
    with patiently(pool.lock):
        # ASSIGNED and not withdrawn: it was claimed, and its worker has not said so yet.
        if call.state not in (ASSIGNED, RUNNING) or call.abandoned:
            return False
        call.abandoned = True
        pool.tally.abandoned += 1
        holder = holder_of(pool, call)
        if holder is not None and not (holder.deserted or holder.resolves):
            holder.deserted = True
            pool.deserted += 1
            pool.waiting -= holder.waits
            holder.waits = False
        hired = dispatch_locked(pool)
    pool.start(hired)
    pool.hooks.abandoned(call, why)
    return True
