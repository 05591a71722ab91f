"""A pool with real threads: it pushes calls into the scheduler and starts the threads of new workers."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from functools import partial
from threading import Event
from typing import Any, Protocol

from hybridrt.control.window import Limits, Policy
from hybridrt.governor.sizing import Sizing
from hybridrt.pool.for_each import for_each
from hybridrt.pool.roster import all_threads, stopping, when_empty
from hybridrt.pool.scheduler import push
from hybridrt.pool.shutdown import not_started, refuse_all
from hybridrt.pool.state import Call, Pool, SharedBudget, Worker
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.worker import WorkerThread
from hybridrt.values import LoopDelay

__all__ = ["ThreadPool"]

logger = logging.getLogger("hybridrt")


class LoopMeasure(Protocol):
    """Measures the delay of one loop."""

    def is_over(self) -> bool:
        """Return True if it measures no more."""
        ...

    def summary(self) -> LoopDelay | None:
        """Return the delay over the last minute, or None without a beat in it; from any thread."""
        ...


class ThreadPool(Pool):
    """The calls of one executor, its workers, and their threads; see `Pool`."""

    def __init__(self, *, budget: SharedBudget, policy: Policy, limits: Limits, **rest: Any) -> None:
        sizing = Sizing(policy, limits, budget.clock.wall_ns())
        super().__init__(budget=budget, policy=policy, sizing=sizing, limits=limits, **rest)

    def start_clean(self) -> None:
        """Forget the loops, too: a forked child has none of them."""
        super().start_clean()
        self.loops: dict[AbstractEventLoop, LoopMeasure] = {}
        """Those that have submitted calls without a runtime, and what measures each."""

    def loop_delay(self) -> LoopDelay | None:
        """Return the delay of the loop that suffers most of those; None without a beat in the last minute."""
        measured = [delay for loop in tuple(self.loops.values()) if (delay := loop.summary()) is not None]
        return max(measured, key=lambda delay: delay.p99, default=None)

    push = push  # the scheduler's as it is: a call more on the way would cost each submission

    def spawn(self, name: str) -> Worker:
        return WorkerThread(self, name)

    @uninterrupted
    def start(self, to_start: list[Worker], submitted: Call | None = None) -> None:
        for_each(to_start, partial(self._start_one, submitted))

    def _start_one(self, submitted: Call | None, worker: Worker) -> None:
        try:
            worker.start()
        except (RuntimeError, MemoryError) as error:
            lost = not_started(worker, error)
            self._lose([call for call in lost if call is not submitted], error)
            if submitted in lost:
                raise

    def _lose(self, calls: list[Call], error: Exception) -> None:
        """Fail accepted calls that no worker is left to run; at exit their futures would not be looked at."""
        try:
            refuse_all(calls, lambda: error)
        finally:
            for call in calls if stopping(self) else ():
                logger.error("%s was accepted and never ran: %s", call.profile.name, error)

    def join(self) -> None:
        """Wait until a draining pool has no call and no thread any more.

        Raises:
            RuntimeError: The calling thread is one of them.
        """
        self._join_threads()  # raises in a worker of its own, which would wait for ever below
        emptied = Event()
        when_empty(self, emptied.set)
        emptied.wait()
        self._join_threads()

    def _join_threads(self) -> None:
        for thread in all_threads(self):
            if thread.is_alive():  # one that has not started, or never will, cannot be joined
                thread.join()
