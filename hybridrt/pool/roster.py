"""The workers of one pool: added on demand, parked, sent home.

Parked workers form a stack, so that the one used last, whose caches are warm, works next, and the surplus at
the bottom reaches its idle timeout. The lock protects the lists; threads are started without it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from hybridrt.compat import stdlib_threads
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.state import Call, Pool, Worker
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = [
    "add_worker",
    "all_threads",
    "all_workers",
    "dismiss_idle",
    "dismisses",
    "forget_worker",
    "gone",
    "has_capacity",
    "holder_of",
    "is_over",
    "may_leave",
    "park",
    "stopping",
    "when_empty",
]  # fmt: skip


def has_capacity(pool: Pool, resolving: int) -> bool:
    """Return True if a worker is parked or may be added, those apart that resolve names."""
    return bool(pool.roster.idle) or len(pool.roster.workers) - resolving < pool.roster.max_workers


def add_worker(pool: Pool, to_start: list[Worker]) -> Worker:
    """Return a new worker, which is added to those that are to be started."""
    worker = pool.spawn(f"{pool.roster.prefix}_{next(pool.roster.numbers)}")
    pool.roster.threads.add(worker.thread)  # first: without memory for it there is no worker
    to_start.append(worker)
    try:
        pool.roster.workers.add(worker)
    except MemoryError:
        to_start.pop()
        raise
    return worker


def park(pool: Pool, worker: Worker) -> None:
    """Put a worker without a call on the stack; it waits for its bell next."""
    pool.roster.idle.append(worker)
    if not pool.queued and stopping(pool):
        worker.wakeup.put(None)


def may_leave(pool: Pool, worker: Worker, *, timed_out: bool) -> bool:
    """Decide whether a parked worker goes; called by the worker, without the lock.

    The race between its timeout and a dispatch:

        1. The worker's wait times out; it has not the lock yet.
        2. A dispatch takes it off the stack and puts a call into its batch.
        3. The worker gets the lock, is not on the stack, and must wait for its bell again.

    With 3 before 2 it has left the stack and the set, and no dispatch ever sees it.
    """
    with without_convoy(pool.budget.lock):
        if worker not in pool.roster.idle:
            return False
        finished = stopping(pool) and not pool.queued
        surplus = timed_out and len(pool.roster.workers) > pool.roster.min_workers
        if not (finished or surplus or len(pool.roster.workers) > pool.roster.ceiling):
            return False
        forget_worker(pool, worker)
    return True


def dismisses(pool: Pool) -> bool:
    """Return True if a parked worker might have to leave now."""
    return stopping(pool) or len(pool.roster.workers) > pool.roster.ceiling


def all_workers(pool: Pool) -> list[Worker]:
    """Return the workers there are; to be called without the lock, under which they are added."""
    with without_convoy(pool.budget.lock):
        return list(pool.roster.workers)


def holder_of(pool: Pool, call: Call) -> Worker | None:
    """Return whose assignment the running call is; its worker may have claimed it and not begun it yet."""
    return next((each for each in pool.roster.workers if each.runs(call) or each.batch is call.place), None)


def stopping(pool: Pool) -> bool:
    """Return True if no more calls can come."""
    return pool.draining or stdlib_threads._shutdown


def forget_worker(pool: Pool, worker: Worker) -> None:
    """Take a worker off all lists; the lock is held."""
    pool.roster.workers.discard(worker)
    if worker in pool.roster.idle:
        pool.roster.idle.remove(worker)


def dismiss_idle(pool: Pool) -> None:
    """Wake every parked worker, to see whether it should leave."""
    for worker in tuple(pool.roster.idle):
        worker.wakeup.put(None)


@uninterrupted
def gone(pool: Pool) -> None:
    """A worker's thread is about to end, or a queued call was withdrawn; called without the lock."""
    with without_convoy(pool.budget.lock):
        last = _is_empty(pool) and stopping(pool)
        waiters, pool.roster.on_empty = (pool.roster.on_empty, []) if last else ([], pool.roster.on_empty)
        ending = pool.budget.exiting
    if ending is not None:
        ending.wakeup.put(None)
    if last:
        pool.shield.rest()
        pool.budget.rest_if_over()
    for waiter in waiters:
        waiter()


@uninterrupted
def when_empty(pool: Pool, waiter: Callable[[], None]) -> None:
    """Call `waiter` once the last worker and call of a draining pool are gone; at once if they are."""
    with without_convoy(pool.budget.lock):
        if not _is_empty(pool):
            pool.roster.on_empty.append(waiter)
            return
    waiter()


def all_threads(pool: Pool) -> list[Thread]:
    """Return the threads there are; to be called without the lock, under which threads are added."""
    with without_convoy(pool.budget.lock):
        return list(pool.roster.threads)


def is_over(pool: Pool) -> bool:
    """Return True if nothing will ever run in a pool again; the lock is held."""
    return pool.draining and _is_empty(pool)


def _is_empty(pool: Pool) -> bool:
    # A queued call without a worker waits for a limiter or a permit that another pool holds.
    return not (pool.roster.workers or pool.queued)
