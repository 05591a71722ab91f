"""The ends of a pool and of its workers: close, break, a thread that cannot start, one that dies.

The rules of the lock are those of `scheduler`. These paths are rare, so they have a file of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.thread import BrokenThreadPool

from hybridrt.errors import RuntimeClosedError
from hybridrt.pool.for_each import for_each
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.roster import dismiss_idle, forget_worker, gone
from hybridrt.pool.scheduler import (
    dispatch_after_locked,
    dispatch_locked,
    dispatch_others_locked,
    dispatch_to_idle_locked,
    end_assignment_locked,
    put_back_locked,
    release_limiters_locked,
)
from hybridrt.pool.state import CANCELLED, DONE, RUNNING, Call, Pool, Worker
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = [
    "break_down",
    "close",
    "closed_error",
    "helped_lost",
    "not_started",
    "queue_again_locked",
    "refuse_all",
    "unclaimed",
    "worker_left",
]

Refusal = Callable[[], BaseException]


@uninterrupted
def close(pool: Pool, refusal: Refusal, *, cancel_queued: bool, cancel_given: bool = False) -> list[Call]:
    """Take no more calls; return those that were cancelled while queued.

    Args:
        pool: The pool to close; closing twice is fine.
        refusal: Makes the error for calls that come later.
        cancel_queued: Cancel what is queued instead of running it.
        cancel_given: And what workers were given and have not claimed, which the standard library would run.
    """
    dropped = _stop(pool, refusal, drop_queued=cancel_queued, drop_given=cancel_given)
    for_each(dropped, _drop)
    return dropped


def _drop(call: Call) -> None:
    try:
        call.drop()
    finally:
        error = "CancelledError" if call.error is None else type(call.error).__name__
        call.pool.hooks.withdrawn(call, error)


def refuse_all(calls: Iterable[Call], make_error: Callable[[], BaseException]) -> None:
    """Fail calls that were accepted and never run; without the lock."""

    def refuse(call: Call) -> None:
        error = make_error()
        try:
            call.pool.hooks.withdrawn(call, type(error).__name__)
        finally:
            call.refuse(error)

    for_each(calls, refuse)


def _stop(pool: Pool, refusal: Refusal, *, drop_queued: bool, drop_given: bool) -> list[Call]:
    to_start: list[Worker] = []
    dropped: list[Call] = []
    with without_convoy(pool.budget.lock):
        pool.refusal = pool.refusal or refusal
        pool.draining = True
        if drop_queued:
            having = pool.roster.workers if drop_given else ()
            dropped = [call for worker in having for call in unclaimed(worker)] + _take_queued(pool)
            to_start = _cancel(pool, dropped)
        if not pool.queued:
            dismiss_idle(pool)
    for call in dropped:
        call.drop_work()
    pool.start(to_start)
    gone(pool)
    return dropped


def _take_queued(pool: Pool) -> list[Call]:
    for call in pool.at_limiters:
        assert isinstance(call.place, OrderedDict)
        del call.place[call]
    taken = [*pool.admission.drain(), *pool.resolve_lane, *pool.at_limiters, *pool.backlog]
    for container in (pool.resolve_lane, pool.at_limiters, pool.backlog):
        container.clear()
    pool.queued = 0
    pool.budget.waiting_for_permit.pop(pool, None)
    return taken


def unclaimed(worker: Worker) -> Iterator[Call]:
    """Take back what a worker was given and has not claimed; one that finds nothing ends its assignment."""
    while worker.batch:
        try:
            yield worker.batch.popleft()
        except IndexError:  # the worker was faster
            return


def _cancel(pool: Pool, calls: list[Call]) -> list[Worker]:
    """Cancel calls taken out of the queue; return workers for what their limiters let through."""
    for call in calls:
        call.place = None
        call.state = CANCELLED
        call.classified_locked()
    pool.tally.cancelled += len(calls)
    touched = {other: None for call in calls for other in release_limiters_locked(pool, call)}
    return [worker for other in touched for worker in dispatch_locked(other)]


def break_down(pool: Pool, worker: Worker) -> None:
    """An initializer failed: fail what is queued, and what this worker and others were given."""
    dropped = _stop(pool, broken_error, drop_queued=True, drop_given=True)
    with without_convoy(pool.budget.lock):
        pool.refusal = broken_error
        end_assignment_locked(pool, worker)
    refuse_all(dropped, broken_error)


def not_started(worker: Worker, error: Exception) -> list[Call]:
    """A new worker's thread could not be started. Return the calls that no worker is left to run.

    What it was made for goes to a worker that has parked meanwhile, waits for one that is busy, or
    for one that another thread is about to start; without any of these, all that is queued is lost.
    While the interpreter ends, the main thread helps out, and Python 3.12.0 to 3.12.2 may say so early:

        1. The main thread ends: from now on no thread can be started.
        2. Another thread begins to run and is here, with a call.
        3. The main thread runs again, in `exit`, which hires for what it finds queued.
    """
    pool = worker.pool
    with without_convoy(pool.budget.lock):
        ending = pool.budget.exiting
        if ending is not None and ending.free:
            ending.free = False
            ending.wakeup.put(worker)
            return []
        pool.roster.workers.discard(worker)
        end_assignment_locked(pool, worker)
        queue_again_locked(worker)
        for other in {pool: None, **pool.budget.waiting_for_permit}:  # the permit may be one of theirs now
            dispatch_to_idle_locked(other)  # new threads would fail as this one did
            other.roster.retries = True
        if pool.budget.permits.left:
            pool.budget.permits.hand_on()
        pool.governor.wake_locked()
        if pool.roster.workers:
            return []
        if ending is not None:
            for another in dispatch_locked(pool):
                ending.wakeup.put(another)  # after the one whose place the main thread has taken
            return []
        if pool.budget.refusal is None and "at interpreter shutdown" in str(error):
            return []
        lost = _take_queued(pool)
        to_start = _cancel(pool, lost)
    for call in lost:
        call.drop_work()
    pool.start(to_start)
    gone(pool)
    return lost


def worker_left(worker: Worker, call: Call | None) -> None:
    """A worker's thread ends, in good order (`call` is None) or out of the middle of a call."""
    pool = worker.pool
    with without_convoy(pool.budget.lock):
        forget_worker(pool, worker)
        end_assignment_locked(pool, worker)
        queue_again_locked(worker)
        pool.tally.workers_lost += call is not None
        if call is not None and call.state == RUNNING:
            to_start = _book_lost(pool, call)
        else:
            to_start = dispatch_others_locked(pool)
    pool.start(to_start)
    if call is not None:
        pool.hooks.lost(call)


def helped_lost(call: Call) -> None:
    """A call that ran inside another one was lost."""
    pool = call.pool
    with without_convoy(pool.budget.lock):
        to_start = _book_lost(pool, call)
    pool.start(to_start)
    pool.hooks.lost(call)


def _book_lost(pool: Pool, call: Call) -> list[Worker]:
    """Count a call that its worker took with it, without its figures; start what that makes room for."""
    call.state = DONE
    pool.tally.failed += 1
    call.classified_locked()
    return dispatch_after_locked(pool, release_limiters_locked(pool, call))


def queue_again_locked(worker: Worker) -> bool:
    """Put what a worker was given and did not claim back to the front of its lane; return whether any."""
    pool, found = worker.pool, False
    while worker.batch:
        try:
            call = worker.batch.pop()
        except IndexError:  # the worker was faster
            break
        found = True
        put_back_locked(pool, call)
    return found


def closed_error() -> BaseException:
    """Return the error for a call that comes after a runtime was closed."""
    return RuntimeClosedError(
        "the runtime is closed and takes no more calls; submit within `async with Runtime()`"
    )


def broken_error() -> BaseException:
    """Return the error for calls of a pool whose initializer failed."""
    return BrokenThreadPool("A thread initializer failed, the thread pool is not usable anymore")
