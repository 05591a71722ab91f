"""For how long each function of a pool has computed since the last question; for the delay of a loop."""

from __future__ import annotations

from hybridrt.observe.functions import Profile
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.permits import NONE
from hybridrt.pool.protocols import Placed
from hybridrt.pool.state import Pool

__all__ = ["Computed"]


class Computed:
    """What the functions of a pool have computed from one beat of a loop to the next.

    Args:
        pool: Theirs.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._at = 0.0
        self._cpu_ns: dict[Profile, int] = {}
        self._inline_ns: dict[Placed, int] = {}

    def note(self, at: float) -> None:
        """Begin anew: a beat came in time."""
        self._at = at
        self._cpu_ns = {profile: profile.cpu_ns for profile in self._pool.profiles.all()}
        placed = tuple(self._pool.placed.values())
        self._inline_ns = {one: one.inline_ns for _, shown in placed for one in shown}

    def since(self, at: float) -> dict[str, float]:
        """Return how many seconds each function had the GIL, or the loop, since the last note, and note anew.

        Of a call that began before and has ended or still runs no more counts than the time that has passed.

        Args:
            at: The time in seconds.
        """
        most_ns = max(0, int((at - self._at) * 1e9))
        ended, inline = self._cpu_ns, self._inline_ns
        self.note(at)
        computed = self._running_ns(most_ns)
        for profile, cpu_ns in self._cpu_ns.items():
            if spent_ns := cpu_ns - ended.get(profile, 0):
                computed[profile] = min(most_ns, spent_ns + computed.get(profile, 0))
        seconds: dict[str, float] = {}
        for profile, spent_ns in computed.items():
            share = profile.gil.share
            held = (1.0 if share is None else share) * spent_ns / 1e9
            seconds[profile.name] = seconds.get(profile.name, 0.0) + held
        for profile, shown in tuple(self._pool.placed.values()):
            spent_ns = sum(self._inline_ns.get(one, 0) - inline.get(one, 0) for one in shown)
            if spent_ns > 0:  # counts of two loops may lose one another
                seconds[profile.name] = seconds.get(profile.name, 0.0) + min(most_ns, spent_ns) / 1e9
        return seconds

    def _running_ns(self, most_ns: int) -> dict[Profile, int]:
        """Return what calls that run have computed, as far as they have a permit to."""
        computed: dict[Profile, int] = {}
        with without_convoy(self._pool.budget.lock):
            for worker in self._pool.roster.workers:
                call = worker.call
                if call is not None and worker.permit != NONE:
                    spent_ns = min(most_ns, worker.cpu_so_far() or 0)
                    computed[call.profile] = computed.get(call.profile, 0) + spent_ns
        return computed
