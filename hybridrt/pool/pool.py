"""The protocol between queue, permits, claim, cancel and retire.

A pool owns the queued calls of one executor and decides, whenever something changes, which of them
start and on which worker. It knows nothing of asyncio and nothing of sizing laws.

Actors: submitters (any thread), workers, the governor, whoever cancels. All of them come in through
the methods below, which take the interpreter's lock; methods with a leading underscore, and those
called `..._locked`, are called with the lock held. Threads are started and results delivered only
after the lock is released. How a call is claimed, and why it cannot be both claimed and cancelled,
stands in `worker`.

An invariant saves most of the work: *the first call of a lane cannot start now*, or it would have.
Whatever makes a start possible (a permit or a place given back, a kind learned, a size changed, a
worker parked) dispatches, so a call that queues behind another needs no look.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hybridrt.control.window import Limits, Policy
from hybridrt.errors import QueueFullError
from hybridrt.observe.functions import Profile
from hybridrt.observe.profiles import Profiles
from hybridrt.pool.call import ASSIGNED, QUEUED, Call
from hybridrt.pool.crew import Crew
from hybridrt.pool.lock import patiently
from hybridrt.pool.permits import NONE
from hybridrt.pool.sizing import Sizing
from hybridrt.pool.stint import NOBODY, Stint
from hybridrt.pool.tally import Tally
from hybridrt.pool.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from hybridrt.pool.admission import Admission
    from hybridrt.pool.gates import WatchedGate
    from hybridrt.pool.hooks import HookRunner
    from hybridrt.pool.interpreter import Interpreter
    from hybridrt.pool.report import Placed
    from hybridrt.pool.worker import Worker

__all__ = ["RESOLVERS_MAX", "Pool", "resize_gate_locked"]


RESOLVERS_MAX = 16
"""Name resolutions at once; they have threads of their own beyond `max_workers`."""


class Pool:
    """The calls of one executor.

    Args:
        interpreter: What is shared with the other pools.
        admission: Chooses among the queued calls.
        policy: Moves `limit`.
        limits: Bounds of the policy and of the number of threads.
        queue_max: Calls queued at most; None for no bound.
        crew: Makes and parks the workers.
        hooks: What to tell about calls and threads.
        measures: Whether workers read their clocks.
        memory_max: Bytes that the process may use while the pool is there; None for what the host allows.
    """

    def __init__(
        self,
        *,
        interpreter: Interpreter,
        admission: Admission,
        policy: Policy,
        limits: Limits,
        queue_max: int | None,
        crew: Crew,
        hooks: HookRunner,
        measures: bool = True,
        memory_max: int | None = None,
    ) -> None:
        self.interpreter = interpreter
        self.admission = admission
        self.policy = policy
        self.limits = limits
        self.crew = crew
        self.hooks = hooks
        self.profiles = Profiles()
        self.placed: dict[str, tuple[Profile, Placed]] = {}
        """Functions whose calls are placed, by name; for the statistics."""
        self.tally = Tally()
        self.sizing = Sizing(policy, limits, interpreter.clock.wall_ns())
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error for new calls once the pool is closed or broken."""
        self.draining = False
        """No calls come any more: workers leave when the queue is empty."""
        self.measures = measures
        self.memory_max = memory_max
        self.queue_room = (1 << 62) if queue_max is None else queue_max
        self.start_clean()
        crew.join_pool(self)
        interpreter.take_in(self)

    def start_clean(self) -> None:
        """Forget queue and workers: a forked child has neither the threads nor the callers."""
        self.lock, self.governor = self.interpreter.lock, self.interpreter.governor
        self.shield = self.interpreter.shield
        self.profiles.start_clean(self.lock)
        self.admission.drain()
        self.crew.forget()
        self.queued = 0
        self.backlog: OrderedDict[Call, None] = OrderedDict()
        self.resolve_lane: OrderedDict[Call, None] = OrderedDict()
        self.at_gates: OrderedDict[Call, None] = OrderedDict()
        self.busy = self.resolving = self.waiting = 0
        self.deserted = 0
        """Busy workers whose caller has left: they count against `max_workers` alone."""

    # ------------------------------------------------------------------ submitting

    @uninterrupted
    def push(self, call: Call) -> None:
        """Queue a call and start what may start.

        Raises:
            QueueFullError: `queue_max` calls are queued and the call is not patient.
            RuntimeError: The pool is closed or broken, or no thread could be started at all.
        """
        hired = NOBODY
        call.queued_ns = self.crew.queue_ns()
        if self.lock.locked():
            patiently(self.lock)
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            if 0 < self.queued < self.queue_room and not (call.gates or call.resolves):
                self.queued += 1  # the common case under load
                if self.admission.put(call):
                    hired = self.dispatch_locked()
            elif not (self._started_at_once(call) or self._enqueued_behind(call)):
                hired = self.dispatch_locked()
            self.tally.submitted += 1
        if self.governor.parked:
            self.governor.ring()
        if hired:
            self.crew.start(hired, call)

    def _started_at_once(self, call: Call) -> bool:
        """Hand a call to a parked worker without a detour through the queue; the common case."""
        crew = self.crew
        if self.queued or not crew.idle or not self.admits_at_once_locked(call):
            return False
        worker = crew.idle.pop()
        self.hold_locked(worker, call)
        call.state = ASSIGNED
        call.place = worker.batch
        worker.batch.append(call)
        worker.open_stint()
        return True

    def admits_at_once_locked(self, call: Call) -> bool:
        """Take a call past an empty queue to whoever runs it, through its gates and with its permit."""
        if call.resolves or self.busy >= self.limits.highest:
            return False
        for gate in call.gates:
            if gate.active >= gate.limit:
                return False
        if not self.admission.start_at_once(call, self.waiting < self.sizing.state.workers):
            return False
        return not call.gates or self._pass_gates(call)

    def _enqueued_behind(self, call: Call) -> bool:
        """Queue a call; return whether it stands behind another one, so that it cannot start."""
        if self.queued >= self.queue_room and not call.resolves:  # names are never waited for
            self._overflow(call)
            return True
        self.queued += 1
        if call.gates or call.resolves:
            self.enter_gates_locked(call)
        else:
            self.admission.put(call)
        return call.place is not None and len(call.place) > 1

    def _overflow(self, call: Call) -> None:
        """Keep a patient call until there is space; refuse another."""
        if not call.patient:
            self.tally.rejected += 1
            raise QueueFullError(
                f"the queue holds queue_max={self.queue_room} calls, so {call.profile.name} was not "
                "accepted; wait for results, await the call instead, or raise queue_max"
            )
        self.backlog[call] = None
        call.place = self.backlog

    def enter_gates_locked(self, call: Call) -> None:
        """Take a call through the gates that are open, and to its lane behind the last."""
        if self._pass_gates(call):
            self.requeue_locked(call)

    def _pass_gates(self, call: Call) -> bool:
        """Take a call through the gates that are open; return whether none is left."""
        gates = call.gates
        while call.gates_passed < len(gates):
            if not gates[call.gates_passed].enter(call):
                self.at_gates[call] = None
                return False
            call.gates_passed += 1
        return True

    def requeue_locked(self, call: Call, *, first: bool = False) -> None:
        """Put a call into its lane, at the end or before all others; what it had been given is taken back."""
        call.state = QUEUED
        call.permit = NONE
        call.in_waiting_lane = False
        if call.resolves:
            self.resolve_lane[call] = None
            call.place = self.resolve_lane
        else:
            self.admission.put(call)
        if first:
            lane = call.place
            assert isinstance(lane, OrderedDict)
            lane.move_to_end(call, last=False)

    # ------------------------------------------------------------------ starting

    def dispatch_locked(self) -> list[Worker]:
        """Assign every call that may start; return the workers to be started."""
        hired: list[Worker] = []
        crew = self.crew
        while self.queued:
            if not crew.has_hands(self.resolving) and not self.resolve_lane:
                break
            call = self.take_locked()
            if call is None:
                break
            hired += self.assign_locked(call)
            if call.state == QUEUED:  # there was no memory for a worker: the governor's next step tries again
                break
        self.admission.moved = False
        if self.admission.lacks_permit():
            self.interpreter.starved[self] = None
            self.governor.rouse_locked()
        else:
            self.interpreter.starved.pop(self, None)
        return hired

    def dispatch_to_idle_locked(self) -> None:
        """Assign calls that may start to parked workers, as far as there are any."""
        while self.crew.idle and self.queued and (call := self.take_locked()) is not None:
            self.assign_locked(call)

    def assign_locked(self, call: Call) -> list[Worker]:
        """Give a call to a parked worker, or to a new one, which is returned, unless it needs none.

        Where there is no memory for a new one the call is queued again.
        """
        crew = self.crew
        try:
            hired = [] if crew.idle else [crew.hire()]
        except MemoryError:
            self._put_back(call)
            return NOBODY
        worker = hired[0] if hired else crew.idle.pop()
        self._begin(worker, call)
        return hired

    def _put_back(self, call: Call) -> None:
        """Queue a call again that was taken out and did not begin."""
        if call.permit:
            self.interpreter.permits.give_back(call.permit)
        if call.unjudged:
            call.unjudged = False
            call.profile.unjudged -= 1
        self.queued += 1
        self.requeue_locked(call, first=True)

    def take_locked(self) -> Call | None:
        """Take the call out of its lane that may start now, with its permit."""
        if self.resolve_lane and self.resolving < RESOLVERS_MAX:
            call: Call | None = self.resolve_lane.popitem(last=False)[0]
        elif self.busy < self.limits.highest:
            running = self.busy - self.deserted
            call = self.admission.take(self.sizing.state.workers, running, self.waiting)
            if call is None:
                return None
        else:
            return None
        self.left_queue_locked(1)
        return call

    def left_queue_locked(self, calls: int) -> None:
        self.queued -= calls
        while self.backlog and self.queued < self.queue_room:
            call, _ = self.backlog.popitem(last=False)
            call.place = None
            self.queued += 1
            self.enter_gates_locked(call)

    def _begin(self, worker: Worker, call: Call) -> None:
        """Open a stint: the call, and those that go with it, are the worker's to claim."""
        batch = worker.batch
        call.state = ASSIGNED
        call.place = batch
        if call.resolves:
            worker.resolves = True
            self.resolving += 1
        else:
            self.hold_locked(worker, call)
        batch.append(call)
        if call.permit and call.profile.batch > 1 and self.queued and call.quick and not call.gates:
            self._extend(batch, call)
        worker.open_stint()

    def hold_locked(self, stint: Stint, call: Call) -> None:
        """Let a stint hold what its call was started with."""
        self.busy += 1
        stint.permit = call.permit
        if call.in_waiting_lane:
            stint.waits = True
            self.waiting += 1

    def _extend(self, batch: deque[Call], first: Call) -> None:
        more = self.admission.take_like(first, first.profile.batch - 1)
        if more:
            for call in more:
                call.state = ASSIGNED
                call.place = batch
            batch.extend(more)
            self.left_queue_locked(len(more))

    def begin_next(self, worker: Worker) -> None:
        """End a worker's stint and open its next one, or park it."""
        with patiently(self.lock):
            self.end_stint_locked(worker)
            self.begin_or_park_locked(worker)
            hired = self.dispatch_others_locked(self)
        self.crew.start(hired)

    def begin_or_park_locked(self, worker: Worker) -> bool:
        """Open a worker's next stint and return True, or park it."""
        if self.queued and (call := self.take_locked()) is not None:
            self._begin(worker, call)
            return True
        self.crew.park(worker)
        return False

    # ------------------------------------------------------------------ ending

    def end_stint_locked(self, stint: Stint) -> None:
        """Return all that a stint held."""
        if not stint.serving:
            return
        stint.serving = False
        if stint.resolves:
            stint.resolves = False
            self.resolving -= 1
        else:
            self.busy -= 1
        if stint.permit:
            self.interpreter.permits.give_back(stint.permit)
            stint.permit = NONE
        if stint.waits:
            stint.waits = False
            self.waiting -= 1
        if stint.deserted:
            stint.deserted = False
            self.deserted -= 1

    def others_starve_locked(self) -> bool:
        """Tell whether another pool lacks a permit."""
        starved = self.interpreter.starved
        return len(starved) > (self in starved)

    def dispatch_after_locked(self, touched: dict[Pool, None]) -> list[Worker]:
        """Start what an ended call made room for: in pools its gates `touched`, starved ones, our own."""
        touched.pop(self, None)
        hired = [worker for pool in touched for worker in pool.dispatch_locked()]
        return hired + self.dispatch_others_locked(self)

    def dispatch_others_locked(self, last: Pool | None = None) -> list[Worker]:
        """Start what a permit given back allows in starved pools, and then in `last`."""
        hired: list[Worker] = []
        starved = self.interpreter.starved
        if self.others_starve_locked():
            starved.pop(self, None)  # to the end of the line
            hired = [worker for pool in tuple(starved) for worker in pool.dispatch_locked()]
        if last is not None:
            if self.queued:
                hired += last.dispatch_locked()
            else:
                starved.pop(self, None)
                if self.crew.stopping():
                    self.crew.dismiss_idle()
        return hired

    def leave_gates_locked(self, call: Call) -> dict[Pool, None]:
        """Let the next call through each gate; return the pools whose queues moved."""
        touched: dict[Pool, None] = {}
        for gate in call.gates[: call.gates_passed]:
            follower = gate.leave()
            if follower is not None:
                touched[_passed_gate_locked(follower)] = None
        call.gates = ()
        return touched

    # ------------------------------------------------------------------ sizing

    def set_cores_locked(self, cores: int, capacity: int) -> None:
        """Let the policy go by another number of cores."""
        self.limits = replace(self.limits, cores=cores, capacity=capacity)
        self.sizing.set_limits(self.limits)

    def is_active(self) -> bool:
        """Tell whether a call is queued or runs."""
        return bool(self.queued or self.busy or self.resolving or self.backlog)

    def at_rest(self) -> bool:
        """Tell whether windows without calls would change nothing."""
        return self.policy.at_rest(self.limits, self.sizing.state)

    def governed_running(self) -> int:
        """Return how many running calls count against the policy's size."""
        return self.admission.governed_running(self.busy, self.waiting)


def resize_gate_locked(gate: WatchedGate, limit: int, most: int) -> list[Worker]:
    """Let so many calls in at once from now on; return the workers to be started for those that waited."""
    touched = {_passed_gate_locked(call): None for call in gate.resize(limit, most)}
    return [worker for pool in touched for worker in pool.dispatch_locked()]


def _passed_gate_locked(call: Call) -> Pool:
    """Take a call that a gate has let in through the next ones; return its pool, whose queue has moved."""
    pool = call.pool
    call.gates_passed += 1
    del pool.at_gates[call]
    pool.enter_gates_locked(call)
    return pool
