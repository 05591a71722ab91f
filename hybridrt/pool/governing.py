"""What the governor does to a pool: permits of running calls, overdrafts, windows.

Same lock and same rules as `pool`. Each function returns workers to be started without the lock.
"""

from __future__ import annotations

from hybridrt.pool.closing import unclaimed
from hybridrt.pool.lock import patiently
from hybridrt.pool.pool import Pool
from hybridrt.pool.worker import Worker

__all__ = [
    "change_permit_locked",
    "close_window_locked",
    "exchange_permit",
    "may_overdraw_locked",
    "overdraw_locked",
    "reclaim_batch_locked",
]


def change_permit_locked(worker: Worker, permit: int) -> list[Worker]:
    """Exchange the permit of a worker's stint, and start what that allows."""
    if not worker.serving or worker.permit == permit:
        return []
    pool = worker.pool
    pool.interpreter.permits.exchange(worker.permit, permit)
    worker.permit = permit
    hired = pool.dispatch_locked()
    for starved in tuple(pool.interpreter.starved):
        hired += starved.dispatch_locked()
    return hired


def exchange_permit(worker: Worker, permit: int) -> int:
    """Exchange the permit of a worker's stint and return the old one; never waits."""
    with patiently(worker.pool.lock):
        old = worker.permit
        hired = change_permit_locked(worker, permit)
    worker.crew.start(hired)
    return old


def may_overdraw_locked(pool: Pool) -> bool:
    """Tell whether a pool has a thread for a call without a permit."""
    return pool.busy < pool.limits.highest and pool.crew.has_hands(pool.resolving)


def overdraw_locked(pool: Pool) -> list[Worker]:
    """Start the oldest call that lacks a permit."""
    call = pool.admission.take_overdue()
    pool.left_queue_locked(1)
    pool.tally.overdrafts += 1
    return pool.assign_locked(call) + pool.dispatch_locked()


def reclaim_batch_locked(worker: Worker) -> list[Worker]:
    """Put the rest of a batch back to the front of its lane: the call before it takes long."""
    pool, calls = worker.pool, [*unclaimed(worker)]
    for call in reversed(calls):
        pool.queued += 1
        pool.requeue_locked(call, first=True)
    return pool.dispatch_locked() if calls else []


def close_window_locked(pool: Pool, now_ns: int) -> list[Worker]:
    """Let the policy decide if a window is over, and start what a new size allows."""
    if not pool.sizing.close_window(pool, now_ns):
        return []
    pool.crew.ceiling = pool.admission.threads_for(pool.sizing.state.workers, pool.limits.highest)
    if len(pool.crew.workers) > pool.crew.ceiling:
        pool.crew.dismiss_idle()
    return pool.dispatch_locked()
