"""Which queued call may start next: first come first served, or by lanes and permits.

An admission holds the queued calls of one pool and chooses among them. It knows nothing of threads.
The shared lock protects it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter

from hybridrt.observe.functions import Profile
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT, Permits
from hybridrt.pool.run_queue import Standstill
from hybridrt.pool.state import Call
from hybridrt.values import Kind

__all__ = ["FifoAdmission", "LaneAdmission"]

Lane = OrderedDict[Call, None]
# Looking a member up in its class costs more than in a dict.
_SHORT, _LONG, _FREE, _WAITING = Kind.SHORT, Kind.LONG, Kind.FREE, Kind.WAITING
_PERMITS = {_SHORT: SHORT, _LONG: LONG, _FREE: FREE, _WAITING: NONE}
_UNKNOWN = 4
"""The number of the lane of all unknown functions; that of another is the permit that its calls need."""
_queued_ns = attrgetter("queued_ns")


def _put(lane: Lane, call: Call) -> None:
    lane[call] = None
    call.place = lane


def _pop(lane: Lane) -> Call:
    call, _ = lane.popitem(last=False)
    call.place = None
    return call


class FifoAdmission:
    """One queue, as many calls at once as the policy says, no permits."""

    moved = False
    governs_all = True

    def __init__(self) -> None:
        self._queue: Lane = OrderedDict()

    def put(self, call: Call) -> bool:
        """Queue a call; return whether it is the first."""
        _put(self._queue, call)
        return len(self._queue) == 1

    def start_at_once(self, call: Call, room_to_wait: bool) -> bool:
        """Return False: the common way is as short."""
        return False

    def take(self, limit: int, running: int, waiting: int) -> Call | None:
        """Return the oldest call while fewer than `limit` run."""
        return _pop(self._queue) if self._queue and running < limit else None

    def take_like(self, first: Call, most: int) -> list[Call]:
        """Take none: other workers may be free for them."""
        return []

    def standing_still(self, now_ns: int, before_ns: int) -> list[Standstill[Call]]:
        """Return none: the policy's size is all that counts."""
        return []

    def start_beyond(self, still: Standstill[Call], call: Call, now_ns: int) -> None:
        """Raise: nothing starts beyond the policy's size."""
        raise LookupError("nothing starts beyond the policy's size")

    def lacks_permit(self) -> bool:
        """Return False: no call needs one."""
        return False

    def governed(self) -> int:
        """Return the length of the queue."""
        return len(self._queue)

    def counts(self) -> dict[str, int]:
        """Return the length of the queue."""
        return {"queue": len(self._queue)}

    def drain(self) -> list[Call]:
        """Take everything out."""
        return [_pop(self._queue) for _ in range(len(self._queue))]


class LaneAdmission:
    """A lane per kind of function.

    Waiting calls start while fewer than `limit` of them run. Short, long and GIL-free calls need a
    permit of their kind. Calls of a function that is not known yet start one by one with a permit,
    and in doubling cohorts without one as soon as they are seen to wait. A kind is looked up when a
    call is queued, and once more at the head of its lane; within a lane the oldest goes
    first, and of the heads of the short and the unknown lane the older.

    Each lane has a clock of its own: whatever starts from the others, it is seen when none of its calls
    does. To that end all unknown functions are one lane, which moves when the oldest of its calls starts.
    """

    governs_all = False

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._waiting: Lane = OrderedDict()
        self._short: Lane = OrderedDict()
        self._long: Lane = OrderedDict()
        self._free: Lane = OrderedDict()
        self._unknown: dict[Profile, Lane] = {}
        self.moved = False
        self._started = [False] * 5
        """By the lane's number: its oldest call has started since the governor looked last."""
        self._still_since_ns = [0] * 5
        self._beyond_ns = [0] * 5
        self._lanes = {
            Kind.WAITING: self._waiting,
            Kind.SHORT: self._short,
            Kind.LONG: self._long,
            Kind.FREE: self._free,
        }

    def put(self, call: Call) -> bool:
        """Queue a call in the lane of its function's kind; return whether it is the first there."""
        profile = call.profile
        lane = self._short if profile.kind is _SHORT else self._lane_of(profile)
        lane[call] = None
        call.place = lane
        return len(lane) == 1

    def start_at_once(self, call: Call, room_to_wait: bool) -> bool:
        """Give a short call its permit, if there is one; start one that waits if there is room."""
        kind, held = call.profile.kind, self._permits.held
        if kind is _WAITING and room_to_wait:
            call.in_waiting_lane = True
            return True
        if kind is not _SHORT or held[SHORT]:
            return False
        call.permit = SHORT
        held[SHORT] = 1
        return True

    def take(self, limit: int, running: int, waiting: int) -> Call | None:
        """Return the first call that may start: waiting, short or unknown, GIL-free, long."""
        if self._unknown:
            self._sort_unknown()
        for kind, lane in self._lanes.items():
            if lane and next(iter(lane)).profile.kind is not kind:
                self._sort(lane, kind)
        if self._waiting and waiting < limit:
            return self._start(_pop(self._waiting), NONE, NONE)
        if self._short or self._unknown:
            call = self._take_short(waiting < limit)
            if call is not None:
                return call
        permits = self._permits
        if self._free and permits.has_room_for_free(next(iter(self._free)).profile.gil.share):
            return self._start(_pop(self._free), FREE, FREE)
        if self._long and permits.has_room(LONG):
            return self._start(_pop(self._long), LONG, LONG)
        return None

    def _sort(self, lane: Lane, kind: Kind) -> None:
        """Move the calls at the head of a lane that have become another kind."""
        self.moved = True
        while lane:
            call = next(iter(lane))
            if call.profile.kind is kind:
                return
            del lane[call]
            self.put(call)

    def take_like(self, first: Call, most: int) -> list[Call]:
        """Take the short calls of the same function that stand at the head of the lane."""
        lane, profile, taken = self._short, first.profile, list[Call]()
        if first.permit != SHORT or self._permits.lifted:  # the rest of a batch would never be given back
            return taken
        while lane and len(taken) < most:
            call = next(iter(lane))
            if call.profile is not profile or call.limiters or not call.quick:
                break
            del lane[call]
            taken.append(call)
        return taken

    def standing_still(self, now_ns: int, before_ns: int) -> list[Standstill[Call]]:
        """Return the lanes in which calls are queued, and since when none of them has started."""
        found = []
        for number, lane in enumerate((self._waiting, self._short, self._long, self._free)):
            if lane:
                found.append(self._still(number, lane, _head_ns(lane), before_ns))
            else:
                self._still_since_ns[number] = now_ns
        heads = sorted(map(_head, filter(None, self._unknown.values())), key=_queued_ns)
        if heads:
            found.append(self._still(_UNKNOWN, heads, heads[0].queued_ns, before_ns))
        else:
            self._still_since_ns[_UNKNOWN] = now_ns
        return found

    def _still(self, number: int, calls: Iterable[Call], oldest_ns: int, before_ns: int) -> Standstill[Call]:
        if self._started[number]:
            self._started[number] = False
            self._still_since_ns[number] = before_ns
        since_ns = max(self._still_since_ns[number], oldest_ns)
        return Standstill(since_ns, self._beyond_ns[number], number, calls)

    def start_beyond(self, still: Standstill[Call], call: Call, now_ns: int) -> None:
        """Take a call out of such a lane and start it, whatever the limits say."""
        first = call is next(iter(still.calls))
        assert isinstance(call.place, OrderedDict)
        del call.place[call]
        call.place = None
        self._start(call, _PERMITS.get(call.profile.kind, SHORT), still.lane)
        self._started[still.lane] = first
        self._beyond_ns[still.lane] = now_ns

    def lacks_permit(self) -> bool:
        """Return True if a queued call needs a permit."""
        return bool(self._short or self._long or self._free) or any(self._unknown.values())

    def governed(self) -> int:
        """Return the length of the waiting lane."""
        return len(self._waiting)

    def counts(self) -> dict[str, int]:
        """Return the queued calls by kind."""
        counts = {str(kind): len(lane) for kind, lane in self._lanes.items()}
        counts["unknown"] = sum(map(len, self._unknown.values()))
        return counts

    def drain(self) -> list[Call]:
        """Take everything out."""
        lanes = [*self._lanes.values(), *self._unknown.values()]
        return [_pop(lane) for lane in lanes for _ in range(len(lane))]

    def _lane_of(self, profile: Profile) -> Lane:
        if profile.kind is Kind.UNKNOWN:
            return self._unknown.setdefault(profile, OrderedDict())
        return self._lanes[profile.kind]

    def _sort_unknown(self) -> None:
        """Move the calls of functions that are known by now to their lanes."""
        for profile, lane in list(self._unknown.items()):
            if profile.kind is not Kind.UNKNOWN or not lane:
                del self._unknown[profile]
                self.moved |= bool(lane)
                for call in lane:
                    _put(self._lanes[profile.kind], call)

    def _take_short(self, room_to_wait: bool) -> Call | None:
        """Return the older of the first short call and the first unknown call that may start."""
        short = self._short if self._short and self._permits.has_room(SHORT) else None
        unknown, permit = self._startable_unknown(room_to_wait) if self._unknown else (None, NONE)
        if unknown is not None and (short is None or _head_ns(unknown) < _head_ns(short)):
            moves = self._started[_UNKNOWN] or _head(unknown) is self._oldest_unknown()
            call = self._start(_pop(unknown), permit, _UNKNOWN)
            self._started[_UNKNOWN] = moves
            call.unclassified = True
            call.profile.unclassified += 1
            return call
        return self._start(_pop(short), SHORT, SHORT) if short is not None else None

    def _oldest_unknown(self) -> Call:
        return min(map(_head, filter(None, self._unknown.values())), key=_queued_ns)

    def _startable_unknown(self, room_to_wait: bool) -> tuple[Lane | None, int]:
        """Return the lane of the first unknown function that may start one more, and its permit."""
        room = self._permits.has_room_for_unknown()
        for profile, lane in self._unknown.items():
            if not lane or (profile.unclassified >= profile.slow_start and not self._permits.lifted):
                continue
            if profile.blocked_calls and not profile.computed_calls:
                if room_to_wait:
                    return lane, NONE
            elif room:
                return lane, SHORT
        return None, NONE

    def _start(self, call: Call, permit: int, lane: int) -> Call:
        self._started[lane] = True
        if permit == NONE:
            call.in_waiting_lane = True
        else:
            call.permit = permit
            self._permits.take(permit)
        return call


def _head(lane: Lane) -> Call:
    return next(iter(lane))


def _head_ns(lane: Lane) -> int:
    return next(iter(lane)).queued_ns
