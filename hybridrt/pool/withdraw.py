"""Take back a call that no worker has claimed, and abandon one that runs.

The rules of the lock are those of `scheduler`. `worker` tells how a cancel and a claim exclude each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from hybridrt.pool.lock import without_convoy
from hybridrt.pool.roster import gone, holder_of
from hybridrt.pool.scheduler import (
    dispatch_after_locked,
    dispatch_locked,
    left_queue_locked,
    release_limiters_locked,
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
    with without_convoy(pool.lock):
        if not _unqueue(pool, call):
            return False
        call.state = CANCELLED
        pool.tally.cancelled += 1
        call.classified_locked()
        to_start = dispatch_after_locked(pool, release_limiters_locked(pool, call))
    call.drop_work()
    pool.start(to_start)
    if pool.draining:
        gone(pool)
    pool.hooks.withdrawn(call, why)
    return True


def _unqueue(pool: Pool, call: Call) -> bool:
    place = call.place
    if call.state == ASSIGNED:
        if not isinstance(place, deque):
            return False
        try:
            place.remove(call)
        except ValueError:  # claimed; whose batch it was tells `abandon` who has it
            return False
        call.place = None
        return True
    if call.state != QUEUED or place is None:
        return False
    call.place = None
    assert isinstance(place, OrderedDict)
    del place[call]
    pool.at_limiters.pop(call, None)
    if place is not pool.backlog:
        left_queue_locked(pool, 1)
    return True


@uninterrupted
def abandon(call: Call, why: str = "CancelledError") -> bool:
    """Abandon a running call that its caller has left; its place goes to another call. `why` is as in
    `withdraw`.

    Raises:
        SelfWaitError: As `withdraw` does.
    """
    pool = call.pool
    with without_convoy(pool.lock):
        # ASSIGNED and not withdrawn: it was claimed, and its worker has not said so yet.
        if call.state not in (ASSIGNED, RUNNING) or call.abandoned:
            return False
        call.abandoned = True
        pool.tally.abandoned += 1
        holder = holder_of(pool, call)
        if holder is not None and not (holder.abandoned or holder.resolves):
            holder.abandoned = True
            pool.abandoned += 1
            pool.waiting -= holder.waits
            holder.waits = False
        to_start = dispatch_locked(pool)
    pool.start(to_start)
    pool.hooks.abandoned(call, why)
    return True
