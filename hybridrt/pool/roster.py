"""The workers of one pool: hired on demand, parked, sent home.

Parked workers form a stack, so that the one used last, whose caches are warm, works next, and the surplus at
the bottom reaches its idle timeout. The lock protects the lists; threads are started without it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from hybridrt.compat import stdlib_threads
from hybridrt.pool.lock import patiently
from hybridrt.pool.state import Call, Pool, Worker
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = [
    "all_threads", "all_workers", "dismiss_idle", "dismisses", "forget_worker", "gone", "has_hands", "hire",
    "holder_of", "may_leave", "park", "stopping", "when_empty",
]  # fmt: skip


def has_hands(pool: Pool, resolving: int) -> bool:
    """Tell whether a worker is parked or may be hired, those apart that resolve names."""
    return bool(pool.crew.idle) or len(pool.crew.workers) - resolving < pool.crew.max_workers


def hire(pool: Pool) -> Worker:
    """Return a new worker that `start` must be called for."""
    worker = pool.spawn(f"{pool.crew.prefix}_{next(pool.crew.numbers)}")
    pool.crew.workers.add(worker)
    pool.crew.threads.add(worker.thread)
    return worker


def park(pool: Pool, worker: Worker) -> None:
    """Put a worker without a call on the stack; it waits for its bell next."""
    pool.crew.idle.append(worker)
    if not pool.queued and stopping(pool):
        worker.bell.put(None)


def may_leave(pool: Pool, worker: Worker, *, timed_out: bool) -> bool:
    """Decide whether a parked worker goes; called by the worker, without the lock.

    The race between its timeout and a dispatch:

        1. The worker's wait times out; it has not the lock yet.
        2. A dispatch takes it off the stack and puts a call into its batch.
        3. The worker gets the lock, is not on the stack, and must wait for its bell again.

    With 3 before 2 it has left the stack and the set, and no dispatch ever sees it.
    """
    with patiently(pool.interpreter.lock):
        if worker not in pool.crew.idle:
            return False
        finished = stopping(pool) and not pool.queued
        surplus = timed_out and len(pool.crew.workers) > pool.crew.min_workers
        if not (finished or surplus or len(pool.crew.workers) > pool.crew.ceiling):
            return False
        forget_worker(pool, worker)
    return True


def dismisses(pool: Pool) -> bool:
    """Tell whether a parked worker might have to leave now."""
    return stopping(pool) or len(pool.crew.workers) > pool.crew.ceiling


def all_workers(pool: Pool) -> list[Worker]:
    """Return the same; to be called without the lock."""
    with patiently(pool.interpreter.lock):
        return list(pool.crew.workers)


def holder_of(pool: Pool, call: Call) -> Worker | None:
    """Return whose stint the running call is; one that went with another is only its first one's."""
    return next((worker for worker in pool.crew.workers if worker.runs(call)), None)


def stopping(pool: Pool) -> bool:
    """Tell whether no more calls can come."""
    return pool.draining or stdlib_threads._shutdown


def forget_worker(pool: Pool, worker: Worker) -> None:
    """Take a worker off all lists; the lock is held."""
    pool.crew.workers.discard(worker)
    if worker in pool.crew.idle:
        pool.crew.idle.remove(worker)


def dismiss_idle(pool: Pool) -> None:
    """Wake every parked worker, to see whether it should leave."""
    for worker in tuple(pool.crew.idle):
        worker.bell.put(None)


@uninterrupted
def gone(pool: Pool) -> None:
    """A worker's thread is about to end, or a queued call was withdrawn; called without the lock."""
    with patiently(pool.interpreter.lock):
        last = _is_empty(pool) and stopping(pool)
        waiters, pool.crew.on_empty = (pool.crew.on_empty, []) if last else ([], pool.crew.on_empty)
        ending = pool.interpreter.ending
    if ending is not None:
        ending.bell.put(None)
    if last:
        pool.shield.rest()
        pool.interpreter.rest_if_over()
    for waiter in waiters:
        waiter()


@uninterrupted
def when_empty(pool: Pool, waiter: Callable[[], None]) -> None:
    """Call `waiter` once the last worker and call of a draining pool are gone; at once if they are."""
    with patiently(pool.interpreter.lock):
        if not _is_empty(pool):
            pool.crew.on_empty.append(waiter)
            return
    waiter()


def all_threads(pool: Pool) -> list[Thread]:
    """Return the threads there are; to be called without the lock, which whoever adds one holds."""
    with patiently(pool.interpreter.lock):
        return list(pool.crew.threads)


def _is_empty(pool: Pool) -> bool:
    # A queued call without a worker waits for a gate or a permit that another pool holds.
    return not (pool.crew.workers or pool.queued)
