"""What the governor does to a pool: permits of running calls, overdrafts, windows.

The rules of the lock are those of `scheduler`. Each function returns workers to be started without the lock.
"""

from __future__ import annotations

import errno
from itertools import islice

from hybridrt.errors import IsolateStartError
from hybridrt.observe.functions import Profile
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.roster import dismiss_idle, has_capacity
from hybridrt.pool.run_queue import Standstill
from hybridrt.pool.scheduler import (
    assign_locked,
    dispatch_after_locked,
    dispatch_locked,
    dispatch_others_locked,
    left_queue_locked,
    passed_limiter_locked,
    release_limiters_locked,
)
from hybridrt.pool.shutdown import queue_again_locked
from hybridrt.pool.state import CANCELLED, NO_WORKERS, Call, Pool, Worker

__all__ = [
    "LENGTHY_NS",
    "OVERDRAFT_NS",
    "change_permit_locked",
    "close_window_locked",
    "dispatch_stranded_locked",
    "exchange_permit",
    "no_isolate_free",
    "overdraw_locked",
    "reclaim_batch_locked",
    "relieve_limiter_locked",
]

OVERDRAFT_NS = 250_000_000
"""Time for which no call has started from a lane until its first one does so anyway. The governor looks at
its steps only, which are up to 75 ms apart and wait for the GIL, as the start of a thread does: with all that
it is within half a second. With 350 ms the longest wait beside endless computing was 0.59 s in `starts`."""
OF_ITS_OWN = 2
"""Times its usual time that a call waits at least while one of the same function computes: that one may just
take as long as they do, and a second beside it makes both take twice as long, so that the next would not
wait either. With 0.25 s for all of them `echo` read a loop p99 of 17 ms on 3.13 instead of 1."""
LENGTHY_NS = 500_000_000
"""Usual time of a call from which it is given more: nearly four times that, with the sleep four times."""
_ALIKE, _DOUBLINGS = 2, 5
"""Computing calls of a function from which each one more doubles the patience of the next, and how often at
most: a crowd of a function that is not known yet must not share the GIL among all its calls. Not measured."""
_LOOK_AHEAD = 1000
"""Calls of a lane among which one may go ahead of its first. Not measured."""


def change_permit_locked(worker: Worker, permit: int) -> list[Worker]:
    """Exchange the permit of a worker's assignment, and start what that allows."""
    if not worker.serving or worker.permit == permit:
        return []
    pool = worker.pool
    pool.budget.permits.exchange(worker, permit)
    return dispatch_others_locked(pool)


def exchange_permit(worker: Worker, permit: int) -> int:
    """Exchange the permit of a worker's assignment and return the old one; never waits."""
    with without_convoy(worker.pool.lock):
        old = worker.permit
        to_start = change_permit_locked(worker, permit)
    worker.pool.start(to_start)
    return old


def overdraw_locked(pool: Pool, now_ns: int, before_ns: int) -> list[Worker]:
    """Start a call of each lane from which none has started for too long.

    The oldest whose patience is at its end goes, so that a crowd of one function, whose patience grows, does
    not keep the others from it.

    Args:
        pool: The pool.
        now_ns: The time.
        before_ns: The governor's last step, when this was done before.
    """
    to_start: list[Worker] = []
    before = pool.tally.overdrafts
    for still in pool.admission.standing_still(now_ns, before_ns):
        paused = now_ns - max(still.since_ns, still.beyond_ns) < OVERDRAFT_NS
        call = None if paused or not _has_thread_locked(pool) else _overdue(pool, still, now_ns)
        if call is not None:
            pool.admission.start_beyond(still, call, now_ns)
            left_queue_locked(pool, 1)
            pool.tally.overdrafts += 1
            assign_locked(pool, call, to_start)
    return to_start + dispatch_locked(pool) if pool.tally.overdrafts != before else to_start


def relieve_limiter_locked(
    limiter: WatchedLimiter[Call], now_ns: int, before_ns: int
) -> tuple[list[Worker], list[Call]]:
    """Do the same at a limiter: let one call in beyond its limit, and take out those that can run elsewhere.

    Returns:
        Workers to be started, and the calls that were taken out, to be refused; both without the lock.
    """
    still_ns = limiter.still_for_ns(now_ns, before_ns)
    if still_ns < OVERDRAFT_NS:
        return [], []
    limiter.stands_still = True
    spilled = [
        call
        for call in limiter.waiting
        # A pool that closes runs what it has, and would not take the call again.
        if call.spills and not call.pool.draining and still_ns >= _patience_ns(call.pool, call.profile)
    ]
    to_start = [worker for call in spilled for worker in _take_back_locked(limiter, call)]
    first = next(iter(limiter.waiting), None)
    if (
        first is not None
        and limiter.active < limiter.most
        and still_ns >= _patience_ns(first.pool, first.profile)
    ):
        pool = passed_limiter_locked(limiter.let_in_beyond())
        pool.tally.overdrafts += 1
        to_start += dispatch_locked(pool)
    return to_start, spilled


def no_isolate_free() -> IsolateStartError:
    """Return the error of a call that is to run elsewhere, because no isolate has come free for too long."""
    return IsolateStartError(errno.EAGAIN, "no isolate has come free, so the call has not begun")


def _take_back_locked(limiter: WatchedLimiter[Call], call: Call) -> list[Worker]:
    """Take a call out of a limiter's line, as if it had never been submitted."""
    pool = call.pool
    del limiter.waiting[call], pool.at_limiters[call]
    call.place, call.state = None, CANCELLED
    pool.tally.submitted -= 1
    left_queue_locked(pool, 1)
    return dispatch_after_locked(pool, release_limiters_locked(pool, call))


def _has_thread_locked(pool: Pool) -> bool:
    """Return True if a pool has a thread for a call beyond its limits."""
    return pool.busy < pool.limits.highest and has_capacity(pool, pool.resolving)


def _overdue(pool: Pool, still: Standstill[Call], now_ns: int) -> Call | None:
    """Return the oldest call of a lane that has waited for as long as it has to."""
    impatient_ns: dict[Profile, int] = {}
    for call in islice(still.calls, _LOOK_AHEAD):
        profile = call.profile
        patience_ns = impatient_ns.get(profile)
        if patience_ns is None:
            patience_ns = impatient_ns[profile] = _patience_ns(pool, profile)
        if now_ns - max(still.since_ns, call.queued_ns) >= patience_ns:
            return call
    return None


def _patience_ns(pool: Pool, profile: Profile) -> int:
    """Return for how long a lane stands still until a call of the function starts beyond the limits."""
    usual_ns = profile.usual_ns
    patience_ns = OVERDRAFT_NS if usual_ns < LENGTHY_NS else 15 * usual_ns // 4
    running = [worker.call for worker in pool.roster.workers if worker.permit]  # they end without the lock
    alike = sum(call is not None and call.profile is profile for call in running)
    if alike:
        patience_ns = max(patience_ns, OF_ITS_OWN * usual_ns)
    return patience_ns << min(_DOUBLINGS, max(0, alike - _ALIKE))


def reclaim_batch_locked(worker: Worker) -> list[Worker]:
    """Put the rest of a batch back to the front of its lane: the call before it takes long."""
    return dispatch_locked(worker.pool) if queue_again_locked(worker) else []


def close_window_locked(pool: Pool, now_ns: int) -> list[Worker]:
    """Let the policy decide if a window is over, and start what a new size allows."""
    if not pool.sizing.close_window(pool, now_ns):
        return []
    if pool.admission.governs_all:  # the size counts threads; else idle ones leave by their timeout
        pool.roster.ceiling = pool.sizing.state.workers
    if len(pool.roster.workers) > pool.roster.ceiling:
        dismiss_idle(pool)
    return dispatch_locked(pool)


def dispatch_stranded_locked(pool: Pool) -> list[Worker]:
    """Start what may start where no dispatch is to come, as at the end of a call.

    That is nothing, as a rule. But there may have been no thread or no memory for a worker, and a worker that
    lacks memory may have died in the middle of a dispatch.
    """
    retries, pool.roster.retries = pool.roster.retries, False
    stranded = retries or not (pool.busy or pool.resolving)
    return dispatch_locked(pool) if pool.queued and stranded else NO_WORKERS
