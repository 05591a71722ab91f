"""What pools ask of the parts that stand above them: the governor, the loop shield, the choice of a place."""

from __future__ import annotations

from typing import Any, Protocol

from hybridrt.observe.functions import Profile
from hybridrt.placements import PlacementStatistics
from hybridrt.values import BatchStatistics, PhaseStatistics, ShieldStatistics

__all__ = ["Batching", "Governing", "Phasing", "Placed", "Shielding"]


class Placed(Protocol):
    """Chooses where the calls of one function run."""

    @property
    def inline_ns(self) -> int:
        """Return for how long calls on the loop have kept it, in sum."""
        ...

    def statistics(self) -> PlacementStatistics:
        """Return what it has chosen, and why."""
        ...


class Batching(Protocol):
    """Runs calls of one function together."""

    def statistics(self) -> BatchStatistics:
        """Return what its batches were like."""
        ...


class Governing(Protocol):
    """The governor, as far as others ask for it."""

    parked: bool
    error: str | None
    failures: int

    @property
    def asleep(self) -> bool:
        """Whether it is parked until a call comes, and will then quicken the loops."""
        ...

    def wake(self) -> None:
        """Wake it if it is parked, without the lock."""
        ...

    def wake_locked(self) -> None:
        """End a long sleep: a call lacks a permit."""
        ...

    def look_soon_locked(self) -> None:
        """Look at the host at the next step."""
        ...


class Phasing(Protocol):
    """Who tells a call's waits from within; see `site_events`."""

    @property
    def sees_waits(self) -> bool:
        """Whether waits of calls can be told from within."""
        ...

    def follow(self, worker: Any, call: Any) -> Any:
        """Have the waits of a call seen that starts in this thread; return what `unfollow` wants, or None."""
        ...

    def unfollow(self, follower: Any) -> None:
        """See no more of it."""
        ...

    def rest(self) -> None:
        """Forget all that was learned; the last executor is over."""
        ...

    def statistics(self) -> PhaseStatistics:
        """Return what there is to tell."""
        ...


class Shielding(Protocol):
    """The loop shield, as far as others ask for it."""

    armed: bool

    def join(self, watch: Any) -> None:
        """Count a loop in."""
        ...

    def leave(self, watch: Any) -> None:
        """Count a loop out."""
        ...

    def begins(self, profile: Profile) -> None:
        """Tighten, on the thread of a call that is about to compute; without the lock."""
        ...

    def goes_first(self) -> bool:
        """Return True if a loop that wakes is to get a core at once; without the lock."""
        ...

    def give_way(self, profile: Profile) -> None:
        """Let a loop that works go first, before a call of the function."""
        ...

    def lateness_locked(self) -> float | None:
        """Return the delay of the loop that suffers most over what it may be; None without a loop."""
        ...

    def rest(self) -> None:
        """Give the interval back now if nothing computes; a pool has closed."""
        ...

    def statistics_locked(self) -> ShieldStatistics | None:
        """Return what there is to tell, or None where nothing can be governed."""
        ...
