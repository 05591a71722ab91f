"""The workers of one pool: hired on demand, parked, sent home.

Parked workers form a stack, so that the one used last, whose caches are warm, works next, and the
surplus at the bottom reaches its idle timeout. The interpreter's lock protects the lists; threads
are started without it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import thread as stdlib_threads
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hybridrt.pool.call import Call
from hybridrt.pool.closing import not_started
from hybridrt.pool.lock import patiently
from hybridrt.pool.stint import Stint
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.worker import Worker

if TYPE_CHECKING:
    from hybridrt.pool.pool import Pool

__all__ = ["Crew"]

logger = logging.getLogger("hybridrt")


class Crew:
    """Makes, parks and dismisses workers.

    Args:
        prefix: Thread names are `prefix_0`, `prefix_1` and so on.
        max_workers: Threads at most, those that resolve names not counted.
        min_workers: Parked threads that never time out.
        idle_timeout: Seconds a parked worker waits for a call before it leaves.
        initializer: Called once in each worker's thread before its first call.
        initargs: Its arguments.
    """

    def __init__(
        self,
        *,
        prefix: str,
        max_workers: int,
        min_workers: int,
        idle_timeout: float,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self.max_workers = max_workers
        self.min_workers = min_workers
        self.idle_timeout = min(idle_timeout, TIMEOUT_MAX)
        self.initializer = initializer
        self.initargs = initargs
        self.ceiling = max_workers
        """Threads worth keeping; the paper's policy lowers it with its size."""
        self._prefix = prefix
        self.forget()

    def join_pool(self, pool: Pool) -> None:
        """Work for `pool`, by its interpreter's clock."""
        self.pool = pool
        clock = pool.interpreter.clock
        measured = (clock.wall_ns, clock.cpu_ns, clock.wall_ns)
        self.wall_ns, self.cpu_ns, self.queue_ns = measured if pool.measures else (_no_time,) * 3

    def forget(self) -> None:
        """Begin without workers, as a forked child must, where their threads are not."""
        for worker in getattr(self, "workers", ()):
            worker.leave_behind()
        self.workers: set[Worker] = set()
        self.idle: list[Worker] = []
        self.threads: WeakSet[Thread] = WeakSet()
        self._numbers = itertools.count()
        self.on_empty: list[Callable[[], None]] = []
        """Called, without the lock, when the last worker has left a draining pool."""

    def has_hands(self, resolving: int) -> bool:
        """Tell whether a worker is parked or may be hired, those apart that resolve names."""
        return bool(self.idle) or len(self.workers) - resolving < self.max_workers

    def hire(self) -> Worker:
        """Return a new worker that `start` must be called for."""
        worker = Worker(self, f"{self._prefix}_{next(self._numbers)}")
        self.workers.add(worker)
        self.threads.add(worker.thread)
        return worker

    @uninterrupted
    def start(self, hired: list[Worker], submitted: Call | None = None) -> None:
        """Start threads; `submitted` is the call whose submission hired them.

        Raises:
            RuntimeError, MemoryError: No thread could be started and `submitted` has nobody to run it.
        """
        for worker in hired:
            try:
                worker.start()
            except (RuntimeError, MemoryError) as error:
                lost = not_started(worker, error)
                for call in lost:
                    if call is not submitted:
                        self._lose(call, error)
                if submitted in lost:
                    raise

    def _lose(self, call: Call, error: Exception) -> None:
        """Fail an accepted call that nobody is left to run; at exit nobody would look at its future."""
        if self.stopping():
            logger.error("%s was accepted and never ran: %s", call.profile.name, error)
        call.refuse(error)
        self.pool.hooks.withdrawn(call, type(error).__name__)

    def park(self, worker: Worker) -> None:
        """Put a worker without a call on the stack; it waits for its bell next."""
        self.idle.append(worker)
        if not self.pool.queued and self.stopping():
            worker.bell.put(None)

    def patience(self) -> float | None:
        """Return how long a parked worker waits: for ever, if it would stay anyway."""
        return self.idle_timeout if len(self.workers) > self.min_workers else None

    def may_leave(self, worker: Worker, *, timed_out: bool) -> bool:
        """Decide whether a parked worker goes; called by the worker, without the lock.

        The race between its timeout and a dispatch:

            1. The worker's wait times out; it has not the lock yet.
            2. A dispatch takes it off the stack and puts a call into its batch.
            3. The worker gets the lock, is not on the stack, and must wait for its bell again.

        With 3 before 2 it has left the stack and the set, and no dispatch ever sees it.
        """
        pool = self.pool
        with patiently(pool.interpreter.lock):
            if worker not in self.idle:
                return False
            finished = self.stopping() and not pool.queued
            surplus = timed_out and len(self.workers) > self.min_workers
            if not (finished or surplus or len(self.workers) > self.ceiling):
                return False
            self.forget_worker(worker)
        return True

    def dismisses(self) -> bool:
        """Tell whether a parked worker might have to leave now."""
        return self.stopping() or len(self.workers) > self.ceiling

    def stints(self) -> Iterator[Stint]:
        """Return the workers, as what runs calls; the lock is held."""
        return iter(self.workers)

    def all_stints(self) -> list[Stint]:
        """Return the same; to be called without the lock."""
        with patiently(self.pool.interpreter.lock):
            return list(self.stints())

    def holder_of(self, call: Call) -> Stint | None:
        """Return whose stint the running call is; one that went with another is only its first one's."""
        return next((stint for stint in self.stints() if stint.runs(call)), None)

    def stopping(self) -> bool:
        """Tell whether no more calls can come."""
        return self.pool.draining or stdlib_threads._shutdown

    def forget_worker(self, worker: Worker) -> None:
        """Take a worker off all lists; the lock is held."""
        self.workers.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)

    def dismiss_idle(self) -> None:
        """Wake every parked worker, to see whether it should leave."""
        for worker in tuple(self.idle):
            worker.bell.put(None)

    @uninterrupted
    def gone(self) -> None:
        """A worker's thread is about to end, or a queued call was withdrawn; called without the lock."""
        with patiently(self.pool.interpreter.lock):
            last = self._is_empty() and self.stopping()
            waiters, self.on_empty = (self.on_empty, []) if last else ([], self.on_empty)
            ending = self.pool.interpreter.ending
        if ending is not None:
            ending.bell.put(None)
        if last:
            self.pool.shield.rest()
        for waiter in waiters:
            waiter()

    @uninterrupted
    def when_empty(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once the last worker and call of a draining pool are gone; at once if they are."""
        with patiently(self.pool.interpreter.lock):
            if not self._is_empty():
                self.on_empty.append(waiter)
                return
        waiter()

    def join(self) -> None:
        """Wait until a draining pool has no call and no thread any more.

        Raises:
            RuntimeError: The calling thread is one of them.
        """
        self._join_threads()  # raises in a worker of its own, which would wait for ever below
        emptied = Event()
        self.when_empty(emptied.set)
        emptied.wait()
        self._join_threads()

    def _join_threads(self) -> None:
        for thread in self.all_threads():
            if thread.is_alive():  # one that has not started, or never will, cannot be joined
                thread.join()

    def all_threads(self) -> list[Thread]:
        """Return the threads there are; to be called without the lock, which whoever adds one holds."""
        with patiently(self.pool.interpreter.lock):
            return list(self.threads)

    def _is_empty(self) -> bool:
        # A queued call without a worker waits for a gate or a permit that another pool holds.
        return not (self.workers or self.pool.queued)


def _no_time() -> int:
    return 0
