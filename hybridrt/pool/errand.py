"""Errands: calls that run elsewhere while no thread of the pool waits for them.

Whoever begins an errand sends its call on its way and goes on; whoever hears of the end takes the call in,
and may begin the next one that is queued with the same errand. Others may go along in the same place. To the
pool an errand is a stint like a worker's: its call has passed its gates, counts as one that waits, and can be
abandoned and seen. Same lock and same rules as `pool`.
"""

from __future__ import annotations

from asyncio import CancelledError

from hybridrt.pool.call import CANCELLED, DONE, QUEUED, RUNNING, Call
from hybridrt.pool.ending import Batch, book_batch_locked, book_locked
from hybridrt.pool.gates import Gate
from hybridrt.pool.lock import patiently
from hybridrt.pool.pool import Pool
from hybridrt.pool.stint import ELSEWHERE, ELSEWHERE_BEARER, NOBODY, Stint
from hybridrt.pool.worker import Worker

__all__ = ["LATE_NS", "Errand", "begin_errand", "begin_locked", "finish_errand", "join_errand", "send_back"]

LATE_NS = 250_000_000
"""Time after which an errand is handed over: its loop may stand still, or never turn again."""


class Errand(Stint):
    """Calls on their way together; mostly there is one.

    Attributes:
        batch: Those that go with `call`, in its place. Changed with the lock held only.
        open: It has not set out, and others may join.
        begun_ns: When it was begun; valid while the errand is one of its pool's.
    """

    __slots__ = ("batch", "begun_ns", "open")

    begun_ns: int

    def __init__(self) -> None:
        super().__init__()
        self.batch: list[Call] = []
        self.open = False

    def calls(self) -> tuple[Call, ...]:
        """Return all of them."""
        return (*super().calls(), *self.batch)

    @property
    def bearer(self) -> str:
        """Say that it runs elsewhere."""
        return ELSEWHERE_BEARER

    def position(self) -> str:
        """Say that nobody here knows."""
        return ELSEWHERE

    def leave_behind(self) -> None:
        """Do nothing: an errand holds no thread."""

    def takes(self, call: Call) -> bool:
        """Tell whether the errand can begin this call as soon as its own has ended; the lock is held."""
        raise NotImplementedError

    def takes_along(self, call: Call) -> bool:
        """Add a call to the batch, if it can go along; the lock is held."""
        raise NotImplementedError

    def hand_over(self) -> None:
        """Let a thread wait for the end, if nobody has heard of it yet; from any thread, without the lock."""
        raise NotImplementedError

    def cpu_so_far(self) -> int | None:
        """Return None: the call has no thread here."""
        return None


def begin_errand(errand: Errand, call: Call) -> bool:
    """Begin a new call with an errand if it may start at once; else nothing has happened to it."""
    pool = call.pool
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        if pool.refusal is not None or pool.queued or pool.governor.error is not None:
            return False
        if not pool.admits_at_once_locked(call):
            return False
        pool.tally.submitted += 1
        begin_locked(errand, call)
        call.queued_ns = errand.begun_ns
    if pool.governor.parked:
        pool.governor.ring()
    return True


def join_errand(errand: Errand, call: Call) -> bool:
    """Let a new call go along with an errand that has not set out; else nothing has happened to it."""
    pool = call.pool
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        if not errand.open or pool.refusal is not None or not _takes_along(errand, call):
            return False
        pool.tally.submitted += 1
        call.state, call.place = RUNNING, None
        call.queued_ns = call.started_ns = pool.crew.wall_ns()
    return True


def _takes_along(errand: Errand, call: Call) -> bool:
    """Add a call that needs no place but the one at the gate of its isolates, which the errand has."""
    first = errand.call
    alone = call.alone or first is None or first.alone
    return not alone and len(call.gates) == 1 and errand.takes_along(call)


def send_back(errand: Errand, kept: int = 0) -> None:
    """Queue all but the first `kept` calls of a batch again: they go one by one, or not if cancelled."""
    assert errand.call is not None
    pool = errand.call.pool
    with patiently(pool.lock):
        errand.open = False
        back, errand.batch = errand.batch[kept:], errand.batch[:kept]
        dropped = list[Call]()
        for call in back:
            if call.cancel_requested:
                call.state = CANCELLED
                pool.tally.cancelled += 1
                dropped.append(call)
            else:
                call.state, call.alone = QUEUED, True
                pool.queued += 1
                pool.enter_gates_locked(call)
        hired = pool.dispatch_locked()
    pool.crew.start(hired)
    for call in dropped:
        call.error = CancelledError()
        call.deliver()


def finish_errand(errand: Errand, call: Call, *, goes_on: bool) -> Call | None:
    """Book a call that has ended elsewhere, and those that went with it.

    Args:
        errand: Brought it back.
        call: The call, with what came of it and what that took; those that went with it have returned and
            took as long.
        goes_on: The errand takes a queued call if the next one is of its kind.

    Returns:
        That call, begun; the errand is the pool's no more if it is None.
    """
    pool, follower = call.pool, None
    hired = NOBODY
    if pool.lock.locked():
        patiently(pool.lock)
    with pool.lock:
        if errand.batch:
            _book_batch_locked(pool, errand, call)
        else:
            book_locked(pool, call)
        pool.end_stint_locked(errand)
        moved = pool.leave_gates_locked(call)
        if moved or pool.queued or pool.interpreter.starved or pool.crew.stopping():
            if goes_on and pool in moved:
                follower, hired = _take_next_locked(pool, errand)
            hired = hired + pool.dispatch_after_locked(moved)
        if follower is None:
            errand.call = None
            pool.crew.errands.discard(errand)
    if hired:
        pool.crew.start(hired)
    return follower


def _take_next_locked(pool: Pool, errand: Errand) -> tuple[Call | None, list[Worker]]:
    """Begin the next queued call with the errand, or give it to a worker."""
    call = pool.take_locked() if pool.crew.has_hands(pool.resolving) else None
    if call is None:
        return None, []
    if not errand.takes(call):
        return None, pool.assign_locked(call)
    begin_locked(errand, call)
    return call, []


def _book_batch_locked(pool: Pool, errand: Errand, call: Call) -> None:
    calls, tally = errand.calls(), pool.tally
    wall, cpu, wait, many = call.wall_ns, call.cpu_ns, 0, len(calls)
    for each in calls:
        each.state = DONE
        wait += each.started_ns - each.queued_ns
    ended = call.started_ns + many * wall
    booked = Batch(call.profile, many, 0, many * wall, many * cpu, wait, wall - cpu, ended)
    book_batch_locked(pool, booked)
    if call.in_waiting_lane:
        tally.lane_calls += many
        tally.lane_wall_ns += many * wall
        tally.lane_cpu_ns += many * cpu
    errand.batch = []


def begin_locked(errand: Errand, call: Call) -> None:
    """Begin a call that was taken out of the queue with an errand, and take along what waits behind it."""
    pool = call.pool
    call.state, call.place = RUNNING, None
    pool.hold_locked(errand, call)
    errand.serving = True
    errand.call = call
    call.started_ns = errand.begun_ns = pool.crew.wall_ns()
    pool.crew.errands.add(errand)
    if len(call.gates) == 1 and call.gates[0].waiting:
        _fill_locked(pool, errand, call.gates[0])


def _fill_locked(pool: Pool, errand: Errand, gate: Gate) -> None:
    """Take calls along that wait at the gate, in their order."""
    for call in gate.waiting:
        if call.pool is not pool or not _takes_along(errand, call):
            break
    for call in errand.batch:
        del gate.waiting[call], pool.at_gates[call]
        call.state, call.place, call.started_ns = RUNNING, None, errand.begun_ns
    if errand.batch:
        pool.left_queue_locked(len(errand.batch))
