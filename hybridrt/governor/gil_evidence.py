"""What the governor learns about the GIL by waking up beside calls that compute.

It is the first thing in a step. A governor that had to wait for the GIL may lose it again after one switch
interval, often to the very call that made it wait; which then ends while the governor does something else.
Called with the shared lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import ref

from hybridrt.governor.sampler import Tick, begun
from hybridrt.pool.state import Call, Pool, Worker

__all__ = ["GilEvidence"]

_WATCH_NS = 15_000
"""Time for which the CPU clocks of computing calls are watched,"""
_WATCHES = 3
"""and how many times in a row: a thread that has just lost the GIL computes on for up to 40 us on a virtual
machine, until it sleeps; one that does not need it computes all the time."""
_WATCHES_AT_ONCE = 2
"""Watches in a row right after waking up, before it is known who is busy: to find that out takes as long as
some functions leave the GIL in one go, as `zlib` on 100 kB. They count where no other function computes."""
_WATCH_READS = 300
"""Readings of the clock after which it ends in any case, as where the clock stands still."""
_SHARED_LEAST, _SHARED_MOST = 0.8, 1.1
"""Of a core: what calls that share the GIL compute together. Not all were looked at last at one time."""
_YOUNG_NS = 100_000
"""Age from which a call can tell whether its function leaves the GIL free."""


class Busy(NamedTuple):
    """A call that has computed until now.

    Attributes:
        call: The call.
        alone: Nearly all that the process has computed since the step before was this call.
        waited: How long the governor certainly waited for the GIL while the call computed, in nanoseconds.
    """

    call: Call
    alone: bool
    waited: int


class GilEvidence:
    """Remembers from one look to the next whom to ask again; no call is kept alive by it."""

    __slots__ = ("_again", "_holders", "_looked_ns")

    def __init__(self) -> None:
        self._looked_ns = 0
        """When it looked last."""
        self._holders: list[ref[Worker]] = []
        """Workers that held a permit then, if they were all of one function."""
        self._again: set[tuple[int, int]] = set()
        """Worker and start of calls that then computed without a permit, or were too young to tell."""

    def note(self, pools: Iterable[Pool], tick: Tick, now: Callable[[], int]) -> None:
        """Tell what the calls do with the GIL that computed until now.

        The governor has the GIL while it looks. A call whose CPU clock goes on meanwhile computes without it;
        one whose clock stands still may wait for it, or for anything else. That the governor had to wait for
        the GIL proves something only of a call that began before it, where no other function computes. It
        proves nothing if the call goes on now, or only lacks a core while others have computed: then those
        had the GIL, as a busy loop. (Whoever has just lost it computes on for some microseconds, until it
        sleeps; so the clocks are watched for longer than that, and the kernel is asked as well.)
        """
        if not (tick.gil and tick.slept):
            return
        asked = self._holders if tick.prompt else ()
        holders = [worker for each in asked if (worker := each()) is not None]
        at_once = _computing_now(holders, now, _WATCHES_AT_ONCE)
        busy = self._find_busy(pools, tick)
        if tick.prompt:
            surely = {
                worker
                for worker in at_once
                if (one := busy.get(worker)) is not None and tick.holders <= {one.call.profile}
            }
            for worker in (*surely, *_computing_now(busy.keys() - surely, now)):
                busy[worker].call.profile.saw_free()
            return
        seen = {
            worker: one
            for worker, one in busy.items()
            if one.call.started_ns < tick.now - tick.delay and tick.holders <= {one.call.profile}
        }
        if not seen:
            self._note_sharers(tick)
        computing = _computing_now(seen, now)
        for worker, one in seen.items():
            profile, goes_on = one.call.profile, worker in computing
            # To ask the kernel is to read a file, which gives the GIL away: it costs as much as all the rest.
            asks = goes_on or not one.alone
            runnable = asks and worker.probe is not None and worker.probe.is_runnable()
            if runnable and goes_on:
                profile.saw_free()
            elif one.alone or not runnable:
                profile.gil.saw_taken(one.waited, tick.switch_interval)

    def _note_sharers(self, tick: Tick) -> None:
        """Tell that calls of one function share the GIL: together they have computed for as long as one can.

        Others have computed next to nothing. Calls that leave the GIL compute for longer together; where they
        have too few cores, the kernel says so.
        """
        workers = [worker for each in self._holders if (worker := each()) is not None]
        found = {
            worker: _computed(worker, call, tick) for worker in workers if (call := worker.call) is not None
        }
        shares = {worker: one[0] / one[1] for worker, one in found.items() if one is not None and one[0]}
        share = sum(shares.values())
        alone = 5 * share * (tick.now - tick.before) >= 4 * tick.process_cpu > 0
        if len(shares) < 2 or not alone or not _SHARED_LEAST <= share <= _SHARED_MOST:
            return
        if not any(worker.probe is not None and worker.probe.is_runnable() for worker in shares):
            (profile,) = tick.holders
            profile.gil.saw_taken(tick.delay // len(shares), tick.switch_interval)

    def _find_busy(self, pools: Iterable[Pool], tick: Tick) -> dict[Worker, Busy]:
        """Return the calls that have computed until now, and note whose functions hold permits.

        Most calls without a permit wait: such a one is asked after its start, and again while it computes.
        """
        found: dict[Worker, Busy] = {}
        asked, self._again = self._again, set()
        before_ns, self._looked_ns = self._looked_ns, tick.now
        holders = list[Worker]()
        for pool in pools:
            for worker in tuple(pool.roster.workers):
                call = worker.call
                if call is None or worker.probe is None:
                    continue
                permit, begun_ns, phase = worker.permit, call.started_ns, worker.phase
                if not permit and begun_ns < before_ns and (id(worker), begun_ns) not in asked:
                    continue  # the common case: one of many that sleep
                if phase is not None and phase.asking is not None:
                    continue
                if not permit and ((phase is not None and phase.call_ns == begun_ns) or call.profile.sleeps):
                    continue  # it has said that it waits, or does little else
                if permit:
                    tick.holders.add(call.profile)
                    holders.append(worker)
                busy = _as_busy(worker, call, tick)
                if busy is not None:
                    found[worker] = busy
                if not permit and (busy is not None or tick.now - begun_ns < _YOUNG_NS):
                    self._again.add((id(worker), begun_ns))
        self._holders = [*map(ref, holders)] if len(tick.holders) == 1 else []
        return found


def _as_busy(worker: Worker, call: Call, tick: Tick) -> Busy | None:
    """Return what is known of a call that has computed since it was looked at last, or since it began.

    Usually it had a core for nearly all of that time. Where cores are short it had not; then its CPU time
    must be nearly all that the process has used since the step before, so that nobody else can have kept the
    governor waiting. What of the wait is certain is the CPU time that does not fit into the time before it.
    """
    computed = _computed(worker, call, tick)
    if computed is None:
        return None
    cpu, interval = computed
    alone = interval <= tick.now - tick.before and 5 * cpu >= 4 * tick.process_cpu > 0
    waited = tick.delay if 5 * cpu >= 4 * interval else cpu - (interval - tick.delay)
    if waited < tick.delay and (tick.prompt or not alone or 4 * waited < tick.delay):
        return None
    return Busy(call, alone, waited)


def _computed(worker: Worker, call: Call, tick: Tick) -> tuple[int, int] | None:
    """Return a call's CPU time since it was looked at last, or since it began, and how long ago that is."""
    assert worker.probe is not None
    since_ns, cpu_start = _last_look(worker, call)
    cpu_now, interval = worker.probe.cpu_ns(), tick.now - since_ns
    if cpu_now is None or cpu_start is None or interval < _YOUNG_NS:
        return None
    return cpu_now - cpu_start, interval


def _last_look(worker: Worker, call: Call) -> tuple[int, int | None]:
    """Return when the sampler looked at a call, or else when that began; and its CPU clock then."""
    begun_ns, cpu_ns = begun(worker, call)
    sample = worker.sample
    if sample is not None and sample.looked and sample.started_ns == begun_ns:
        return sample.at_ns, sample.cpu_ns
    return begun_ns, cpu_ns


def _computing_now(
    busy: Iterable[Worker], now: Callable[[], int], watches: int = _WATCHES
) -> Iterable[Worker]:
    """Return those that compute beside this thread, which has the GIL; nothing here gives it away."""
    for _ in range(watches):
        busy = _watched(busy, now)
    return busy


def _watched(busy: Iterable[Worker], now: Callable[[], int]) -> list[Worker]:
    """Watch the CPU clocks for a moment; return those that computed for half of it."""
    before = {worker: worker.cpu_so_far() or 0 for worker in busy}
    if not before:
        return []
    from_ns = now()
    until_ns, at_ns = from_ns + _WATCH_NS, from_ns
    for _ in range(_WATCH_READS):
        at_ns = now()
        if at_ns >= until_ns:
            break
    passed = at_ns - from_ns
    return [worker for worker in before if 2 * ((worker.cpu_so_far() or 0) - before[worker]) >= passed]
