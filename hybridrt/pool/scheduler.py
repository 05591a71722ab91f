"""The path of a call through its pool: in, started, ended, out.

A pool owns the queued calls of one executor and decides, whenever something changes, which of them start and
on which worker. It knows nothing of asyncio, of threads, and of sizing laws.

Actors: submitters (any thread), workers, the governor, and all that cancel. They come in through functions
that take the lock; those with a leading underscore, and those called `..._locked`, are called with the lock
held. Threads are started and results delivered only after the lock is released. How a call is claimed, and
why it cannot be both claimed and cancelled, is told in `worker`.

An invariant saves most of the work: *the first call of a lane cannot start now*, or it would have.
Whatever makes a start possible (a permit or a place given back, a kind learned, a size changed, a worker
parked) dispatches, so a call that queues behind another needs no look.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import NamedTuple

from hybridrt.compat import stdlib_threads
from hybridrt.errors import QueueFullError
from hybridrt.observe.functions import Profile
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.permits import FREE, NONE
from hybridrt.pool.roster import add_worker, dismiss_idle, has_capacity, park, stopping
from hybridrt.pool.state import ASSIGNED, DONE, NO_WORKERS, QUEUED, Call, Pool, Worker
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.values import Kind

__all__ = [
    "Batch",
    "admits_at_once_locked",
    "assign_locked",
    "begin_next",
    "begin_or_park_locked",
    "book_batch_locked",
    "book_locked",
    "dispatch_after_locked",
    "dispatch_locked",
    "dispatch_others_locked",
    "dispatch_to_idle_locked",
    "end_assignment_locked",
    "finish",
    "finish_and_begin_next",
    "finish_batch",
    "finish_helped",
    "left_queue_locked",
    "passed_limiter_locked",
    "push",
    "put_back_locked",
    "release_limiters_locked",
    "requeue_locked",
    "resize_limiter_locked",
]  # fmt: skip

RESOLVERS_MAX = 16
"""Name resolutions at once; they have threads of their own beyond `max_workers`."""


@uninterrupted
def push(pool: Pool, call: Call) -> None:
    """Queue a call and start what may start.

    Raises:
        QueueFullError: `queue_max` calls are queued and the call is not patient.
        RuntimeError: The pool is closed or broken, or no thread could be started at all.
    """
    to_start = NO_WORKERS
    call.queued_ns = pool.roster.queue_ns()
    if pool.lock.locked():
        without_convoy(pool.lock)
    with pool.lock:
        if pool.refusal is not None:
            raise pool.refusal()
        if 0 < pool.queued < pool.queue_room and not (call.limiters or call.resolves):
            starts = pool.admission.put(call)  # the common case under load
            pool.queued += 1
            if starts:
                to_start = dispatch_locked(pool)
        elif not (_started_at_once(pool, call) or _enqueued_behind(pool, call)):
            to_start = dispatch_locked(pool)
        pool.tally.submitted += 1
    try:
        if pool.governor.parked:
            pool.governor.wake()
    finally:
        if to_start:
            pool.start(to_start, call)


def _started_at_once(pool: Pool, call: Call) -> bool:
    """Hand a call to a parked worker without a detour through the queue; the common case."""
    roster = pool.roster
    if pool.queued or not roster.idle or not admits_at_once_locked(pool, call):
        return False
    worker = roster.idle.pop()
    hold_locked(pool, worker, call)
    call.state = ASSIGNED
    call.place = worker.batch
    worker.batch.append(call)
    _open_assignment(worker)
    return True


def admits_at_once_locked(pool: Pool, call: Call) -> bool:
    """Take a call past an empty queue to its worker, through its limiters and with its permit."""
    if call.resolves or pool.busy >= pool.limits.highest:
        return False
    for limiter in call.limiters:
        if limiter.active >= limiter.limit:
            return False
    if not pool.admission.start_at_once(call, pool.waiting < pool.sizing.state.workers):
        return False
    return not call.limiters or _pass_limiters(pool, call)


def _enqueued_behind(pool: Pool, call: Call) -> bool:
    """Queue a call; return whether it stands behind another one, so that it cannot start."""
    if pool.queued >= pool.queue_room and not call.resolves:  # names are never waited for
        _overflow(pool, call)
        return True
    if call.limiters or call.resolves:
        acquire_limiters_locked(pool, call)
    else:
        pool.admission.put(call)
    pool.queued += 1
    return call.place is not None and len(call.place) > 1


def _overflow(pool: Pool, call: Call) -> None:
    """Keep a patient call until there is space; refuse another."""
    if not call.patient:
        pool.tally.rejected += 1
        raise QueueFullError(
            f"the queue holds queue_max={pool.queue_room} calls, so {call.profile.name} was not "
            "accepted; wait for results, await the call instead, or raise queue_max"
        )
    pool.backlog[call] = None
    call.place = pool.backlog


def acquire_limiters_locked(pool: Pool, call: Call) -> None:
    """Take a call through the limiters that are open, and to its lane behind the last."""
    if _pass_limiters(pool, call):
        requeue_locked(pool, call)


def _pass_limiters(pool: Pool, call: Call) -> bool:
    """Take a call through the limiters that are open; return whether none is left."""
    limiters = call.limiters
    while call.limiters_passed < len(limiters):
        if not limiters[call.limiters_passed].acquire(call):
            pool.at_limiters[call] = None
            return False
        call.limiters_passed += 1
    return True


def requeue_locked(pool: Pool, call: Call) -> None:
    """Put a call at the end of its lane; what it had been given is taken back."""
    call.state = QUEUED
    call.permit = NONE
    call.in_waiting_lane = False
    if call.resolves:
        pool.resolve_lane[call] = None
        call.place = pool.resolve_lane
    else:
        pool.admission.put(call)


def put_back_locked(pool: Pool, call: Call) -> None:
    """Queue a call again that was taken out and did not begin, before all others of its lane."""
    call.classified_locked()
    pool.queued += 1
    requeue_locked(pool, call)
    lane = call.place
    assert isinstance(lane, OrderedDict)
    lane.move_to_end(call, last=False)


def dispatch_locked(pool: Pool) -> list[Worker]:
    """Assign every call that may start; return the workers to be started."""
    to_start: list[Worker] = []
    try:
        while pool.queued:
            resolves = pool.resolve_lane and pool.resolving < RESOLVERS_MAX
            if not (resolves or has_capacity(pool, pool.resolving)):
                break
            call = take_locked(pool)
            if call is None:
                break
            assign_locked(pool, call, to_start)
            if call.state == QUEUED:  # there was no memory for a worker: the governor's next step tries again
                break
        pool.admission.moved = False
        if pool.admission.lacks_permit():
            pool.budget.waiting_for_permit[pool] = None
            pool.governor.wake_locked()
        else:
            pool.budget.waiting_for_permit.pop(pool, None)
    except MemoryError:  # workers that were given calls are to start all the same
        pool.roster.retries = True
    return to_start


def dispatch_to_idle_locked(pool: Pool) -> None:
    """Assign calls that may start to parked workers, as far as there are any."""
    while pool.roster.idle and pool.queued and (call := take_locked(pool)) is not None:
        assign_locked(pool, call, NO_WORKERS)


def assign_locked(pool: Pool, call: Call, to_start: list[Worker]) -> None:
    """Give a call to a parked worker, or to a new one, which is added to `to_start`.

    Where there is no memory for a new one the call is queued again.
    """
    idle = pool.roster.idle
    try:
        worker = idle.pop() if idle else add_worker(pool, to_start)
    except MemoryError:
        if call.permit:
            pool.budget.permits.give_back(call.permit)
        put_back_locked(pool, call)
        pool.roster.retries = True
    else:
        _begin(pool, worker, call)


def take_locked(pool: Pool) -> Call | None:
    """Take the call out of its lane that may start now, with its permit."""
    if pool.resolve_lane and pool.resolving < RESOLVERS_MAX:
        call: Call | None = pool.resolve_lane.popitem(last=False)[0]
    elif pool.busy < pool.limits.highest:
        running = pool.busy - pool.abandoned
        size, waiting = pool.sizing.state.workers, pool.waiting
        if pool.in_line:
            waiting -= min(size, pool.in_line)  # they wait no more, and do not compute yet
        call = pool.admission.take(size, running, waiting)
        if call is None:
            return None
    else:
        return None
    left_queue_locked(pool, 1)
    return call


def left_queue_locked(pool: Pool, calls: int) -> None:
    pool.queued -= calls
    while pool.backlog and pool.queued < pool.queue_room:
        call, _ = pool.backlog.popitem(last=False)
        call.place = None
        pool.queued += 1
        acquire_limiters_locked(pool, call)


def _begin(pool: Pool, worker: Worker, call: Call) -> None:
    """Open an assignment: the call, and those that go with it, are the worker's to claim."""
    batch = worker.batch
    call.state = ASSIGNED
    call.place = batch
    if call.resolves:
        worker.resolves = True
        pool.resolving += 1
    else:
        hold_locked(pool, worker, call)
    batch.append(call)
    if call.permit and call.profile.batch > 1 and pool.queued and call.quick and not call.limiters:
        _extend(pool, batch, call)
    _open_assignment(worker)


def _open_assignment(worker: Worker) -> None:
    """Let a worker have what has been put into its batch.

    The last step of an assignment: a worker that sees `serving` takes what it finds in the batch for all
    there is. No ring is lost: the worker says `asleep` before it looks at `serving` a last time, and
    `serving` is true before `asleep` is read here.
    """
    worker.serving = True
    if worker.asleep:
        worker.wakeup.put(None)


def hold_locked(pool: Pool, worker: Worker, call: Call) -> None:
    """Let an assignment hold what its call was started with."""
    pool.busy += 1
    worker.permit = call.permit
    if call.in_waiting_lane:
        worker.waits = True
        pool.waiting += 1


def _extend(pool: Pool, batch: deque[Call], first: Call) -> None:
    more = pool.admission.take_like(first, first.profile.batch - 1)
    if more:
        for call in more:
            call.state = ASSIGNED
            call.place = batch
        batch.extend(more)
        left_queue_locked(pool, len(more))


def begin_next(pool: Pool, worker: Worker) -> None:
    """End a worker's assignment and open its next one, or park it."""
    with without_convoy(pool.lock):
        end_assignment_locked(pool, worker)
        begin_or_park_locked(pool, worker)
        to_start = dispatch_others_locked(pool)
    pool.start(to_start)


def begin_or_park_locked(pool: Pool, worker: Worker) -> bool:
    """Open a worker's next assignment and return True, or park it."""
    if pool.queued and (call := take_locked(pool)) is not None:
        _begin(pool, worker, call)
        return True
    park(pool, worker)
    return False


def end_assignment_locked(pool: Pool, worker: Worker) -> None:
    """Return all that an assignment held; again, if memory was lacking to return all."""
    if worker.serving:
        worker.serving = False
        if worker.resolves:
            worker.resolves = False
            pool.resolving -= 1
        else:
            pool.busy -= 1
        if worker.waits:
            worker.waits = False
            pool.waiting -= 1
        if worker.abandoned:
            worker.abandoned = False
            pool.abandoned -= 1
    if worker.permit:
        pool.budget.permits.exchange(worker, NONE)


def others_wait_for_permit_locked(pool: Pool) -> bool:
    """Return True if another pool lacks a permit."""
    waiting_for_permit = pool.budget.waiting_for_permit
    return len(waiting_for_permit) > (pool in waiting_for_permit)


def dispatch_after_locked(pool: Pool, touched: dict[Pool, None]) -> list[Worker]:
    """Start what an ended call made room for: in pools its limiters `touched`, starved ones, our own."""
    touched.pop(pool, None)
    to_start = [worker for other in touched for worker in dispatch_locked(other)]
    return to_start + dispatch_others_locked(pool)


def dispatch_others_locked(pool: Pool, *, own: bool = True) -> list[Worker]:
    """Start what a permit given back allows: in starved pools, and then in this one."""
    to_start: list[Worker] = []
    waiting_for_permit = pool.budget.waiting_for_permit
    if others_wait_for_permit_locked(pool):
        waiting_for_permit.pop(pool, None)  # to the end of the line
        to_start = [worker for other in tuple(waiting_for_permit) for worker in dispatch_locked(other)]
    if own:
        if pool.queued:
            to_start += dispatch_locked(pool)
        else:
            waiting_for_permit.pop(pool, None)
            if stopping(pool):
                dismiss_idle(pool)
    if pool.budget.permits.left:
        pool.budget.permits.hand_on()
    return to_start


def release_limiters_locked(pool: Pool, call: Call) -> dict[Pool, None]:
    """Let the next call through each limiter; return the pools whose queues moved."""
    touched: dict[Pool, None] = {}
    for limiter in call.limiters[: call.limiters_passed]:
        follower = limiter.release()
        if follower is not None:
            touched[passed_limiter_locked(follower)] = None
    call.limiters = ()
    return touched


def resize_limiter_locked(limiter: WatchedLimiter[Call], limit: int, most: int) -> list[Worker]:
    """Let so many calls in at once from now on; return the workers to be started for those that waited."""
    touched = {passed_limiter_locked(call): None for call in limiter.resize(limit, most)}
    return [worker for pool in touched for worker in dispatch_locked(pool)]


def passed_limiter_locked(call: Call) -> Pool:
    """Take a call that a limiter has let in through the next ones; return its pool, whose queue has moved."""
    pool = call.pool
    call.limiters_passed += 1
    del pool.at_limiters[call]
    acquire_limiters_locked(pool, call)
    return pool


_ROOM = 32
"""Size of the waiting lane up to which short calls may join it; in a larger one, grown for calls that do
nothing but wait, all of them that are queued would compute at once."""
_NONE: dict[Pool, None] = {}
"""No pool; never changed."""


def finish(pool: Pool, worker: Worker, call: Call) -> None:
    """Book a call that ended; its worker asks for the next one after it has delivered."""
    with without_convoy(pool.lock):
        moved = release_limiters_locked(pool, call)
        book_locked(pool, call)
        end_assignment_locked(pool, worker)
        to_start = dispatch_after_locked(pool, moved)
    _after_end(pool, call, to_start)


def finish_helped(pool: Pool, call: Call) -> None:
    """Book a call that ran inside another one."""
    with without_convoy(pool.lock):
        moved = release_limiters_locked(pool, call)
        book_locked(pool, call)
        to_start = dispatch_after_locked(pool, moved)
    _after_end(pool, call, to_start)


def finish_and_begin_next(pool: Pool, worker: Worker, call: Call) -> None:
    """Book a call that ended, and open the worker's next assignment in the same breath."""
    if pool.lock.locked():
        without_convoy(pool.lock)
    with pool.lock:
        moved = release_limiters_locked(pool, call) if call.limiters else _NONE
        if moved or pool.queued or pool.budget.waiting_for_permit:
            to_start = _end_and_begin_locked(pool, worker, call, moved)
        else:
            to_start = NO_WORKERS
            book_locked(pool, call)
            end_assignment_locked(pool, worker)
            pool.roster.idle.append(worker)  # the common case of `park`
            if pool.draining or stdlib_threads._shutdown:  # not before: no lock is held to set the first
                dismiss_idle(pool)
    if to_start or pool.hooks.on_event is not None:
        _after_end(pool, call, to_start)


def _end_and_begin_locked(pool: Pool, worker: Worker, call: Call, moved: dict[Pool, None]) -> list[Worker]:
    """Go on after a call whose limiters were left, which `moved` the queues of these pools."""
    to_start = NO_WORKERS
    permit, kind, refills = worker.permit, call.profile.kind, bool(pool.backlog)
    book_locked(pool, call)
    end_assignment_locked(pool, worker)
    if others_wait_for_permit_locked(pool):
        to_start = dispatch_after_locked(pool, moved)
        begin_or_park_locked(pool, worker)
    else:
        begun = begin_or_park_locked(pool, worker)
        # One like it took its place, and nothing else has changed: no other call can start.
        like = begun and worker.permit == permit and call.profile.kind is kind
        if moved or pool.admission.moved or not like:
            to_start = dispatch_after_locked(pool, moved)
    if refills:  # what came out of the backlog may be of another kind
        to_start = to_start + dispatch_locked(pool)
    return to_start


class Batch(NamedTuple):
    """What is booked of calls of one function that ran back to back; see `Profile.record_batch`."""

    profile: Profile
    calls: int
    failed: int
    wall_ns: int
    cpu_ns: int
    queue_wait_ns: int
    least_blocked_ns: int
    ended_ns: int


def finish_batch(pool: Pool, worker: Worker, batch: Batch) -> None:
    """Book a batch that ended and open the worker's next assignment."""
    to_start, profile = NO_WORKERS, batch.profile
    if pool.lock.locked():
        without_convoy(pool.lock)
    with pool.lock:
        permit, kind, refills = worker.permit, profile.kind, bool(pool.backlog)
        book_batch_locked(pool, batch)
        end_assignment_locked(pool, worker)
        if others_wait_for_permit_locked(pool):
            to_start = dispatch_others_locked(pool, own=False)
            begin_or_park_locked(pool, worker)
            to_start = to_start + dispatch_locked(pool)
        else:
            begun = begin_or_park_locked(pool, worker)
            if not (begun and worker.permit == permit and profile.kind is kind) or pool.admission.moved:
                to_start = dispatch_others_locked(pool)
        if refills:
            to_start = to_start + dispatch_locked(pool)
    if to_start:
        pool.start(to_start)


def _after_end(pool: Pool, call: Call, to_start: list[Worker]) -> None:
    try:
        if pool.hooks.on_event is not None:
            pool.hooks.finished(call)
    finally:
        if to_start:
            pool.start(to_start)


def book_locked(pool: Pool, call: Call) -> None:
    """Add a call that ended to the statistics."""
    call.state = DONE
    profile, tally = call.profile, pool.tally
    wall, cpu = call.wall_ns, call.cpu_ns
    if pool.measures:
        try:
            if profile.kind is Kind.FREE:
                profile.saw_beside(pool.budget.permits.held[FREE])
            gil_wait = None
            if call.blocks is not None:  # it was asked for its waits
                call.run_delay_ns += pool.budget.kept.of(wall - call.run_delay_ns, cpu)
                gil_wait = _gil_wait_locked(pool, call)
            begun = call.started_ns
            ended = begun + wall if _may_overlap(pool) else 0
            profile.record(wall, cpu, begun - call.queued_ns, call.run_delay_ns, gil_wait, ended)
            tally.wall_ns += wall
            tally.cpu_ns += cpu
            if call.in_waiting_lane:
                tally.lane_calls += 1
                tally.lane_wall_ns += wall
                tally.lane_cpu_ns += cpu
        except MemoryError:  # what the call held is given back all the same
            pass
    if call.error is None:
        tally.completed += 1
    else:
        tally.failed += 1
        profile.failed += 1
    if call.unclassified:
        call.classified_locked()


def book_batch_locked(pool: Pool, batch: Batch) -> None:
    """Add calls that ran back to back to the statistics."""
    profile, calls, failed, wall_ns, cpu_ns, queue_wait_ns, least_blocked_ns, ended_ns = batch
    tally = pool.tally
    if pool.measures:
        ended = ended_ns if _may_overlap(pool) else 0
        with suppress(MemoryError):
            profile.record_batch(calls, wall_ns, cpu_ns, queue_wait_ns, least_blocked_ns, ended)
        tally.wall_ns += wall_ns
        tally.cpu_ns += cpu_ns
    tally.completed += calls - failed
    tally.failed += failed
    profile.failed += failed


def _may_overlap(pool: Pool) -> bool:
    """Return True if short calls may join the waiting lane: not where it has grown for others."""
    return pool.sizing.state.workers <= _ROOM


def _gil_wait_locked(pool: Pool, call: Call) -> int:
    """Return how long a call that was asked can have waited for the GIL, by what a wait for it takes now.

    What the lane's calls were blocked for certain goes to the tally: there each wait counts as a whole
    switch interval, which is the longest that it can be. A call that never waited for anything has only
    been kept from its core, by the host perhaps, which the kernel of a guest does not see.
    """
    assert call.blocks is not None
    load, tally = pool.budget.gil_load, pool.tally
    unknown = max(0, call.wall_ns - call.cpu_ns - call.run_delay_ns)
    longest = load.longest_wait_since(call.started_ns) if pool.budget.gil else 0
    most = call.blocks * longest if call.blocks else unknown
    if call.in_waiting_lane:
        tally.asked_wall_ns += call.wall_ns
        tally.asked_blocked_ns += max(0, unknown - most)
    if not longest or not call.blocks or call.profile.leaves_gil:
        return most  # one that gives the GIL away often waits for it often, and each time by chance
    return call.blocks * load.wait_since(call.started_ns)
