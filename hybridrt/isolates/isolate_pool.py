"""Pools of isolates: one of processes and one of sub-interpreters, for all pools of this interpreter.

Isolates are started when a call needs one, in the thread of that call, and lent to one call at a time.
The pool of isolates's limiter, which every isolated call passes, keeps the calls at once to what the cores
and the memory allow, so no call waits for a lease. Idle isolates leave after a while, seen to by a thread
that lives only while there are some; all leave when the last pool that used them has closed, and at the end
of the program.

The own lock of a pool of isolates guards its lists and is held for microseconds; isolates are started and
ended without it. Closing and lending at the same time: a thread that gives an isolate back to a pool of
isolates that was closed in between finds another generation, and ends it.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import sys
import threading
import time
from weakref import WeakSet

from hybridrt.errors import IsolateStartError
from hybridrt.executor.budget import shared
from hybridrt.governor.governor import start
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.process import WorkerProcess
from hybridrt.isolates.subinterpreter import AVAILABLE, SubInterpreter
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.scheduler import resize_limiter_locked
from hybridrt.pool.state import Call, Pool
from hybridrt.pool.thread import empty_context

__all__ = ["IsolatePool", "close_isolates", "dismiss_if_reloaded", "interpreters", "processes", "used_by"]

IDLE_TIMEOUT = 30.0
"""Seconds after which an idle isolate leaves; starting one takes some tenths of a second of CPU time."""
FRESH = 1.0
"""Seconds after a call in which an isolate is taken to live: asking a process costs some microseconds."""
MEMORY_SHARE = 0.25
"""Part of the free memory that isolates may take; of all memory where the free part is not known. Not
measured."""


class IsolatePool:
    """Lends isolates of one kind.

    Args:
        make: What it lends.
        name: Names the limiter.
        most: Isolates at once; None for as many as cores and memory allow.
        idle_timeout: Seconds an isolate waits for a call before it leaves.
    """

    def __init__(
        self,
        make: type[Isolate],
        name: str,
        most: int | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self._make = make
        self._most = most
        self._idle_timeout = idle_timeout
        self._limiter: WatchedLimiter[Call] | None = None
        self._name = name
        self.start_clean()

    def start_clean(self) -> None:
        """Begin without isolates; a forked child has none of its own."""
        for isolate in self.isolates() if hasattr(self, "_lock") else ():
            isolate.forget()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[tuple[float, Isolate]] = []
        self._lent: dict[Isolate, int] = {}
        self._generation = 0
        self._reaper: threading.Thread | None = None

    @property
    def limiter(self) -> WatchedLimiter[Call]:
        """The limiter of the calls of the pool of isolates; how many it lets in is settled when it is asked
        for first.
        """
        return self._limiter or self._make_limiter()

    def _make_limiter(self) -> WatchedLimiter[Call]:
        with self._lock:
            if self._limiter is None:
                limit, most = self._limits()
                self._limiter = WatchedLimiter(limit, self._name, most=most)
                shared.limiters.append(self._limiter)
            return self._limiter

    def _limits(self) -> tuple[int, int]:
        """Return how many calls the limiter lets in at once, and how many if none has come in for too long.

        Isolates that never end must not keep the others from theirs; the memory counts, though.
        """
        limit = self._most or self._affordable(shared.cores)
        return limit, self._most or self._affordable(2 * limit)

    def _affordable(self, wanted: int) -> int:
        """Return how many isolates the memory allows, those that there are included."""
        memory, each = shared.memory, self._make.MEMORY
        budget = float(memory.limit)
        if memory.share is not None:
            budget = max(0.0, 1.0 - memory.share) * budget + each * len(self.isolates())
        return max(1, min(wanted, int(budget * MEMORY_SHARE / each)))

    def adapt(self) -> None:
        """Let in as many calls at once as cores and memory allow by now."""
        limiter = self._limiter
        if limiter is None or (limiter.limit, limiter.most) == (limits := self._limits()):
            return
        with without_convoy(shared.lock):
            to_start = resize_limiter_locked(limiter, *limits)
        start(to_start)

    def process_ids(self) -> list[int]:
        """Return the ids of the processes that its isolates are."""
        return [isolate.pid for isolate in self.isolates() if isinstance(isolate, WorkerProcess)]

    def isolates(self) -> tuple[Isolate, ...]:
        """Return all isolates, idle and lent."""
        return (*(isolate for _, isolate in tuple(self._idle)), *tuple(self._lent))

    @property
    def lent(self) -> int:
        """How many isolates are lent; a generator keeps its own between two steps, outside of the limiter."""
        return len(self._lent)

    def lease(self, setup: object = None) -> Isolate:
        """Return an isolate for one call, started if none is idle; the one used last comes first.

        One that was prepared for others does not fit, and leaves if there are as many as may be.

        One that came back a moment ago is not asked whether it lives: if not, its wire refuses the call,
        unless another process, forked by the function in some odd way, holds the other end.

        Raises:
            IsolateStartError: None can be started now.
            NotPortableError: None can ever be.
        """
        while True:
            with self._lock:
                taken = self._take_idle_locked(setup)
                if taken is None:
                    others = [self._idle.pop(0)[1]] if self._is_full_locked() else []
                    break
            leaves_at, isolate = taken
            if self._is_fresh(leaves_at) or isolate.is_alive():
                return isolate
            self.discard(isolate)
        self.end(*others)
        return self._start(setup)

    def lease_for(self, module: str, setup: object = None) -> Isolate | None:
        """Return an isolate that has run no function of a module yet, started if need be.

        None: calls are in all of them, or all have; no more than the limiter lets in are started ahead.

        Raises:
            IsolateStartError: None can be started now.
            NotPortableError: None can ever be.
        """
        with self._lock:
            taken = self._take_idle_locked(setup, module)
            many = len(self._idle) + len(self._lent)
            if taken is None and (self._limiter is None or many >= self._limiter.limit):
                return None
        if taken is not None:
            isolate = taken[1]
            if isolate.is_alive():
                return isolate
            self.discard(isolate)
        return self._start(setup)

    def _take_idle_locked(self, setup: object, module: str | None = None) -> tuple[float, Isolate] | None:
        """Lend the isolate of this setup that was used last, and has not run the module yet."""
        for at in range(len(self._idle) - 1, -1, -1):
            leaves_at, isolate = self._idle[at]
            if leaves_at and isolate.setup is setup and module not in isolate.modules:
                del self._idle[at]
                self._lent[isolate] = self._generation
                return leaves_at, isolate
        return None

    def _is_full_locked(self) -> bool:
        """Return True if idle isolates keep the place of one that is to be started."""
        many = len(self._idle) + len(self._lent)
        return bool(self._idle) and self._limiter is not None and many >= self._limiter.most

    def _is_fresh(self, leaves_at: float) -> bool:
        return leaves_at - time.monotonic() > self._idle_timeout - FRESH

    def _start(self, setup: object) -> Isolate:
        generation = self._generation
        try:
            isolate = self._make()
        except (OSError, RuntimeError) as error:  # the latter says that there is no thread to be had
            raise IsolateStartError(
                getattr(error, "errno", None) or errno.EAGAIN,
                f"none of the {self._name} could be started, so the call has not begun ({error}); "
                "free what is short, or use where='thread'",
            ) from error
        isolate.setup = setup
        with self._lock:
            self._lent[isolate] = generation
        isolate.is_listed()
        return isolate

    def give_back(self, isolate: Isolate) -> None:
        """Take back an isolate that is fit for another call, or end it, which takes long."""
        with self._lock:
            stays = self._lent.pop(isolate, None) == self._generation
            if stays:
                self._idle.append((time.monotonic() + self._idle_timeout, isolate))
                stays = self._reaper is not None or self._starts_reaper_locked()
        if not stays:
            self.end(isolate)

    def discard(self, isolate: Isolate) -> None:
        """End an isolate that is not fit for another call."""
        with self._lock:
            self._lent.pop(isolate, None)
        isolate.kill()
        isolate.ask_to_leave()  # where memory is short `kill` does nothing, and this lets its interpreter end
        isolate.close()

    def close(self) -> None:
        """End all idle isolates, and let those that are lent end when they come back.

        The pool of isolates stays usable: the next call starts another isolate.
        """
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
            reaper, self._reaper = self._reaper, None
            self._changed.notify_all()
        if reaper is not None and reaper is not threading.current_thread():
            reaper.join()
        self.end(*(isolate for _, isolate in idle))

    def dismiss(self) -> None:
        """The same, but do not wait: a thread ends the idle ones now, which are lent no more."""
        with self._lock:
            self._generation += 1
            self._idle = [(0.0, isolate) for _, isolate in self._idle]
            self._changed.notify_all()

    def kill(self) -> None:
        """Stop what can be stopped, at the end of the program."""
        for isolate in self.isolates():
            isolate.kill()
        self.close()
        self._make.await_left()

    def end(self, *leaving: Isolate) -> None:
        """End isolates that are idle, or were not kept; takes long."""
        for isolate in leaving:
            isolate.ask_to_leave()
        for isolate in leaving:
            isolate.close()

    # ------------------------------------------------------------------ idle ones leave

    def _starts_reaper_locked(self) -> bool:
        """See to it that idle isolates leave in time; return False where no thread can be started."""
        run, name = self._reap, "hybridrt-isolates"
        try:
            reaper = threading.Thread(target=run, name=name, daemon=True, **empty_context())
            reaper.start()
        except RuntimeError:  # the program ends, or it is a sub-interpreter that forbids daemons
            self._idle.pop()
            return False
        self._reaper = reaper
        return True

    def _reap(self) -> None:
        while True:
            with self._lock:
                if self._reaper is not threading.current_thread():
                    return
                if not self._idle:
                    # Lent ones come back through `give_back`, which starts another thread.
                    self._reaper = None
                    return
                wait = self._idle[0][0] - time.monotonic()
                if wait > 0.0:
                    self._changed.wait(wait)
                    continue
                _, isolate = self._idle.pop(0)
            self.end(isolate)


processes = IsolatePool(WorkerProcess, "processes")
interpreters = IsolatePool(SubInterpreter, "interpreters") if AVAILABLE else None
_isolate_pools = [isolate_pool for isolate_pool in (processes, interpreters) if isolate_pool is not None]
shared.children.append(processes.process_ids)
shared.host_seen += [isolate_pool.adapt for isolate_pool in _isolate_pools]
_users: WeakSet[Pool] = WeakSet()
_specs: dict[str, object] = {}
"""By the name of a module, its spec when a function of it was looked at last; a reload makes another one."""


def used_by(pool: Pool) -> None:
    """Keep the isolates until `pool` has closed."""
    if pool in _users:
        return
    with without_convoy(pool.budget.lock):
        _users.add(pool)
        pool.roster.on_empty.append(lambda: _left(pool))


def dismiss_if_reloaded(module: str) -> None:
    """Let no more calls into the isolates there are if a module was reloaded: they have its old code."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if _specs.setdefault(module, spec) is not spec:
        _specs[module] = spec
        for isolate_pool in _isolate_pools:
            isolate_pool.dismiss()


def _left(pool: Pool) -> None:
    _users.discard(pool)
    if _users:
        return
    if asyncio._get_running_loop() is None:
        close_isolates()
        return
    for isolate_pool in _isolate_pools:  # the last worker had left before the pool was closed, by this loop
        isolate_pool.dismiss()


def close_isolates() -> None:
    """End all idle isolates; those that run a call end after it."""
    for isolate_pool in _isolate_pools:
        isolate_pool.close()


def _kill_isolates() -> None:
    for isolate_pool in _isolate_pools:
        isolate_pool.kill()


def _before_fork() -> None:
    for isolate_pool in _isolate_pools:
        if isolate_pool is interpreters:
            # A child that is forked while there is a sub-interpreter crashes as it starts (CPython 3.14).
            isolate_pool.close()
        isolate_pool._lock.acquire()


def _after_fork_in_parent() -> None:
    for isolate_pool in _isolate_pools:
        isolate_pool._lock.release()


def _after_fork_in_child() -> None:
    _users.clear()
    for isolate_pool in _isolate_pools:
        isolate_pool.start_clean()


atexit.register(_kill_isolates)
if hasattr(os, "register_at_fork"):
    # The locks are held across the fork, so that the child copies no half-done change; it gets new ones.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
