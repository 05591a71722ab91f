"""A call, or a batch of them, has ended: book it, give back what it held, go on.

Same lock and same rules as `pool`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hybridrt.observe.functions import Profile
from hybridrt.pool.call import DONE, Call
from hybridrt.pool.lock import patiently
from hybridrt.pool.permits import FREE
from hybridrt.pool.stint import NOBODY
from hybridrt.values import Kind

if TYPE_CHECKING:
    from hybridrt.pool.pool import Pool
    from hybridrt.pool.worker import Worker

__all__ = [
    "Batch", "book_batch_locked", "book_locked", "finish", "finish_and_begin_next", "finish_batch",
    "finish_helped",
]  # fmt: skip

_ROOM = 32
"""Size of the waiting lane up to which short calls may join it; in a larger one, grown for calls that do
nothing but wait, all of them that are queued would compute at once."""
_NONE: dict[Pool, None] = {}
"""No pool; never changed."""


def finish(pool: Pool, worker: Worker, call: Call) -> None:
    """Book a call that ended; its worker asks for the next one after it has delivered."""
    with patiently(pool.lock):
        book_locked(pool, call)
        pool.end_stint_locked(worker)
        hired = pool.dispatch_after_locked(pool.leave_gates_locked(call))
    _after_end(pool, call, hired)


def finish_helped(pool: Pool, call: Call) -> None:
    """Book a call that ran inside another one."""
    with patiently(pool.lock):
        book_locked(pool, call)
        hired = pool.dispatch_after_locked(pool.leave_gates_locked(call))
    _after_end(pool, call, hired)


def finish_and_begin_next(pool: Pool, worker: Worker, call: Call) -> None:
    """Book a call that ended, and open the worker's next stint in the same breath."""
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        moved = pool.leave_gates_locked(call) if call.gates else _NONE
        if moved or pool.queued or pool.interpreter.starved or pool.crew.stopping():
            hired = _end_and_begin_locked(pool, worker, call, moved)
        else:
            hired = NOBODY
            book_locked(pool, call)
            pool.end_stint_locked(worker)
            pool.crew.idle.append(worker)  # the common case of `park`
    if hired or pool.hooks.on_event is not None:
        _after_end(pool, call, hired)


def _end_and_begin_locked(pool: Pool, worker: Worker, call: Call, moved: dict[Pool, None]) -> list[Worker]:
    """Go on after a call whose gates were left, which `moved` the queues of these pools."""
    hired = NOBODY
    permit, kind, refills = worker.permit, call.profile.kind, bool(pool.backlog)
    book_locked(pool, call)
    pool.end_stint_locked(worker)
    if pool.others_starve_locked():
        hired = pool.dispatch_after_locked(moved)
        pool.begin_or_park_locked(worker)
    else:
        begun = pool.begin_or_park_locked(worker)
        # One like it took its place, and nothing else has changed: nobody else can start.
        like = begun and worker.permit == permit and call.profile.kind is kind
        if moved or pool.admission.moved or not like:
            hired = pool.dispatch_after_locked(moved)
    if refills:  # what came out of the backlog may be of another kind
        hired = hired + pool.dispatch_locked()
    return hired


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
    """Book a batch that ended and open the worker's next stint."""
    hired, profile = NOBODY, batch.profile
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        permit, kind, refills = worker.permit, profile.kind, bool(pool.backlog)
        book_batch_locked(pool, batch)
        pool.end_stint_locked(worker)
        if pool.others_starve_locked():
            hired = pool.dispatch_others_locked()
            pool.begin_or_park_locked(worker)
            hired = hired + pool.dispatch_locked()
        else:
            begun = pool.begin_or_park_locked(worker)
            if not (begun and worker.permit == permit and profile.kind is kind) or pool.admission.moved:
                hired = pool.dispatch_others_locked(pool)
        if refills:
            hired = hired + pool.dispatch_locked()
    if hired:
        pool.crew.start(hired)


def _after_end(pool: Pool, call: Call, hired: list[Worker]) -> None:
    if pool.hooks.on_event is not None:
        pool.hooks.finished(call)
    if hired:
        pool.crew.start(hired)


def book_locked(pool: Pool, call: Call) -> None:
    """Add a call that ended to the statistics."""
    call.state = DONE
    profile, tally = call.profile, pool.tally
    wall, cpu = call.wall_ns, call.cpu_ns
    if pool.measures:
        try:
            if profile.kind is Kind.FREE:
                profile.saw_beside(pool.interpreter.permits.held[FREE])
            gil_wait = None
            if call.blocks is not None:  # it was asked for its waits
                call.run_delay_ns += pool.interpreter.kept.of(wall - call.run_delay_ns, cpu)
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
    if call.unjudged:
        call.unjudged = False
        profile.unjudged -= 1


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
    """Tell whether short calls may join the waiting lane: not where it has grown for others."""
    return pool.sizing.state.workers <= _ROOM


def _gil_wait_locked(pool: Pool, call: Call) -> int:
    """Return how long a call that was asked can have waited for the GIL, by what a wait for it takes now.

    What the lane's calls were blocked for certain goes to the tally: there each wait counts as a whole
    switch interval, which is the longest that it can be. A call that never waited for anything has only
    been kept from its core, by the host perhaps, which the kernel of a guest does not see.
    """
    assert call.blocks is not None
    load, tally = pool.interpreter.gil_load, pool.tally
    unknown = max(0, call.wall_ns - call.cpu_ns - call.run_delay_ns)
    most = call.blocks * load.longest_wait_since(call.started_ns) if call.blocks else unknown
    if call.in_waiting_lane:
        tally.asked_wall_ns += call.wall_ns
        tally.asked_blocked_ns += max(0, unknown - most)
    if not call.blocks or call.profile.leaves_gil:
        return most  # one that gives the GIL away often waits for it often, and each time by chance
    return call.blocks * load.wait_since(call.started_ns)
