"""The end of the interpreter: accepted calls are finished while threads can still be started for them.

In the standard library each call has its thread when `submit` returns, so that at exit there is nothing to
do but to join threads. Here a call may get its thread later, from a call that ends or from the governor:

    1. The main thread ends, and `threading._shutdown` calls what was registered with `_register_atexit`, the
       latest first: `finish_calls`, since `concurrent.futures.thread` is imported before this module, then
       that one's `_python_exit`.
    2. `finish_calls` closes all pools, so that no call comes any more, and waits for those there are.
       Everything goes on as before meanwhile, threads start, and a stuck call may be left behind.
    3. `finish_calls` gives calls that were left behind a moment to end, and lets none of them begin another
       computing phase. Before 3.14 a thread that asks for the GIL while the interpreter ends is ended by
       `pthread_exit`. In C++ code, as that of ONNX Runtime or torch, this aborts the process: "terminate
       called without an active exception" (pytorch issue 38228). An exit handler that needs a lock which such
       a call holds across a wait gets it, seconds later: see `pool.phases`.
    4. `finish_calls` ends the governor, whose thread would be ended so, too. glibc loads a library for
       `pthread_exit`, and aborts where it cannot: all files are in use, memory is short, or after `chroot`.
    5. `_python_exit` joins the threads that it finds, which by then are leaving or left behind.
    6. A daemon thread that had passed `submit`'s look at the flags before 1 finds its pool closed.

Python 3.12.0 to 3.12.2 start no thread from 1 on (CPython issue 113964). There the main thread, which has
nothing else to do, takes the place of a worker that could not be started, one at a time; calls beyond that
wait for the workers there are.
"""

from __future__ import annotations

import sys
import time

from hybridrt.compat import register_at_exit
from hybridrt.executor.budget import GovernedBudget, shared
from hybridrt.governor.governor import start
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.roster import all_workers
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.shutdown import close
from hybridrt.pool.state import InterpreterExit, Pool, SharedBudget

__all__ = ["exit_error", "finish_calls"]

GOVERNOR = 1.0
"""Seconds that the governor gets to end; it takes less than one thousandth. Not tuned."""
GRACE = 0.25 if sys.version_info < (3, 14) else 0.0
"""Seconds that calls which were left behind get to end, all together. Not tuned."""


def exit_error() -> BaseException:
    """Return the error for a call that comes while the interpreter ends; the standard library's words."""
    return RuntimeError("cannot schedule new futures after interpreter shutdown")


def finish_calls(budget: GovernedBudget = shared) -> None:
    """Take no more calls, and wait for all there are; for those that were left behind a moment only.

    Ctrl-C ends the wait, as it ends that of the standard library.
    """
    ending = InterpreterExit()
    with without_convoy(budget.lock):
        budget.refusal, budget.exiting = exit_error, ending
        pools = list(budget.pools)
    for pool in pools:
        close(pool, exit_error, cancel_queued=False)
    with without_convoy(budget.lock):
        to_start = [worker for pool in pools for worker in dispatch_locked(pool)]
    start(to_start)
    while _is_unfinished(budget):
        worker = ending.wakeup.get()
        if worker is not None:
            worker.stand_in()
            ending.free = True
    _wait_for_left(budget)
    budget.governor.stop(GOVERNOR)


def _wait_for_left(budget: SharedBudget) -> None:
    """Wait a moment for the threads that were left behind: what they do ends within it, as a rule."""
    with without_convoy(budget.lock):
        budget.permits.ended = True
    until = time.monotonic() + GRACE
    for pool in budget.all_pools():
        for worker in all_workers(pool):
            if not worker.awaited and worker.thread.is_alive():
                worker.thread.join(max(0.0, until - time.monotonic()))


def _is_unfinished(budget: SharedBudget) -> bool:
    """Return True if a call is to be waited for; if not, the wait is over."""
    with without_convoy(budget.lock):
        unfinished = any(map(_is_unfinished_locked, budget.pools))
        if not unfinished:
            budget.exiting = None
    return unfinished


def _is_unfinished_locked(pool: Pool) -> bool:
    workers = pool.roster.workers
    if not workers:  # the call that holds what it needs is another pool's
        return pool.queued > 0
    return any(worker.awaited for worker in workers)


try:
    register_at_exit(finish_calls)  # as the standard library does
except RuntimeError:  # imported by an exit handler
    shared.refusal = exit_error
