"""`AdaptiveThreadPoolExecutor`: the standard library's surface over a pool.

The executor is what users hold; the pool, the workers and the governor never refer to it, so that
it can be collected, upon which its pool drains and its workers leave.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Literal, ParamSpec, TypeVar, get_args

from hybridrt.arguments import check_choice, check_count, check_flag, check_seconds
from hybridrt.compat import stdlib_threads
from hybridrt.control.checked import CheckedPolicy, check_policy
from hybridrt.control.demand import DemandPolicy
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.replay import Recording
from hybridrt.control.throughput import ThroughputPolicy
from hybridrt.control.window import Limits, Policy
from hybridrt.executor.budget import shared
from hybridrt.executor.exit import exit_error
from hybridrt.executor.future import ThreadCall
from hybridrt.executor.report import pool_statistics
from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.executor.watched_pool import WatchedPool
from hybridrt.measure.moved import counts_moved
from hybridrt.pool.admission import FifoAdmission, LaneAdmission
from hybridrt.pool.hooks import HookRunner, Hooks
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.roster import dismiss_idle
from hybridrt.pool.run_queue import Admission
from hybridrt.pool.shutdown import broken_error, close
from hybridrt.pool.state import QUEUED, Call, Pool, Roster
from hybridrt.statistics import Statistics
from hybridrt.values import PolicyName

__all__ = ["AdaptiveThreadPoolExecutor"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORKERS = 256
THREAD_BYTES = 4 << 20
"""Memory to reckon with per thread, stack and arenas. Not measured."""


def _thread_call(pool: ThreadPool) -> Call:
    """Return the call for a `submit` in a thread without a loop."""
    call = ThreadCall()
    call.completions = None
    return call


_make_call: Callable[[ThreadPool], Call] = _thread_call


def use_calls(make: Callable[[ThreadPool], Call]) -> None:
    """Let each `submit` make its call by `make`, which it calls itself: loops want calls of their own."""
    global _make_call
    _make_call = make


def _highest(max_workers: int | None, min_workers: int, memory_max: int | None) -> int:
    """Return the hard limit of threads: what was asked for, else 256, and less where memory is short.

    A number that was asked for is lowered by a budget that was asked for, too, not by what the host has.
    """
    budget = shared.memory.given if max_workers is None else memory_max
    if memory_max is not None and budget is not None:
        budget = min(memory_max, budget)
    most = MAX_WORKERS if max_workers is None else max_workers
    return most if budget is None else max(min_workers, min(most, max(4, budget // THREAD_BYTES)))


class AdaptiveThreadPoolExecutor(ThreadPoolExecutor):
    """A thread pool that sizes itself by what its calls do.

    A drop-in for `concurrent.futures.ThreadPoolExecutor`, which it is a subclass of because asyncio
    insists: everything that class promises holds here. Threads start on demand and leave when idle.
    Under the `demand` policy at most one long and one short call compute at a time while there is a
    GIL, waiting calls run beside them in threads of their own, and name resolution never queues
    behind other calls (it has up to 16 threads beyond `max_workers`).

    Safe to use from any thread. Shutting down, cancelling, and interpreter exit are as in the
    standard library. In a forked child the executor starts empty; calls queued in the parent do
    not run there.

    Cost: a submit takes some microseconds; an idle executor takes no CPU time.

    Args:
        max_workers: Hard limit of threads, at least 1. None: 256, less where memory is short. 1
            runs one call at a time in the order of submission, so it works as a mutex.
        thread_name_prefix: Prefix of the thread names.
        initializer: Called in each new thread. If it raises, the executor is broken.
        initargs: Arguments of `initializer`.
        min_workers: Idle threads that stay, 0 or more, and the least size of the `paper` policy.
        policy: "demand"; "paper" for the published controller of the blocking ratio; "throughput" for the one
            that follows the bytes that threads read and write, on Linux; or a `Policy` of your own.
        queue_max: Queued calls at most, at least 1; None for no bound. `submit` then raises `QueueFullError`.
        context: "copy" runs each call in a copy of the submitter's context variables, "none" in
            the thread's own. None: "none" with an initializer, whose state a copy would hide.
        idle_timeout: Seconds a thread waits for a call before it leaves; `math.inf` for ever.
        hooks: What to tell about calls and threads.
        measure: Whether calls are measured. False leaves nothing to be governed by: calls start in the order
            of submission, those that compute like any other, and no class is learned. The same for all with
            `HYBRIDRT_MEASURE=0` in the environment when the executor is made.
        phases: Whether calls that wait and compute by turns hold a permit in each phase, where waits can be
            seen: it takes a tool id of `sys.monitoring`, on CPython 3.11 a profile function in workers. Off
            too with `HYBRIDRT_PHASES=0` in the environment when the executor is made.
        memory_max: Bytes of memory that this process and its isolates may use, until the executor is shut
            down; the least of all executors counts for all. Lowers `max_workers` to one thread per 4 MiB, but
            not below four. From nine tenths of it in use on, the `demand` policy adds no thread; isolates get
            a quarter of what is free. None: what the host and its control groups allow.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of its range.
        NotImplementedError: policy="throughput" where the kernel does not count the bytes of threads.
    """

    _counter = itertools.count().__next__

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        min_workers: int = 1,
        policy: PolicyName | Policy = "demand",
        queue_max: int | None = None,
        context: Literal["copy", "none"] | None = None,
        idle_timeout: float = 10.0,
        hooks: Hooks | None = None,
        measure: bool = True,
        memory_max: int | None = None,
        phases: bool = True,
    ) -> None:
        check_count("min_workers", min_workers, least=0)
        if max_workers is not None and not isinstance(max_workers, int):
            raise TypeError(f"max_workers must be an int, got {max_workers!r}")
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_workers is not None and min_workers > max_workers:
            raise ValueError(f"min_workers must be at most max_workers ({max_workers}), got {min_workers}")
        if hooks is not None and not isinstance(hooks, Hooks):
            raise TypeError(f"hooks must be Hooks(...) or None, got {hooks!r}")
        if policy not in get_args(PolicyName):
            check_policy(policy, get_args(PolicyName))
        check_choice("context", context, ("copy", "none", None))
        check_count("queue_max", queue_max, least=1, optional=True)
        check_seconds("idle_timeout", idle_timeout)
        check_flag("measure", measure)
        check_flag("phases", phases)
        check_count("memory_max", memory_max, least=1, unit="bytes", optional=True)
        max_workers = _highest(max_workers, min_workers, memory_max)
        measures = measure and os.environ.get("HYBRIDRT_MEASURE", "1") != "0"
        # ThreadPoolExecutor.__init__ is skipped on purpose: its queue and threads are replaced.
        self._copies_context = (context or ("none" if initializer else "copy")) == "copy"
        self._thread_name_prefix = thread_name_prefix or f"AdaptiveThreadPoolExecutor-{self._counter()}"
        roster = Roster(
            prefix=self._thread_name_prefix,
            max_workers=max_workers,
            min_workers=min_workers,
            idle_timeout=idle_timeout,
            initializer=initializer,
            initargs=initargs,
        )
        limits = Limits(
            lowest=max(1, min_workers),
            highest=max_workers,
            capacity=shared.capacity,
            cores=shared.cpu,
        )
        law = _law(policy)
        self._policy_name = law.name if isinstance(law, CheckedPolicy) else str(policy)
        admission = _admission(law, in_order=max_workers == 1 or not measures)
        make = ThreadPool if hooks is None or hooks.on_event is None else WatchedPool
        self._pool = make(
            budget=shared,
            admission=admission,
            policy=law,
            limits=limits,
            queue_max=queue_max,
            roster=roster,
            hooks=HookRunner(hooks),
            measures=measures,
            memory_max=memory_max,
            phases=phases and measures and os.environ.get("HYBRIDRT_PHASES", "1") != "0",
        )
        self._finalizer = weakref.finalize(self, _drain_orphan, self._pool)
        self._finalizer.atexit = False

    # ------------------------------------------------------------------ concurrent.futures

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call of `fn` and return its future.

        Raises:
            QueueFullError: The queue holds `queue_max` calls; this one never runs.
            RuntimeError: The executor was shut down, or the interpreter exits.
        """
        if stdlib_threads._shutdown:
            raise exit_error()
        pool = self._pool
        call = _make_call(pool)
        call.state = QUEUED
        call.place = call.value = None
        call.fn, call.args, call.kwargs = fn, args, kwargs
        call.context = copy_context() if self._copies_context else None
        call.pool = pool
        profile = call.profile = pool.profiles.of(fn, args)
        if profile.resolves:
            call.resolves = True
        pool.push(call)
        return call  # type: ignore[return-value]  # or what asyncio awaits in its place

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; let the queued ones run, or cancel them; wait for all threads.

        Without `wait` it returns at once and the threads go on until the queue is empty. It has no
        deadline, as in the standard library: deadlines belong to `Runtime` and `run`.
        """
        close(self._pool, _shut_down_error, cancel_queued=cancel_futures)
        if wait:
            self._pool.join()

    # ------------------------------------------------------------------ beyond it

    def statistics(self) -> Statistics:
        """Return what the executor knows about itself; see `Statistics`."""
        return pool_statistics(self._pool, self._policy_name, self._pool.loop_delay())

    def decision_log(self) -> Recording:
        """Return the last 512 windows and the sizes decided in them, to be replayed; see `Recording`."""
        with without_convoy(shared.lock):
            return self._pool.sizing.log()

    # What monitoring libraries read of the standard library's class.

    @property
    def _max_workers(self) -> int:  # type: ignore[override]  # there it is a plain attribute
        return self._pool.limits.highest

    @property
    def _threads(self) -> set[Any]:  # type: ignore[override]
        return {worker.thread for worker in tuple(self._pool.roster.workers)}

    @property
    def _broken(self) -> bool | str:  # type: ignore[override]
        return str(broken_error()) if self._pool.refusal is broken_error else False

    @property
    def _shutdown(self) -> bool:  # type: ignore[override]
        return self._pool.refusal is not None


def _law(policy: PolicyName | Policy) -> Policy:
    """Return the law of that name, or the user's own."""
    if not isinstance(policy, str):
        return CheckedPolicy(policy)
    if policy == "throughput" and not counts_moved():
        raise NotImplementedError(
            "policy='throughput' needs /proc/self/task/TID/io, which this system does not have; use 'demand'"
        )
    return _LAWS[policy]()


_LAWS: dict[PolicyName, Callable[[], Policy]] = {
    "demand": DemandPolicy,
    "paper": PaperPolicy,
    "throughput": ThroughputPolicy,
}


def _admission(law: Policy, *, in_order: bool) -> Admission[Call]:
    """Return the queue discipline: with one worker, order is what users rely on."""
    return FifoAdmission() if in_order or law.governs == "all" else LaneAdmission(shared.permits)


def _drain_orphan(pool: Pool) -> None:
    """The executor was collected: let its workers leave when the queue is empty.

    May run in the middle of anything, a locked section included, so it takes no lock. A worker that
    parks meanwhile either sees `draining` or is on the stack when it is read.
    """
    pool.draining = True
    dismiss_idle(pool)


def _shut_down_error() -> BaseException:
    return RuntimeError("cannot schedule new futures after shutdown")
