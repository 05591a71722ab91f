"""What the tests of the engine share: pools without threads, pools with threads, gates.

Two ways to look at the engine. *By hand*: a private interpreter with a manual clock, workers whose
threads never start, and a test that plays the threads (`Stage`). *For real*: an executor with its
threads and governor, and functions that meet at gates.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.window import Limits, Policy
from hybridrt.errors import WorkerLostError
from hybridrt.executor.budget import GovernedBudget
from hybridrt.executor.future import ThreadCall
from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.governor.native import NativeWork
from hybridrt.measure.native import NativeThreads
from hybridrt.pool.admission import FifoAdmission, LaneAdmission
from hybridrt.pool.hooks import HookRunner, Hooks
from hybridrt.pool.nested import claim_for_help
from hybridrt.pool.permits import NONE
from hybridrt.pool.run_queue import Admission
from hybridrt.pool.scheduler import (
    Batch,
    begin_next,
    finish,
    finish_and_begin_next,
    finish_batch,
    finish_helped,
)
from hybridrt.pool.shutdown import worker_left
from hybridrt.pool.state import DONE, RUNNING, Call, Pool, Roster
from hybridrt.pool.worker import WorkerThread
from hybridrt.testing import ManualClock
from hybridrt.values import Kind

__all__ = [
    "DEADLINE",
    "MS",
    "FakeNative",
    "FakeProbe",
    "Meeting",
    "Stage",
    "StillPool",
    "compute",
    "make_call",
    "make_pool",
    "named",
    "until",
]

DEADLINE = 30.0
"""Seconds after which a test gives up on something that has to happen; never awaited when it passes."""
MS = 0.001


class FakeNative(NativeThreads):
    """Native threads that have computed for as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.used_ns = 0

    def find(self) -> None: ...

    def spent_ns(self) -> int:
        used, self.used_ns = self.used_ns, 0
        return used


class FakeProbe:
    """A thread's clocks as the test sets them."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.computes = False
        self.has_clock = True
        self.ins: int | None = None
        self.runnable: bool | None = False
        self._cpu_ns = 0
        self._seen_ns = clock.now_ns

    def cpu_ns(self) -> int | None:
        now = self._clock.now_ns
        if self.computes:
            self._cpu_ns += now - self._seen_ns
        self._seen_ns = now
        return self._cpu_ns if self.has_clock else None

    def turn(self, *, computes: bool) -> None:
        """Compute, or wait, from now on."""
        self.cpu_ns()
        self.computes = computes

    def schedule_ins(self) -> int | None:
        return self.ins

    def run_delay_ns(self) -> int | None:
        return None

    def is_runnable(self) -> bool | None:
        return self.runnable

    def close(self) -> None: ...


class StillPool(ThreadPool):
    """A pool of workers whose threads never start; `refusals` makes the next starts fail."""

    refusals = 0

    def start_clean(self) -> None:
        super().start_clean()
        self.started: set[WorkerThread] = set()

    def start(self, to_start: list[WorkerThread], submitted: Call | None = None) -> None:
        real, to_start = to_start[: self.refusals], to_start[self.refusals :]
        self.refusals -= len(real)
        for worker in real:
            worker.thread.start = _refuse  # type: ignore[method-assign]
        for worker in to_start:  # of any pool
            worker.pool.started.add(worker)  # type: ignore[attr-defined]
        super().start(real, submitted)


def _refuse() -> None:
    raise RuntimeError("can't start new thread")


def make_pool(
    budget: GovernedBudget,
    *,
    kind: type[ThreadPool] = ThreadPool,
    lanes: bool = True,
    policy: Policy | None = None,
    max_workers: int = 64,
    min_workers: int = 1,
    idle_timeout: float = 3600.0,
    queue_max: int | None = None,
    hooks: Hooks | None = None,
    initializer: Callable[..., Any] | None = None,
    memory_max: int | None = None,
) -> ThreadPool:
    """Return a pool of a private interpreter, built as the executor builds its own."""
    admission: Admission[Call] = LaneAdmission(budget.permits) if lanes else FifoAdmission()
    return kind(
        budget=budget,
        admission=admission,
        policy=DemandPolicy() if policy is None else policy,
        limits=Limits(
            lowest=1,
            highest=max_workers,
            capacity=budget.permits.capacity,
            cores=budget.cores,
        ),
        queue_max=queue_max,
        roster=Roster(
            prefix="hand",
            max_workers=max_workers,
            min_workers=min_workers,
            idle_timeout=idle_timeout,
            initializer=initializer,
        ),
        hooks=HookRunner(hooks),
        memory_max=memory_max,
    )


def make_call(pool: Pool, fn: Callable[..., Any], *args: Any) -> ThreadCall:
    """Return a call as the executor makes it, not pushed yet."""
    call = ThreadCall()
    call.state, call.place, call.value, call.completions = 0, None, None, None
    call.fn, call.args, call.kwargs, call.context = fn, args, {}, None
    call.pool = pool
    call.profile = pool.profiles.of(fn, args)
    return call


def named(name: str) -> Callable[..., Any]:
    """Return a function with a code object, and so a profile, of its own."""

    def template(*args: Any) -> Any:
        return args

    template.__code__ = template.__code__.replace(co_name=name, co_qualname=name)
    template.__qualname__ = name
    return template


@dataclass
class Stage:
    """A pool played by hand: the test is the clock, the threads and the governor."""

    gil: bool = True
    cores: int = 2
    lanes: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.budget = GovernedBudget(self.clock, gil=self.gil, cores=self.cores)
        self.budget.governor.parked = False  # nobody rings: the test steps
        self.native = FakeNative()
        self.budget.governor.native = NativeWork(self.native)
        self.permits = self.budget.permits
        self.pool = self.add_pool(lanes=self.lanes, **self.options)
        self.calls: list[ThreadCall] = []
        self._batches: dict[WorkerThread, list[ThreadCall]] = {}

    def add_pool(self, **options: Any) -> Pool:
        """Return one more pool under the same budget."""
        return make_pool(self.budget, kind=StillPool, **options)

    def learn(
        self, kind: Kind, name: str | None = None, pool: Pool | None = None, usual: float = 0.0
    ) -> Callable[..., Any]:
        """Return a function that is known to be of a kind, and whose calls usually take so many seconds."""
        fn = named(name or f"{kind}_function")
        profile = (pool or self.pool).profiles.of(fn)
        profile.kind = kind
        profile.turn_at = 1 << 60  # calls that end teach nothing else
        if usual:
            profile.record(int(usual * 1e9), 0 if kind is Kind.WAITING else int(usual * 1e9), 0)
            profile.cpu_mean_ns, profile.wait_mean_ns = profile.cpu_ns, profile.wall_ns - profile.cpu_ns
        if kind is Kind.FREE:
            for _ in range(8):
                profile.gil.saw_free()
        return fn

    def push(self, fn: Callable[..., Any], *args: Any, pool: Pool | None = None, **fields: Any) -> ThreadCall:
        """Submit a call of `fn`; whoever gets it claims it at once, unless `late`."""
        late = fields.pop("late", False)
        call = make_call(pool or self.pool, fn, *args)
        for name, value in fields.items():
            setattr(call, name, value)
        call.pool.push(call)
        self.calls.append(call)
        if not late:
            self.work()
        return call

    def push_many(self, count: int, fn: Callable[..., Any], pool: Pool | None = None) -> list[ThreadCall]:
        return [self.push(fn, number, pool=pool) for number in range(count)]

    def step(self, seconds: float = 0.0, *, prompt: bool | None = None, times: int = 1) -> int | None:
        """Let time pass and the governor look, with the workers' threads where they got to by now.

        Without `prompt` it gets the GIL at once unless a call computes.
        """
        nap = None
        for _ in range(times):
            self.work()
            self.clock.advance(seconds)
            on_time = not self._somebody_computes() if prompt is None else prompt
            nap = self.budget.governor.step(self.clock.now_ns, 0, prompt=on_time)
        self.work()
        return nap

    def _somebody_computes(self) -> bool:
        return any(self.probe_of(call).computes for call in self.running())

    def work(self) -> None:
        """Let every worker with a batch claim the first call in it, as its thread would at once."""
        for pool in list(self.budget.pools):
            for worker in tuple(pool.roster.workers):
                if worker.probe is None:
                    worker.probe = FakeProbe(self.clock)  # type: ignore[assignment]
                if worker.call is None and worker.serving and worker in pool.started:  # type: ignore[attr-defined]
                    self._claim(worker)

    def _claim(self, worker: WorkerThread) -> None:
        while not worker.batch:  # what it was given was withdrawn
            begin_next(worker.pool, worker)
            if not worker.serving:
                return
        call = worker.batch.popleft()
        if worker.batch:
            self._batches[worker] = []
        self._start(worker, call)

    def _start(self, worker: WorkerThread, call: Call) -> None:
        call.state = RUNNING
        assert worker.probe is not None
        worker.cpu_start_ns = worker.probe.cpu_ns() or 0
        call.started_ns = self.clock.now_ns
        worker.call = call

    def worker_of(self, call: Call) -> WorkerThread:
        """Return the worker that runs `call`."""
        self.work()
        return next(worker for worker in call.pool.roster.workers if worker.call is call)

    def probe_of(self, call: Call) -> FakeProbe:
        probe = self.worker_of(call).probe
        assert isinstance(probe, FakeProbe)
        return probe

    def compute(self, *calls: Call) -> None:
        """Let running calls compute from now on; a call waits until it is told to."""
        for call in calls:
            self.probe_of(call).turn(computes=True)

    def wait(self, *calls: Call) -> None:
        """Let running calls wait from now on."""
        for call in calls:
            self.probe_of(call).turn(computes=False)

    def end(self, call: Call, *, quick: bool = True) -> None:
        """End a running call, as its thread would, and let the worker take the next."""
        worker = self.worker_of(call)
        assert worker.probe is not None
        call.wall_ns = self.clock.now_ns - call.started_ns
        call.cpu_ns = (worker.probe.cpu_ns() or 0) - worker.cpu_start_ns
        worker.call = None
        if worker in self._batches:
            self._go_on(worker, call)
            return
        if quick:
            finish_and_begin_next(call.pool, worker, call)
        else:
            finish(call.pool, worker, call)
            begin_next(call.pool, worker)
        call.drop_work()
        call.deliver()
        self.work()

    def _go_on(self, worker: WorkerThread, call: Call) -> None:
        """Take the next call of a batch, or book the batch."""
        ran = self._batches[worker]
        ran.append(call)  # type: ignore[arg-type]
        failed = sum(one.error is not None for one in ran)
        call.state = DONE
        call.drop_work()
        call.deliver()
        if worker.batch:
            self._start(worker, worker.batch.popleft())
            return
        del self._batches[worker]
        wall, cpu = sum(one.wall_ns for one in ran), sum(one.cpu_ns for one in ran)
        least = min(one.wall_ns - one.cpu_ns for one in ran)
        booked = Batch(call.profile, len(ran), failed, wall, cpu, 0, least, self.clock.wall_ns())
        finish_batch(call.pool, worker, booked)
        self.work()

    def help(self, helper: Call, call: Call) -> bool:
        """Let the worker of a running call run a queued one inside it; return whether it may."""
        if not claim_for_help(self.worker_of(helper), call):
            return False
        call.started_ns = self.clock.now_ns
        call.wall_ns = call.cpu_ns = 0
        finish_helped(call.pool, call)
        call.drop_work()
        call.deliver()
        self.work()
        return True

    def kill(self, call: Call) -> None:
        """Let the worker's thread die in the middle of its call."""
        worker = self.worker_of(call)
        worker.call = None
        call.error = WorkerLostError("killed by the test")
        worker_left(worker, call)
        call.drop_work()
        call.deliver()
        self.work()

    def running(self, pool: Pool | None = None) -> list[ThreadCall]:
        """Return the calls that have started, in the order of submission."""
        self.work()
        chosen = [call for call in self.calls if pool is None or call.pool is pool]
        return [call for call in chosen if call.state == RUNNING and not call.done()]


class Meeting:
    """A function that waits inside until it is let go, and counts who is in there."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self.inside = self.most_inside = self.entered = 0

    def __call__(self, value: Any = None) -> Any:
        with self._changed:
            self.inside += 1
            self.entered += 1
            self.most_inside = max(self.inside, self.most_inside)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._open, DEADLINE):
                raise TimeoutError("expected the meeting to be ended by the test, it was not")
            self.inside -= 1
        return value

    def wait_for(self, count: int) -> None:
        """Return once `count` calls have entered."""
        with self._changed:
            met = self._changed.wait_for(lambda: self.entered >= count, DEADLINE)
        assert met, f"expected {count} calls inside, got {self.entered}"

    def end(self) -> None:
        """Let everybody go, those that come later too."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


def compute(seconds: float = 0.0) -> float:
    """Compute in pure Python for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def until(condition: Callable[[], object], what: str) -> None:
    """Return once a condition holds that no gate tells of; only a failing test waits for long."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"expected within {DEADLINE} s: {what}"
        time.sleep(0.001)


class Asking:
    """A call in the line, in thought."""

    gil_share = None

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self.permit = NONE

    def granted_locked(self, permit: int) -> bool:
        if not self.over:
            self.permit = permit
        return not self.over
