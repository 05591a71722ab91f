"""The state that the one lock protects: calls, workers, pools, and what all pools share.

Records. What happens to them is told by the files above: the path of a call in `scheduler`, the lists of
workers in `roster`, the rare transitions in `withdraw`, `shutdown`, `nested` and `rebalance`, the threads
in `worker` and `thread_pool`.

One lock, held for a microsecond at a time, guards every queue, count and state of every pool: a permit that
one pool gives back may start a call of another, and a lane is interpreter-wide. With one lock there is no
order of locks to get wrong. Nothing slow and no code of others runs under it: threads are started, futures
completed and hooks called after it is released.

Garbage collection may run code of others in the middle of a locked section, which is why weakref callbacks
of this package only ring a `SimpleQueue`, which is reentrant, and take no lock.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import replace
from queue import SimpleQueue
from threading import TIMEOUT_MAX, Thread
from typing import Any, Protocol
from weakref import WeakSet

from hybridrt.clock import Clock, SystemClock
from hybridrt.control.replay import Recording
from hybridrt.control.window import Limits, Policy, State
from hybridrt.measure.gil import switch_interval_ns
from hybridrt.measure.host import Memory, gil_enabled, read_memory, usable_cores
from hybridrt.measure.threads import ThreadProbe
from hybridrt.observe.delay_shares import DelayShares
from hybridrt.observe.functions import Profile
from hybridrt.observe.gil_load import GilLoad
from hybridrt.observe.kept import Kept
from hybridrt.observe.profiles import Profiles
from hybridrt.placements import Placement
from hybridrt.pool.call_state import ASSIGNED, CANCELLED, DONE, QUEUED, RUNNING, Submission
from hybridrt.pool.interpreter_exit import InterpreterExit
from hybridrt.pool.limiters import Limiter, WatchedLimiter
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.native_limits import NativeLimits
from hybridrt.pool.permits import NONE, Permits
from hybridrt.pool.phase import Phase
from hybridrt.pool.protocols import Batching, Governing, Phasing, Placed, Shielding
from hybridrt.pool.reprs import show_call, show_pool, show_worker
from hybridrt.pool.run_queue import Admission
from hybridrt.pool.tally import Tally
from hybridrt.values import Decision

__all__ = [
    "ASSIGNED", "CANCELLED", "DONE", "IN_ISOLATE", "IN_ISOLATE_BEARER", "NO_WORKERS", "QUEUED", "RUNNING",
    "Call", "InterpreterExit", "Pool", "Roster", "SharedBudget", "Submission", "Worker",
]  # fmt: skip

IN_ISOLATE, IN_ISOLATE_BEARER = "in another interpreter", "its isolate"
"""`position` and `bearer` of a call in an isolate."""


class Call:
    """One function with its arguments, on its way through a pool; a mixin for a future class.

    Its life, every step under the lock:

        QUEUED -> ASSIGNED -> RUNNING -> DONE
           \\----------\\--> CANCELLED

    QUEUED lies in exactly one container, `place`. ASSIGNED is on its way to a parked worker and can still be
    withdrawn. RUNNING was claimed by the thread that runs it; nothing can take it back. In a batch the claim
    itself is not under the lock; see `worker`. The future that callers see is the call itself: `ThreadCall`
    for `submit`, the loop's own class for `@offload`. A call that ended keeps neither function nor arguments.

    Rarely used fields are class attributes, so that an ordinary call does not pay for them.
    """

    fn: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    context: Context | None
    profile: Profile
    pool: Pool

    state: int = QUEUED
    place: OrderedDict[Call, None] | deque[Call] | None = None
    """The container it is queued in, or the batch of the worker it is assigned to."""
    quick: bool = False
    """Delivering its result takes no time and runs no code of the user's."""
    patient: bool = False
    """Waits for space in a full queue instead of being refused."""
    resolves: bool = False
    """Belongs to the name-resolution lane."""
    permit: int = NONE
    """What it was started with; from then on its worker holds it."""
    in_waiting_lane: bool = False
    unclassified: bool = False
    limiters: tuple[Limiter[Call], ...] = ()
    limiters_passed: int = 0
    spills: bool = False
    """It can run somewhere else: one that waits for too long at a watched limiter is sent back to its
    caller."""
    isolated: bool = False
    """It runs in an isolate; its worker or its loop only waits for the result."""
    abandoned: bool = False
    cancel_requested: bool = False
    queued_ns: int = 0
    started_ns: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    run_delay_ns: int = 0
    """Time it was ready to run and had no core; 0 of calls that were not asked."""
    submission: Submission | None = None
    """What its events say, if there is a hook for them."""
    blocks: int | None = None
    """How often it waited for anything, the GIL included; None if it was not asked."""
    value: Any = None
    error: BaseException | None = None

    __repr__ = show_call

    def age_ns(self) -> int:
        """Return the time since the call was queued."""
        return self.pool.roster.wall_ns() - self.queued_ns

    def classified_locked(self) -> None:
        """Count the call no more among those that are to show what their function does; the lock is held."""
        if self.unclassified:
            self.unclassified = False
            self.profile.unclassified -= 1

    def deliver(self) -> None:
        """Hand value or error to the caller; called once, without the lock."""
        raise NotImplementedError

    def deliver_quickly(self) -> None:
        """Deliver it in a thread where no code of the user's may run."""
        self.deliver()

    def settle(self) -> None:
        """Complete what is awaited; called on the loop whose completion queue has the call."""
        raise NotImplementedError

    def refuse(self, error: BaseException) -> None:
        """Fail a call that never ran; called once, without the lock."""
        raise NotImplementedError

    def drop(self) -> None:
        """Cancel a call that a close took out of the queue; called once, without the lock."""
        raise NotImplementedError

    def drop_work(self) -> None:
        """Forget function, arguments and context."""
        self.fn = None
        self.args = ()
        self.kwargs = {}
        self.context = None


class Worker:
    """What is known of one thread of a pool: the calls that it was given, and what these hold.

    What a worker takes from the queue at once is an *assignment*: one call, or a batch of very short calls of
    one function. Permit, lane and the count of busy threads belong to the assignment, so that a batch pays
    for them once. How its calls are claimed is told in `worker`, whose class fills in the methods.

    Attributes:
        serving: An assignment is open; with `permit`, `waits` and `resolves` what it holds. Changed with the
            lock held only.
        abandoned: The caller of its call has left.
        call: The call that runs now; the innermost one where calls help each other.
        awaited: Whether the interpreter's exit waits for it.
        wakeup: Rung when there is something in `batch` and the worker is `asleep`, or to leave.
        batch: The calls of the assignment that have not been claimed yet.
        held: Calls of the batch that have ended and are to be delivered together.
        nested_wall_ns: Time within its call that belongs to others, or was spent in line for a permit.
        outer: Calls that wait for `call`, which the thread runs for them; the innermost first.
        cpu_start_ns: The thread's CPU time when its call began.
        phase: Of a call that has come back from a wait: what its computing phase is; None before the first.
        probe: The thread's clocks, readable from outside; None before the thread runs.
        sample: What the governor saw last; its own.
        thread: It may not have started.
    """

    __slots__ = (
        "__weakref__", "abandoned", "asleep", "awaited", "batch", "call", "cpu_start_ns", "held",
        "nested_wall_ns", "outer", "permit", "phase", "pool", "probe", "resolves", "sample", "serving",
        "thread", "waits", "wakeup",
    )  # fmt: skip

    thread: Thread

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.serving = self.waits = self.resolves = self.abandoned = False
        self.permit = NONE
        self.phase: Phase | None = None
        self.call: Call | None = None
        self.wakeup: SimpleQueue[None] = SimpleQueue()
        self.batch: deque[Call] = deque()
        self.held: deque[Call] = deque()
        self.outer: tuple[Call, ...] = ()
        self.asleep = False
        self.awaited = True
        self.cpu_start_ns = self.nested_wall_ns = 0
        self.probe: ThreadProbe | None = None
        self.sample: Any = None

    __repr__ = show_worker

    @property
    def bearer(self) -> str:
        """What has the call, in a sentence."""
        raise NotImplementedError

    def calls(self) -> tuple[Call, ...]:
        """Return the call that runs now, and those that wait for it in the same thread."""
        # That sets `outer` before `call` on the way in, and `call` before `outer` on the way out: a reader
        # that finds the same call before and after has read what waits for it.
        while True:
            call, outer = self.call, self.outer
            if call is self.call:
                return outer if call is None or call in outer else (call, *outer)

    def runs(self, call: Call) -> bool:
        """Return True if the call runs here, or waits for one that does."""
        return self.call is call or call in self.outer

    def start(self) -> None:
        """Start the thread."""
        raise NotImplementedError

    def release(self, *, quick: bool = False) -> None:
        """Deliver the calls of the batch that have ended; from any thread, without the lock."""
        raise NotImplementedError

    def stand_in(self) -> None:
        """Work in the calling thread, which has nothing else to do, if the own one cannot be started."""
        raise NotImplementedError

    def position(self) -> str:
        """Say where the call stands."""
        raise NotImplementedError

    def leave_behind(self) -> None:
        """Let the interpreter exit without waiting for the call."""
        raise NotImplementedError

    def cpu_so_far(self) -> int | None:
        """Return the CPU nanoseconds of the call that runs; None where that cannot be read."""
        raise NotImplementedError


NO_WORKERS: list[Worker] = []
"""No worker to start; never changed."""


class Roster:
    """The workers of one pool.

    Args:
        prefix: Thread names are `prefix_0`, `prefix_1` and so on.
        max_workers: Threads at most, those that resolve names not counted.
        min_workers: Parked threads that never time out.
        idle_timeout: Seconds a parked worker waits for a call before it leaves.
        initializer: Called once in each worker's thread before its first call.
        initargs: Its arguments.
    """

    wall_ns: Callable[[], int]
    cpu_ns: Callable[[], int]
    queue_ns: Callable[[], int]

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
        self.prefix = prefix
        self.forget()

    def forget(self) -> None:
        """Begin without workers, as a forked child must, where their threads are not."""
        for worker in getattr(self, "workers", ()):
            worker.serving = worker.waits = worker.resolves = worker.abandoned = False
            worker.permit = NONE
            worker.leave_behind()
        self.workers: set[Worker] = set()
        self.idle: list[Worker] = []
        self.threads: WeakSet[Thread] = WeakSet()
        self.numbers = itertools.count()
        self.on_empty: list[Callable[[], None]] = []
        """Called, without the lock, when the last worker has left a draining pool."""
        self.retries = False
        """A call was queued again for want of a thread: the governor's next step looks for one."""


class Sizer(Protocol):
    """The size of one pool and how it came about."""

    crowd: float
    state: State

    @property
    def decisions(self) -> Iterable[Decision]:
        """The last decisions, oldest first."""
        ...

    def close_window(self, pool: Pool, now_ns: int) -> bool:
        """Decide if a window is over; return whether the size changed."""
        ...

    def tell_failure(self) -> None:
        """Log that the policy fails; without the lock."""
        ...

    def set_limits(self, limits: Limits) -> None:
        """Go by other bounds from now on."""
        ...

    def log(self) -> Recording:
        """Return the last windows and what was decided in them."""
        ...


class Watcher(Protocol):
    """What is told about calls and threads; see `hooks`."""

    on_event: Any

    def thread_started(self) -> None: ...

    def thread_stopped(self) -> None: ...

    def submitted(self, call: Call, place: Placement = "thread") -> None: ...

    def rejected(self, call: Call, error: BaseException) -> None: ...

    def inline(self, fn: Callable[..., Any], name: str, clock: Clock) -> Callable[..., Any]: ...

    def withdrawn(self, call: Call, error: str) -> None: ...

    def started(self, call: Call) -> None: ...

    def abandoned(self, call: Call, error: str) -> None: ...

    def finished(self, call: Call, at_ns: int = 0) -> None: ...

    def lost(self, call: Call) -> None: ...


class Pool:
    """The calls of one executor.

    Args:
        budget: What is shared with the other pools.
        admission: Chooses among the queued calls.
        policy: Moves `limit`.
        sizing: Asks it.
        limits: Bounds of the policy and of the number of threads.
        queue_max: Calls queued at most; None for no bound.
        roster: Its workers.
        hooks: What to tell about calls and threads.
        measures: Whether workers read their clocks.
        memory_max: Bytes that the process may use while the pool is there; None for what the host allows.
        phases: Whether calls give their permit back where they wait, and ask for one when they come back.
    """

    def __init__(
        self,
        *,
        budget: SharedBudget,
        admission: Admission[Call],
        policy: Policy,
        sizing: Sizer,
        limits: Limits,
        queue_max: int | None,
        roster: Roster,
        hooks: Watcher,
        measures: bool = True,
        memory_max: int | None = None,
        phases: bool = True,
    ) -> None:
        self.phases = phases
        self.budget = budget
        self.admission = admission
        self.policy = policy
        self.limits = limits
        self.roster = roster
        self.hooks = hooks
        self.profiles = Profiles(without_convoy=without_convoy)
        self.placed: dict[Any, tuple[Profile, tuple[Placed, ...]]] = {}
        """Functions whose calls are placed, by the key of the profile; for the statistics."""
        self.delay_shares = DelayShares()
        """Which functions make the loop late that the pool works for."""
        self.tally = Tally()
        self.sizing = sizing
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error for new calls once the pool is closed or broken."""
        self.draining = False
        """No calls come any more: workers leave when the queue is empty."""
        self.measures = measures
        self.memory_max = memory_max
        self.queue_room = (1 << 62) if queue_max is None else queue_max
        self.start_clean()
        self.use_clocks()
        budget.take_in(self)

    __repr__ = show_pool

    def use_clocks(self) -> None:
        """Let workers read the clocks, or none where nothing is measured."""
        clock = self.budget.clock
        measured = (clock.wall_ns, clock.cpu_ns, clock.wall_ns)
        roster = self.roster
        roster.wall_ns, roster.cpu_ns, roster.queue_ns = measured if self.measures else (_no_time,) * 3

    def start_clean(self) -> None:
        """Forget queue and workers: a forked child has neither the threads nor the callers."""
        self.lock, self.governor = self.budget.lock, self.budget.governor
        self.shield = self.budget.shield
        self.profiles.start_clean(self.lock)
        self.admission.drain()
        self.roster.forget()
        self.queued = 0
        self.backlog: OrderedDict[Call, None] = OrderedDict()
        self.resolve_lane: OrderedDict[Call, None] = OrderedDict()
        self.at_limiters: OrderedDict[Call, None] = OrderedDict()
        self.busy = self.resolving = self.waiting = 0
        self.in_line = 0
        """Of those: calls that have come back from a wait and stand in line for a permit."""
        self.abandoned = 0
        """Busy workers whose caller has left: they count against `max_workers` alone."""
        self.batched: dict[str, Batching] = {}
        """What batches of functions were like, by name; for the statistics. Each has a lock of its own."""

    def is_active(self) -> bool:
        """Return True if a call is queued or runs."""
        return bool(self.queued or self.busy or self.resolving or self.backlog)

    def at_rest(self) -> bool:
        """Return True if windows without calls would change nothing."""
        return self.policy.at_rest(self.limits, self.sizing.state)

    def governed_running(self) -> int:
        """Return how many running calls count against the policy's size."""
        return self.busy if self.admission.governs_all else self.waiting

    def set_cores_locked(self, cores: float, capacity: float) -> None:
        """Let the policy go by another number of cores."""
        self.limits = replace(self.limits, cores=cores, capacity=capacity)
        self.sizing.set_limits(self.limits)

    def push(self, call: Call) -> None:
        """Queue a call and start what may start; without the lock.

        Raises:
            QueueFullError: `queue_max` calls are queued and the call is not patient.
            RuntimeError: The pool is closed or broken, or no thread could be started at all.
        """
        raise NotImplementedError

    def spawn(self, name: str) -> Worker:
        """Return a worker whose thread has this name and does not run yet."""
        raise NotImplementedError

    def start(self, to_start: list[Worker], submitted: Call | None = None) -> None:
        """Start threads, without the lock; `submitted` is the call whose submission added them.

        Raises:
            RuntimeError, MemoryError: No thread could be started and `submitted` has no worker to run it.
        """
        raise NotImplementedError


class SharedBudget:
    """What all pools of one interpreter share: the lock, the permits, cores and memory.

    Args:
        clock: Where workers and governor read the time.
        gil: Whether threads share a GIL; None asks the interpreter.
        cores: Usable cores; None asks the host.
    """

    governor: Governing
    shield: Shielding
    phases: Phasing

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        gil: bool | None = None,
        cores: float | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.gil = gil_enabled() if gil is None else gil
        self._asks_gil = gil is None
        self._counts_cores = cores is None
        self.cpu: float = usable_cores() if cores is None else cores
        """CPU seconds per second that it may use; `cores` is that in whole ones, rounded up."""
        self.cores = max(1, math.ceil(self.cpu))
        self.memory: Memory = read_memory()
        """As of the last look at the host."""
        self.children: list[Callable[[], Iterable[int]]] = []
        """Return the ids of processes that share a pool's `memory_max` with this one."""
        self.host_seen: list[Callable[[], None]] = []
        """Called after each look at the host, by the governor, without the lock."""
        self.native_limits = NativeLimits(wanted=False)
        self.pools: WeakSet[Pool] = WeakSet()
        self.limiters: list[WatchedLimiter[Call]] = []
        """Those of the isolates; none is ever taken out."""
        self.permits = Permits(gil=self.gil, cores=self.cores)
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error for calls that come while the interpreter ends."""

    def take_in(self, pool: Pool) -> None:
        """Count a new pool among the others; one that comes at exit takes no calls."""
        with without_convoy(self.lock):  # which `exit` holds while it sets the one and lists the others
            self.pools.add(pool)
            if self.refusal is not None:
                pool.refusal, pool.draining = self.refusal, True
            self.governor.look_soon_locked()  # its budget may be another than that of the pools before

    def look_at_host(self) -> float:
        """Read what the process may use by now, without the lock, for it reads files; return its cores.

        One budget of memory holds for all pools: the least that one of them was given. Without a GIL the
        import of an extension may switch it on.
        """
        if self._asks_gil:
            self.gil = gil_enabled()
        budgets = [
            pool.memory_max
            for pool in self.all_pools()
            if pool.memory_max is not None and pool.refusal is None and not pool.draining
        ]
        children = [child for children in self.children for child in children()]
        self.memory = read_memory(min(budgets, default=None), children)
        for tell in tuple(self.host_seen):
            tell()
        return usable_cores() if self._counts_cores else self.cpu

    def set_cores_locked(self, cores: float) -> None:
        """Go by another number of cores from now on; the next dispatch starts what more of them allow."""
        self.cpu, self.cores = cores, max(1, math.ceil(cores))
        self.permits.set_cores(self.cores, gil=self.gil)
        for pool in self.pools:
            pool.set_cores_locked(cores, self.capacity)

    @property
    def capacity(self) -> float:
        """CPU seconds per second that calls under the GIL can get."""
        return min(self.cpu, self.permits.capacity)

    def lacks_permit(self) -> bool:
        """Return True if a call waits for a permit, to start or to go on."""
        return bool(self.waiting_for_permit or self.permits.waits)

    def rest_if_over(self) -> None:
        """Forget where calls wait once no pool takes calls any more; without the lock."""
        if all(pool.draining and not pool.roster.workers for pool in self.all_pools()):
            self.phases.rest()

    def all_pools(self) -> list[Pool]:
        """Return the pools there are; to be called without the lock."""
        with without_convoy(self.lock):
            return list(self.pools)

    def start_clean(self) -> None:
        """Forget all that ran; used at the start and in a forked child."""
        self.lock = threading.Lock()
        self.permits.forget()
        self.waiting_for_permit: dict[Pool, None] = self.permits.queued
        """Pools with calls that lack a permit, the one that has had no turn for longest first."""
        self.gil_load = GilLoad(switch_interval_ns())
        self.kept = Kept()
        """For how long calls had no core lately, beyond what the kernel tells of each thread."""
        self.exiting: InterpreterExit | None = None


def _no_time() -> int:
    return 0
