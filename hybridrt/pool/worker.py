"""A worker: one thread that runs calls, one after the other.

It parks at its inbox, claims what it finds there, runs it, books it, and takes the next. What it
runs is in `call`, which the governor reads from outside under the interpreter's lock. An idle
worker keeps nothing of a finished call alive and holds its executor by nothing at all: it knows
the pool, and the pool does not know the executor.

Threads are daemons that `concurrent.futures` joins at exit like its own, so pending calls finish;
but one that is stuck can be left behind (`leave_behind`), which a non-daemon thread never can.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import _base
from concurrent.futures import thread as stdlib_threads
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from hybridrt.errors import WorkerLostError
from hybridrt.measure.threads import ThreadProbe
from hybridrt.pool.call import Call
from hybridrt.pool.closing import break_down, worker_left
from hybridrt.pool.permits import NONE

if TYPE_CHECKING:
    from hybridrt.pool.crew import Crew

__all__ = ["Worker", "current_worker"]

_here = threading.local()


def current_worker() -> Worker | None:
    """Return the worker of the calling thread, or None outside of a pool."""
    return getattr(_here, "worker", None)


class Worker:
    """One thread of a pool.

    Attributes:
        inbox: A call to claim, or None: "look whether you should leave".
        call: The call that runs now; the innermost one where calls help each other.
        cpu_start_ns: The thread's CPU time when it began.
        probe: The thread's clocks, readable from outside; None before the thread runs.
    """

    __slots__ = (
        "__weakref__", "call", "cpu_start_ns", "crew", "inbox", "nested_cpu_ns", "nested_wall_ns", "pool",
        "probe", "sample", "thread",
    )  # fmt: skip

    def __init__(self, crew: Crew, name: str) -> None:
        self.crew = crew
        self.pool = crew.pool
        self.inbox: SimpleQueue[Call | None] = SimpleQueue()
        self.call: Call | None = None
        self.cpu_start_ns = self.nested_wall_ns = self.nested_cpu_ns = 0
        self.probe: ThreadProbe | None = None
        self.sample: Any = None
        """What the governor saw last; its own."""
        self.thread = _make_thread(self._run, name)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: No thread can be started, or the interpreter exits.
        """
        # `_python_exit` sets the flag under this lock and then joins the threads it finds: either
        # it finds this one, or this one is not started.
        with stdlib_threads._global_shutdown_lock:
            if stdlib_threads._shutdown:
                raise RuntimeError("cannot start a worker after interpreter shutdown")
            self.thread.start()
            stdlib_threads._threads_queues[self.thread] = self.inbox  # type: ignore[index]  # it is a dict

    def leave_behind(self) -> None:
        """Let the interpreter exit without waiting for this thread."""
        stdlib_threads._threads_queues.pop(self.thread, None)  # type: ignore[attr-defined]

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        _here.worker = self
        self.probe = ThreadProbe()
        call: Call | None = None
        try:
            if self._initialize():
                self.pool.hooks.thread_started()
                while (call := self._wait() if call is None else call) is not None:
                    call = self._serve(call)
                self.pool.hooks.thread_stopped()
        finally:
            self._leave()

    def _initialize(self) -> bool:
        if self.crew.initializer is None:
            return True
        try:
            self.crew.initializer(*self.crew.initargs)
        except BaseException:
            _base.LOGGER.critical("Exception in initializer:", exc_info=True)
            break_down(self.pool, self)
            return False
        return True

    def _wait(self) -> Call | None:
        """Return a claimed call, or None when it is time to leave."""
        timeout: float | None = self.crew.idle_timeout
        while True:
            try:
                call = self.inbox.get(timeout=timeout)
            except Empty:
                if self.crew.may_leave(self, timed_out=True):
                    return None
                # Assigned just now, or among the last that stay: only the inbox ends this wait.
                timeout = None
                continue
            if call is None:
                if self.crew.may_leave(self, timed_out=False):
                    return None
                continue
            claimed = self.pool.claim(self, call)
            if claimed is not None:
                return claimed

    def _serve(self, call: Call) -> Call | None:
        """Run a claimed call to its end and return the next one claimed, or None."""
        call.begin()
        self._execute(call)
        if call.quick:
            following = self.pool.finish_and_claim(self, call)
            call.deliver()
            return following
        self.pool.finish(call)
        call.deliver()
        del call
        return self.pool.claim_next(self)

    def help(self, call: Call) -> None:
        """Run a queued call that the calling thread, this worker's, would only wait for."""
        outer = self.call
        if not self.pool.claim_for_help(call):
            return
        if outer is not None:
            call.permit, outer.permit = outer.permit, NONE
        wall, cpu = self.crew.wall_ns, self.crew.cpu_ns
        nested_wall, nested_cpu = self.nested_wall_ns - wall(), self.nested_cpu_ns - cpu()
        call.begin()
        self._execute(call)
        self.nested_wall_ns, self.nested_cpu_ns = nested_wall + wall(), nested_cpu + cpu()
        if outer is not None:
            outer.permit, call.permit = call.permit, NONE
        self.pool.finish(call)
        call.deliver()

    def _execute(self, call: Call) -> None:
        """Run the function and note what it returned or raised, and what it cost."""
        wall, cpu = self.crew.wall_ns, self.crew.cpu_ns
        outer, outer_cpu_start = self.call, self.cpu_start_ns
        self.nested_wall_ns = self.nested_cpu_ns = 0
        fn, context = call.fn, call.context
        assert fn is not None
        self.cpu_start_ns = cpu_start = cpu()
        call.started_ns = started = wall()
        self.call = call
        if self.pool.hooks.on_event is not None:
            self.pool.hooks.started(call)
        try:
            if context is None:
                call.value = fn(*call.args, **call.kwargs)
            else:
                call.value = context.run(fn, *call.args, **call.kwargs)
        except BaseException as error:
            call.error = error
        call.wall_ns = wall() - started - self.nested_wall_ns
        call.cpu_ns = cpu() - cpu_start - self.nested_cpu_ns
        self.call, self.cpu_start_ns = outer, outer_cpu_start
        call.drop_work()
        # An error's traceback holds this frame: break the cycle error -> frame -> call -> error.
        del call, fn, context, outer

    def _leave(self) -> None:
        """End in good order, or clean up after a thread that was killed from outside."""
        call, self.call = self.call, None
        probe = self.probe
        with self.pool.interpreter.lock:
            self.probe = None
        if probe is not None:
            probe.close()
        if call is not None and call.error is None:
            call.error = WorkerLostError(f"the worker ended in the middle of {call.profile.name}")
            call.drop_work()
        worker_left(self, call)
        if call is not None:
            call.deliver()
        self.crew.gone()


def _make_thread(target: Any, name: str) -> threading.Thread:
    """Return a daemon thread with an empty context; a plain one where daemons are forbidden."""
    # Builds that let threads inherit the context would keep the submitter's alive.
    extra: dict[str, Any] = {"context": Context()} if sys.version_info >= (3, 14) else {}
    try:
        return threading.Thread(target=target, name=name, daemon=True, **extra)
    except RuntimeError:  # some sub-interpreters allow no daemon threads
        return threading.Thread(target=target, name=name, daemon=False, **extra)
