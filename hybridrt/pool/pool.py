"""The protocol between queue, permits, claim, cancel and retire.

A pool owns the queued calls of one executor and decides, whenever something changes, which of them
start and on which worker. It knows nothing of asyncio and nothing of sizing laws.

Actors: submitters (any thread), workers, the governor, whoever cancels. All of them come in through
the methods below, which take the interpreter's lock; methods with a leading underscore, and those
called `..._locked`, are called with the lock held. Threads are started and results delivered only
after the lock is released.

Claiming. `dispatch_locked` takes a call out of its lane and assigns it to a parked or a new worker. The
call can still be withdrawn until that worker claims it:

    1. `dispatch_locked` marks the call ASSIGNED and rings the worker.
    2. A canceller takes the lock, finds ASSIGNED, marks CANCELLED, gives permit and gates back.
    3. The worker wakes, takes the lock, finds CANCELLED, and asks for its next call instead.

    With 2 and 3 the other way round the worker finds ASSIGNED and marks RUNNING, and the canceller
    finds RUNNING. One of them wins, never both and never none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from hybridrt.control.window import Limits, Policy
from hybridrt.errors import QueueFullError
from hybridrt.observe.functions import Profiles
from hybridrt.pool.call import ASSIGNED, CANCELLED, DONE, QUEUED, RUNNING, Call
from hybridrt.pool.crew import Crew
from hybridrt.pool.permits import NONE
from hybridrt.pool.sizing import Sizing
from hybridrt.pool.tally import Tally

if TYPE_CHECKING:
    from hybridrt.pool.admission import Admission
    from hybridrt.pool.hooks import HookRunner
    from hybridrt.pool.interpreter import Interpreter
    from hybridrt.pool.worker import Worker

__all__ = ["RESOLVERS_MAX", "Pool"]

_NOBODY: list[Worker] = []
"""Nobody to start; never changed."""

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
    ) -> None:
        self.interpreter = interpreter
        self.admission = admission
        self.policy = policy
        self.limits = limits
        self.queue_max = queue_max
        self.crew = crew
        self.hooks = hooks
        self.profiles = Profiles()
        self.tally = Tally()
        self.sizing = Sizing(policy, limits, interpreter.clock.wall_ns())
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error for new calls once the pool is closed or broken."""
        self.draining = False
        """No calls come any more: workers leave when the queue is empty."""
        self.measures = measures
        self.clear_locked()
        crew.join_pool(self)
        interpreter.pools.add(self)

    def clear_locked(self) -> None:
        self.queued = 0
        self.backlog: OrderedDict[Call, None] = OrderedDict()
        self.resolve_lane: OrderedDict[Call, None] = OrderedDict()
        self.at_gates: OrderedDict[Call, None] = OrderedDict()
        self.busy = self.resolving = self.waiting = self.abandoned_running = 0

    def start_clean(self) -> None:
        """Forget queue and workers: a forked child has neither the threads nor the callers."""
        self.admission.drain()
        self.profiles.forget_pending()
        self.crew.forget()
        self.clear_locked()

    # ------------------------------------------------------------------ submitting

    def push(self, call: Call) -> None:
        """Queue a call and start what may start.

        Raises:
            QueueFullError: `queue_max` calls are queued and the call is not patient.
            RuntimeError: The pool is closed or broken, or no thread could be started at all.
        """
        with self.interpreter.lock:
            if self.refusal is not None:
                raise self.refusal()
            full = self.queue_max is not None and self.queued >= self.queue_max
            if full and not call.patient:
                self.tally.rejected += 1
                raise QueueFullError(
                    f"the queue holds queue_max={self.queue_max} calls, so {call.profile.name} was not "
                    "accepted; wait for results, await the call instead, or raise queue_max"
                )
            self.tally.submitted += 1
            call.profile.pending += 1
            call.queued_ns = self.interpreter.clock.wall_ns()
            if full:
                self.backlog[call] = None
                call.place = self.backlog
            else:
                self._enqueue(call)
            # Whoever stands before it in its lane cannot start now, or would have: whatever makes
            # a start possible dispatches. So only the first of a lane is worth a look.
            hired = self.dispatch_locked() if call.place is None or len(call.place) == 1 else _NOBODY
        if self.interpreter.governor.parked:
            self.interpreter.governor.ring()
        if self.hooks.on_event is not None:
            self.hooks.submitted(call)
        if hired:
            self.crew.start(hired, call)

    def _enqueue(self, call: Call) -> None:
        self.queued += 1
        if call.resolves:
            self.resolve_lane[call] = None
            call.place = self.resolve_lane
        else:
            self._advance(call)

    def _advance(self, call: Call) -> None:
        """Take a call through the gates that are open, and to its lane behind the last."""
        gates = call.gates
        while call.gates_passed < len(gates):
            if not gates[call.gates_passed].enter(call):
                self.at_gates[call] = None
                return
            call.gates_passed += 1
        self.admission.put(call)

    # ------------------------------------------------------------------ starting

    def dispatch_locked(self) -> list[Worker]:
        """Assign every call that may start; return the workers to be started."""
        hired: list[Worker] = []
        crew = self.crew
        while self.queued:
            if not crew.idle and not crew.may_hire(self.resolving, bool(self.resolve_lane)):
                break
            call = self._take()
            if call is None:
                break
            hired += self._assign(call)
        if self.admission.lacks_permit():
            self.interpreter.starved[self] = None
        else:
            self.interpreter.starved.pop(self, None)
        return hired

    def _assign(self, call: Call) -> list[Worker]:
        """Send a started call to a parked worker, or to a new one, which is returned."""
        crew = self.crew
        hired = [] if crew.idle else [crew.hire()]
        worker = hired[0] if hired else crew.idle.pop()
        call.state = ASSIGNED
        worker.inbox.put(call)
        return hired

    def _take(self) -> Call | None:
        """Take the call out of its lane that may start now, with its permit."""
        if self.resolve_lane and self.resolving < RESOLVERS_MAX:
            call: Call | None = self.resolve_lane.popitem(last=False)[0]
            assert call is not None
            call.place = None
            self.resolving += 1
        elif self.busy < self.limits.highest:
            call = self.admission.take(self.sizing.state.workers, self.busy, self.waiting)
            if call is None:
                return None
            self.busy += 1
            if call.in_waiting_lane:
                self.waiting += 1
        else:
            return None
        self.queued -= 1
        if self.backlog:
            self._admit_backlog()
        return call

    def _left_queue(self) -> None:
        self.queued -= 1
        if self.backlog:
            self._admit_backlog()

    def _admit_backlog(self) -> None:
        call, _ = self.backlog.popitem(last=False)
        call.place = None
        self._enqueue(call)

    def claim(self, worker: Worker, call: Call) -> Call | None:
        """Claim an assigned call; if it was withdrawn meanwhile, take another or park."""
        with self.interpreter.lock:
            if call.state == ASSIGNED:
                call.state = RUNNING
                return call
            found = self._next(worker)
        return found

    def claim_next(self, worker: Worker) -> Call | None:
        """Claim the next call for a worker that has none, or park it and return None."""
        with self.interpreter.lock:
            found = self._next(worker)
            hired = self.dispatch_locked()
        self.crew.start(hired)
        return found

    def _next(self, worker: Worker) -> Call | None:
        call = self._take() if self.queued else None
        if call is None:
            self.crew.park(worker)
        else:
            call.state = RUNNING
        return call

    def claim_for_help(self, call: Call) -> bool:
        """Claim a queued call for the thread that waits for it, whatever the limits say.

        The thread would only block otherwise, so it computes no more than before. A call behind a
        gate is left alone, because its lane is taken, perhaps by the very thread that asks.
        """
        with self.interpreter.lock:
            if call.state != QUEUED or call.gates_passed < len(call.gates) or call.place is None:
                return False
            if call.place is self.backlog:
                return False
            del call.place[call]
            call.place = None
            call.state = RUNNING
            call.helped = True
            self._left_queue()
        return True

    # ------------------------------------------------------------------ ending

    def finish(self, call: Call) -> None:
        """Book a call that ended; its worker asks for the next one after it has delivered."""
        with self.interpreter.lock:
            self.book_locked(call)
            hired = self.dispatch_after_locked(call)
        self._after_end(call, hired)

    def finish_and_claim(self, worker: Worker, call: Call) -> Call | None:
        """Book a call that ended, and claim the worker's next one in the same breath."""
        hired = _NOBODY
        with self.interpreter.lock:
            permit, kind = call.permit, call.profile.kind
            self.book_locked(call)
            starved = self.interpreter.starved
            if call.gates or len(starved) > (self in starved):
                hired = self.dispatch_after_locked(call)
                found = self._next(worker)
            else:
                found = self._next(worker)
                # One like it took its place, and nothing else has changed: nobody else can start.
                alike = found is not None and found.permit == permit and call.profile.kind is kind
                if not alike:
                    hired = self.dispatch_after_locked(call)
        self._after_end(call, hired)
        return found

    def _after_end(self, call: Call, hired: list[Worker]) -> None:
        if self.hooks.on_event is not None:
            self.hooks.finished(call)
        if hired:
            self.crew.start(hired)

    def book_locked(self, call: Call) -> None:
        """Add a call that ended to the statistics and return what it held; the lock is held."""
        call.state = DONE
        profile, tally = call.profile, self.tally
        profile.pending -= 1
        wall, cpu = call.wall_ns, call.cpu_ns
        if self.measures:
            profile.record(wall, cpu, call.started_ns - call.queued_ns)
            tally.wall_ns += wall
            tally.cpu_ns += cpu
        if call.error is None:
            tally.completed += 1
        else:
            tally.failed += 1
            profile.failed += 1
        if call.in_waiting_lane:
            tally.lane_cpu_ns += cpu
        if call.abandoned:
            self.abandoned_running -= 1
        self.give_back_locked(call)

    def give_back_locked(self, call: Call) -> None:
        """Return all that a started call held; the lock is held."""
        if call.permit:
            self.interpreter.permits.give_back(call.permit)
            call.permit = NONE
        if call.unjudged:
            call.unjudged = False
            call.profile.unjudged -= 1
        if call.helped:
            return
        if call.resolves:
            self.resolving -= 1
            return
        self.busy -= 1
        if call.in_waiting_lane and not call.abandoned:
            self.waiting -= 1

    def dispatch_after_locked(self, call: Call) -> list[Worker]:
        """Start what an ended call made room for: its gates' next, starved pools, our own."""
        touched = self.leave_gates_locked(call) if call.gates else {}
        starved = self.interpreter.starved
        if len(starved) > (self in starved):
            touched |= starved
        touched.pop(self, None)
        hired = [worker for pool in touched for worker in pool.dispatch_locked()]
        if self.queued:
            starved.pop(self, None)  # to the end of the line: the others had their turn after ours
            hired += self.dispatch_locked()
        elif self.crew.stopping():
            self.crew.dismiss_idle()
        return hired

    def leave_gates_locked(self, call: Call) -> dict[Pool, None]:
        """Let the next call through each gate; return the pools whose queues moved."""
        touched: dict[Pool, None] = {}
        for gate in call.gates[: call.gates_passed]:
            follower = gate.leave()
            if follower is not None:
                follower.gates_passed += 1
                del follower.pool.at_gates[follower]
                follower.pool._advance(follower)
                touched[follower.pool] = None
        call.gates = ()
        return touched

    # ------------------------------------------------------------------ cancelling

    def withdraw(self, call: Call) -> bool:
        """Take back a call that no thread has claimed; return whether it never runs.

        The caller completes the future. Function and arguments are let go at once.
        """
        with self.interpreter.lock:
            if call.state == QUEUED:
                self._unqueue(call)
            elif call.state == ASSIGNED:
                self.give_back_locked(call)
            else:
                return False
            call.state = CANCELLED
            call.profile.pending -= 1
            self.tally.cancelled += 1
            hired = self.dispatch_after_locked(call)
        call.drop_work()
        self.crew.start(hired)
        return True

    def _unqueue(self, call: Call) -> None:
        if call.place is None:  # refused by `push`, never queued
            return
        in_backlog = call.place is self.backlog
        del call.place[call]
        call.place = None
        self.at_gates.pop(call, None)
        if not in_backlog:
            self._left_queue()

    def abandon(self, call: Call) -> bool:
        """Nobody waits for a running call any more; its place goes to another call."""
        with self.interpreter.lock:
            if call.state != RUNNING or call.abandoned:
                return False
            call.abandoned = True
            self.tally.abandoned += 1
            self.abandoned_running += 1
            if call.in_waiting_lane and not call.helped:
                self.waiting -= 1
            hired = self.dispatch_locked()
        self.crew.start(hired)
        return True

    # ------------------------------------------------------------------ permits of running calls

    def change_permit_locked(self, call: Call, permit: int) -> list[Worker]:
        """Exchange the permit of a running call; the lock is held. Return workers to be started."""
        if call.state != RUNNING or call.permit == permit:
            return []
        self.interpreter.permits.exchange(call.permit, permit)
        call.permit = permit
        return [worker for pool in list(self.interpreter.starved) for worker in pool.dispatch_locked()]

    def exchange_permit(self, call: Call, permit: int) -> int:
        """Exchange the permit of a running call and return the old one; never waits."""
        with self.interpreter.lock:
            old = call.permit
            hired = self.change_permit_locked(call, permit)
        self.crew.start(hired)
        return old

    def overdraw_locked(self) -> list[Worker]:
        """Start the oldest call that lacks a permit; for the governor, which holds the lock."""
        if self.busy >= self.limits.highest:
            return []
        call = self.admission.take_overdue()
        self.busy += 1
        self._left_queue()
        self.tally.overdrafts += 1
        return self._assign(call)

    # ------------------------------------------------------------------ sizing

    def is_active(self) -> bool:
        """Tell whether a call is queued or runs."""
        return bool(self.queued or self.busy or self.resolving or self.backlog)

    def at_rest(self) -> bool:
        """Tell whether windows without calls would change nothing."""
        return self.policy.at_rest(self.limits, self.sizing.state)

    def governed_running(self) -> int:
        """Return how many running calls count against the policy's size."""
        return self.admission.governed_running(self.busy, self.waiting)

    def close_window_locked(self, now_ns: int) -> list[Worker]:
        """Let the policy decide if a window is over; return workers to be started."""
        if not self.sizing.close_window(self, now_ns):
            return []
        self.crew.ceiling = self.admission.threads_for(self.sizing.state.workers, self.limits.highest)
        if len(self.crew.workers) > self.crew.ceiling:
            self.crew.dismiss_idle()
        return self.dispatch_locked()
