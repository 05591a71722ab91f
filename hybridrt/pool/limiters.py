"""Limiters: at most so many calls at a time, for one function (`limit`) or one object (`lane`).

A call passes its limiters in order before it reaches a lane of its pool or an idle worker, and leaves
them when it has really ended, so an abandoned call still keeps its lane closed. Limiters belong to the
interpreter, not to a pool. The shared lock protects them. Which limiter is whose lane has a lock of its
own, because lanes are looked up without the former; nothing else is taken under it.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

__all__ = ["Limiter", "WatchedLimiter", "lane_limiter", "start_limiters_clean"]

_limiters: WeakSet[Limiter[Any]] = WeakSet()


class Queued(Protocol):
    """What a limiter needs to know of a call."""

    place: Any
    queued_ns: int


C = TypeVar("C", bound=Queued)


class Limiter(Generic[C]):
    """Lets `limit` calls in; the others queue in the order of their arrival."""

    __slots__ = ("__weakref__", "active", "limit", "name", "owner", "waiting")

    def __init__(self, limit: int, name: str, owner: object = None) -> None:
        self.limit = limit
        self.name = name
        self.owner = owner  # keeps its identity from being given to another object
        self.start_clean()
        _limiters.add(self)

    def start_clean(self) -> None:
        """Begin with no call inside and none waiting."""
        self.active = 0
        self.waiting: OrderedDict[C, None] = OrderedDict()

    def acquire(self, call: C) -> bool:
        """Let `call` in, or queue it here and return False."""
        if self.active < self.limit:  # no call waits then
            self.active += 1
            return True
        self.waiting[call] = None
        call.place = self.waiting
        return False

    def release(self) -> C | None:
        """Let one out. Return the call that took its place, if one waited."""
        if not self.waiting:
            self.active -= 1
            return None
        call, _ = self.waiting.popitem(last=False)
        call.place = None
        return call


class WatchedLimiter(Limiter[C]):
    """A limiter that the governor looks at: it may let in more calls than its limit, and send others
    elsewhere.

    Args:
        limit: Calls inside at once.
        name: What stands behind it.
        most: Calls inside at once if none has come in for too long.
    """

    __slots__ = ("most", "moved", "since_ns", "stands_still")

    def __init__(self, limit: int, name: str, *, most: int) -> None:
        self.most = most
        super().__init__(limit, name)

    def start_clean(self) -> None:
        """Begin with no call inside and none waiting."""
        super().start_clean()
        self.moved = self.stands_still = False
        self.since_ns = 0

    def release(self) -> C | None:
        """Let one out. Return the call that took its place, if one waited and may."""
        if self.active > self.limit:
            self.active -= 1
            return None
        self.moved, self.stands_still = True, False
        return super().release()

    def still_for_ns(self, now_ns: int, before_ns: int) -> int:
        """Return for how long calls have waited and none has come in.

        Args:
            now_ns: The time.
            before_ns: When this was asked last.
        """
        if not self.waiting:
            self.since_ns = now_ns
        elif self.moved:
            self.since_ns = before_ns
        self.moved = False
        return now_ns - max(self.since_ns, next(iter(self.waiting)).queued_ns) if self.waiting else 0

    def let_in_beyond(self) -> C:
        """Let in the call that has waited for longest, whatever the limit."""
        call, _ = self.waiting.popitem(last=False)
        call.place = None
        self.active += 1
        self.moved = True
        return call

    def resize(self, limit: int, most: int) -> list[C]:
        """Let so many calls in from now on; return those that waited and are let in by that.

        Where more are inside already, they leave one by one before the next comes in.
        """
        self.limit, self.most = limit, most
        calls = []
        while self.waiting and self.active < limit:
            calls.append(self.let_in_beyond())
            self.stands_still = False
        return calls


def start_limiters_clean() -> None:
    """Open all limiters in a forked child, where those who went in will never come out."""
    global _lock
    _lock = RLock()
    _begun.clear()
    for limiter in list(_limiters):
        limiter.start_clean()


_lanes: WeakValueDictionary[Any, Limiter[Any]] = WeakValueDictionary()
_lock = RLock()
"""Guards the lanes while one is added."""
_begun: dict[Any, Limiter[Any]] = {}
"""What is being added to the lanes."""


def lane_limiter(lane: object) -> Limiter[Any]:
    """Return the limiter of a lane: one per name, or per object by identity; safe to use from any thread."""
    key: Any = lane if isinstance(lane, str) else (id(lane),)
    limiter = _lanes.get(key)
    if limiter is None:
        made: Limiter[Any] = Limiter(1, repr(lane), lane)
        # `_lanes.setdefault` is Python code, which looks and adds in two steps. Without the lock
        #   1. it looks for us and finds no limiter,
        #   2. another thread looks, adds one, and submits a call through it,
        #   3. it adds ours, and the next call passes that beside the other one.
        # The lock keeps other threads from 2, but not a finaliser that the garbage collector runs in this
        # one. So what is to be added is noted first, in a plain dictionary, which looks and adds in one step:
        # what runs in between adds the same, and what ran before is found in 1.
        with _lock:
            begun = _begun.setdefault(key, made)
            limiter = _lanes.setdefault(key, begun)
            if begun is made:
                _begun.pop(key, None)  # or we are a child that was forked in between
    return limiter
