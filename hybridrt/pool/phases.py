"""A permit for every computing phase of a call, not only for its start.

A call that is about to wait gives its permit back (`leave`), and one that comes back asks for one (`enter`),
as in Go a goroutine does around a system call. Who says so: `blocking()`, on every version, and the call
sites where calls were seen to wait; see `site_events`. The sampler takes the permit of a call that waits
anywhere else.

Actors: workers, each for its own call. The shared lock protects the permits and the line; a worker
waits for its turn without it, at a lock of its own that the one who hands the permit on releases:

    1. A worker finds no room and puts itself into the line, with the lock.
    2. Another gives its permit back, with the lock: the permit is the first one's from then on, and its
       lock is released.
    3. The first wakes up and has its permit. No queued call can take it in between.

If 3 is a timeout that has come before 2, the worker sees under the lock whether it has been granted one.

Nothing can hang for want of a permit: a call goes on without one, which counts as an overdraft, after
`STILL` seconds in which no permit has moved, and after `MOST` seconds in any case. So a lock that is held
across a wait may cost time, and no more. While the interpreter ends, calls that were left behind wait for
`MOST` seconds, after which it has ended, as a rule (see `executor.exit`).
"""

from __future__ import annotations

from threading import Lock

from hybridrt.measure.gil import blocks
from hybridrt.observe.functions import LONG_NS, Profile
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT
from hybridrt.pool.phase import Phase
from hybridrt.pool.rebalance import change_permit_locked
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.state import NO_WORKERS, Call, Worker
from hybridrt.values import Kind

__all__ = ["MOST", "STILL", "begin", "computes_between_waits", "enter", "leave"]

STILL = 0.35
"""Seconds without any permit given back after which a call goes on without one. Not measured."""
MOST = 2.5
"""Seconds after which it does so in any case. A crowd must come through in less: with 1.0 a third of the runs
of 128 calls that wait 20 ms and compute with numpy had some 200 overdrafts, and a loop p99 of 16 to 58 ms;
with 2.5 none of ten had more than 6.2 ms."""


class _Return:
    """A call in the line."""

    __slots__ = ("gil_share", "granted", "waits", "wakeup", "worker")

    def __init__(self, worker: Worker, gil_share: float | None) -> None:
        self.worker = worker
        self.waits = worker.waits
        self.gil_share = gil_share
        self.granted = False
        self.wakeup = Lock()
        self.wakeup.acquire()

    def granted_locked(self, permit: int) -> bool:
        """Have the permit and go on; return False if the worker has gone meanwhile."""
        worker = self.worker
        if not worker.serving or worker.phase is None or worker.phase.asking is not self:
            return False
        free = not worker.permit  # else the sampler gave it one, which cannot be unless it ran
        if free:
            worker.permit = permit
        self.granted = True
        worker.pool.in_line -= self.waits
        self.wakeup.release()
        return free


def computes_between_waits(profile: Profile) -> bool:
    """Return True if a call of the function is to have a permit when it comes back from a wait.

    Also if none of its calls has said yet where it waits; the first that does decides.
    """
    return profile.gated or profile.puzzling or profile.kind is Kind.UNKNOWN


def leave(worker: Worker, call: Call, cpu_ns: int | None = None) -> None:
    """Give the permit of a call back, which is about to wait; in its thread.

    A call of a function that is not known yet shows by that what it does.

    Args:
        worker: Whose call waits.
        call: That call.
        cpu_ns: The thread's CPU time, if it was just read.
    """
    pool = worker.pool
    phase = worker.phase
    if phase is None:
        phase = worker.phase = Phase()
    to_start = NO_WORKERS
    phase.within = True
    try:
        if pool.lock.locked():
            without_convoy(pool.lock)
        with pool.lock:
            shows = call.unclassified
            if phase.call_ns != call.started_ns:
                phase.call_ns = call.started_ns
                opened_ns = pool.roster.cpu_ns() if cpu_ns is None else cpu_ns
                call.profile.said_waiting(opened_ns - worker.cpu_start_ns)
            if shows:
                call.profile.saw_waiting()
                call.classified_locked()
            if worker.permit:
                phase.left = True
                to_start = change_permit_locked(worker, NONE)
            elif shows:
                to_start = dispatch_locked(pool)
        if to_start:
            pool.start(to_start)
    finally:
        phase.within = False


def begin(worker: Worker, call: Call) -> None:
    """Do what is to be done before the first phase of a call: ask for a permit, let the loop go first."""
    profile, roster = call.profile, worker.pool.roster
    if profile.opens and worker.pool.phases and not worker.permit:
        worker.cpu_start_ns, call.started_ns = roster.cpu_ns(), roster.wall_ns()
        worker.call = call  # a cancel finds it here
        enter(worker, call)
    elif profile.may_hold and worker.permit:
        worker.pool.shield.give_way(profile)


def enter(worker: Worker, call: Call, permit: int = NONE, cpu_ns: int | None = None) -> None:
    """Ask for a permit, and wait for it; see the module for how long at most. In the call's thread.

    Args:
        worker: Whose call begins to compute.
        call: That call.
        permit: Which one; NONE for the one that fits its function.
        cpu_ns: The thread's CPU time, if it was just read; that takes half a microsecond or more.
    """
    pool, profile = worker.pool, call.profile
    phase = worker.phase
    if phase is None:
        phase = worker.phase = Phase()
    phase.left = False
    if worker.permit or worker.resolves or pool.admission.governs_all:
        return
    phase.within = True
    try:
        if not _ask(worker, phase, profile, permit or _permit_for(profile)):
            return
    finally:
        phase.within = False
    phase.begun_ns = pool.roster.wall_ns()
    phase.cpu_ns = pool.roster.cpu_ns() if cpu_ns is None else cpu_ns
    if pool.shield.armed:
        pool.shield.begins(profile)


def _ask(worker: Worker, phase: Phase, profile: Profile, permit: int) -> bool:
    """Have a permit before this returns True; False if the call has one already, or is over."""
    pool = worker.pool
    share = profile.gil.share if permit == FREE else None
    permits = pool.budget.permits
    asking: _Return | None = None
    to_start = NO_WORKERS
    if pool.lock.locked():
        without_convoy(pool.lock)
    try:
        with pool.lock:
            if not worker.serving or worker.permit:  # the sampler may have given it one meanwhile
                return False
            if permits.has_room_to_return(permit, share):
                permits.take(permit)
                worker.permit = permit
            else:
                asking = _Return(worker, share)
                pool.in_line += asking.waits
                phase.asking = asking
                permits.ask(permit, asking)
                pool.governor.wake_locked()
                if pool.queued:  # it does not count among those that wait, so another may start
                    to_start = dispatch_locked(pool)
        if to_start:
            pool.start(to_start)
    except BaseException:
        if asking is not None:
            _leave_line(worker, asking, permit)
        raise
    if asking is not None or profile.may_hold:
        blocked, begun = blocks(), pool.roster.wall_ns()
        if asking is not None:
            _stand_in_line(worker, asking, permit)
        if profile.may_hold:
            pool.shield.give_way(profile)
        worker.nested_wall_ns += pool.roster.wall_ns() - begun
        after = blocks()
        if blocked is not None and after is not None:
            phase.blocks += after - blocked
    return True


def _permit_for(profile: Profile) -> int:
    if profile.leaves_gil:
        return FREE
    return LONG if profile.cpu_mean_ns >= LONG_NS else SHORT


def _stand_in_line(worker: Worker, asking: _Return, permit: int) -> None:
    """Wait until the permit is there, or take it when the bound is reached."""
    pool = worker.pool
    permits, wall = pool.budget.permits, pool.roster.wall_ns
    until, moves = wall() + int(MOST * 1e9), permits.moves
    try:
        while not asking.wakeup.acquire(timeout=STILL):
            with without_convoy(pool.lock):
                if asking.granted:
                    break
                if wall() >= until or (permits.moves == moves and not permits.ended):
                    permits.withdraw(permit, asking)
                    permits.take(permit)
                    worker.permit = permit
                    pool.tally.overdrafts += 1
                    break
                moves = permits.moves
    finally:
        _leave_line(worker, asking, permit)


def _leave_line(worker: Worker, asking: _Return, permit: int) -> None:
    """Stand in the line no more; one that was killed there has got nothing."""
    pool = worker.pool
    with without_convoy(pool.lock):
        assert worker.phase is not None
        worker.phase.asking = None
        if not asking.granted:
            pool.in_line -= asking.waits
        pool.budget.permits.withdraw(permit, asking)
