"""What a pool asks of its queue: which call may start next. See `admission` for the two there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Admission", "Standstill"]

C = TypeVar("C")
"""The calls."""


class Standstill(NamedTuple, Generic[C]):
    """A lane from which no call starts.

    Attributes:
        since_ns: When the call that was its oldest before has started, or when the one that is its oldest now
            was queued, whichever was later.
        beyond_ns: When the last call has started from it beyond the limits.
        lane: The lane's number.
        calls: What is queued there, the oldest first; of each unknown function its oldest call.
    """

    since_ns: int
    beyond_ns: int
    lane: int
    calls: Iterable[C]


class Admission(Protocol[C]):
    """The queued calls of a pool, and the choice among them.

    Attributes:
        moved: A call went from lane to lane since the last dispatch, so that others may start, too.
        governs_all: The policy's size counts for all calls, not for one lane alone.
    """

    moved: bool
    governs_all: bool

    def put(self, call: C) -> bool:
        """Queue a call; return whether it is the first of its lane."""
        ...

    def start_at_once(self, call: C, room_to_wait: bool) -> bool:
        """Admit a call that may start, with its permit if it needs one; the queue is empty.

        Args:
            call: The call.
            room_to_wait: Fewer calls run in the waiting lane than the policy's size.
        """
        ...

    def take(self, limit: int, running: int, waiting: int) -> C | None:
        """Return the call to start now, taken out of the queue, or None.

        Args:
            limit: The size decided by the policy.
            running: Ordinary calls that run or are on their way.
            waiting: Those of them that started in the waiting lane.
        """
        ...

    def take_like(self, first: C, most: int) -> list[C]:
        """Take at most `most` calls that may go with `first` on its permit."""
        ...

    def standing_still(self, now_ns: int, before_ns: int) -> list[Standstill[C]]:
        """Return the lanes in which calls are queued, and since when none of them has started.

        Args:
            now_ns: The time.
            before_ns: When this was asked last: a lane that has moved since may have done so then.
        """
        ...

    def start_beyond(self, still: Standstill[C], call: C, now_ns: int) -> None:
        """Take a call out of such a lane and start it, whatever the limits say."""
        ...

    def lacks_permit(self) -> bool:
        """Return True if a queued call needs a permit."""
        ...

    def governed(self) -> int:
        """Return how many queued calls the policy's size holds back."""
        ...

    def counts(self) -> dict[str, int]:
        """Return the queued calls by lane."""
        ...

    def drain(self) -> list[C]:
        """Take everything out."""
        ...
