"""The shared budget of this interpreter, with its governor and its shield, and what a fork does to it."""

from __future__ import annotations

import os
import sys
from threading import get_ident

from hybridrt.clock import Clock
from hybridrt.governor.governor import Governor
from hybridrt.governor.permanent_generation import PermanentGeneration
from hybridrt.governor.shield import Shield, Switch, SystemSwitch, shield_wanted
from hybridrt.pool.limiters import start_limiters_clean
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.native_limits import NativeLimits
from hybridrt.pool.site_events import SiteEvents
from hybridrt.pool.site_profiler import SiteProfiler
from hybridrt.pool.state import SharedBudget
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.worker import forget_worker

__all__ = ["GovernedBudget", "shared"]


class GovernedBudget(SharedBudget):
    """The shared budget with its governor and its shield.

    Args:
        clock: Where workers and governor read the time.
        gil: Whether threads share a GIL; None asks the interpreter.
        cores: Usable cores; None asks the host.
        switch: The switch interval to govern; None leaves it alone.
        permanent: That of the garbage collector; None leaves it alone.
    """

    governor: Governor
    shield: Shield
    phases: SiteEvents

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        gil: bool | None = None,
        cores: float | None = None,
        switch: Switch | None = None,
        permanent: PermanentGeneration | None = None,
    ) -> None:
        super().__init__(clock, gil=gil, cores=cores)
        self.shield = Shield(self, switch, permanent)
        self.phases = SiteEvents() if sys.version_info >= (3, 12) else SiteProfiler()
        self.start_clean()

    def start_clean(self) -> None:
        """Forget all that ran; used at the start and in a forked child."""
        super().start_clean()
        self.shield.start_clean()
        self.phases.start_clean()
        self.governor = Governor(self, self.shield, self.phases)
        for pool in list(self.pools):
            pool.start_clean()


shared = GovernedBudget(switch=SystemSwitch() if shield_wanted() else None, permanent=PermanentGeneration())
shared.native_limits = NativeLimits()


_forking: set[int] = set()
"""Threads that hold the lock for their fork. One that forks in the middle of a step of ours does not: it
would wait for itself. `_before_fork` raises then, and CPython forks all the same."""


@uninterrupted
def _before_fork() -> None:
    lock = without_convoy(shared.lock)
    _forking.add(get_ident())
    lock.acquire()


def _after_fork_in_parent() -> None:
    if get_ident() in _forking:
        _forking.discard(get_ident())
        shared.lock.release()


def _after_fork_in_child() -> None:
    _forking.clear()
    forget_worker()
    start_limiters_clean()
    shared.start_clean()
    shared.native_limits.start_clean()


if hasattr(os, "register_at_fork"):
    # The lock is held across the fork, so that the child copies no half-done change; the child
    # gets a new one, because the threads that would release the old one are not there.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
