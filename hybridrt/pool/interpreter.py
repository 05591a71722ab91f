"""What all pools of one interpreter share: the lock, the permits, the governor.

One lock, held for a microsecond at a time, guards every queue, count and state of every pool: a
permit that one pool gives back may start a call of another, and a lane is interpreter-wide. With
one lock there is no order of locks to get wrong. Nothing slow and nobody else's code runs under it:
threads are started, futures completed and hooks called after it is released.

Garbage collection may run code of others in the middle of a locked section, which is why weakref
callbacks of this package only ring a `SimpleQueue`, which is reentrant, and take no lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet

from hybridrt.clock import Clock, SystemClock
from hybridrt.measure.gil import switch_interval_ns
from hybridrt.measure.host import Memory, gil_enabled, read_memory, usable_cores
from hybridrt.observe.gil_load import GilLoad
from hybridrt.observe.kept import Kept
from hybridrt.pool.gates import WatchedGate, start_gates_clean
from hybridrt.pool.governor import Governor
from hybridrt.pool.lock import patiently
from hybridrt.pool.permits import Permits
from hybridrt.pool.shield import Shield, Switch, SystemSwitch, shield_wanted

if TYPE_CHECKING:
    from hybridrt.pool.pool import Pool
    from hybridrt.pool.worker import Worker

__all__ = ["Ending", "Interpreter", "shared"]


class Ending:
    """The main thread waits for the last calls; see `exiting`.

    Attributes:
        bell: Rung when a worker is gone or left behind, or brings one that could not be started.
        free: The main thread can take the place of a worker now.
    """

    __slots__ = ("bell", "free")

    def __init__(self) -> None:
        self.bell: SimpleQueue[Worker | None] = SimpleQueue()
        self.free = True


class Interpreter:
    """The budget of one interpreter.

    Args:
        clock: Where workers and governor read the time.
        gil: Whether threads share a GIL; None asks the interpreter.
        cores: Usable cores; None asks the host.
        switch: The switch interval to govern; None leaves it alone.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        gil: bool | None = None,
        cores: int | None = None,
        switch: Switch | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.gil = gil_enabled() if gil is None else gil
        self._counts_cores = cores is None
        self.cores = usable_cores() if cores is None else cores
        self.memory: Memory = read_memory()
        """As of the last look at the host."""
        self.children: list[Callable[[], Iterable[int]]] = []
        """Return the ids of processes that share a pool's `memory_max` with this one."""
        self.host_seen: list[Callable[[], None]] = []
        """Called after each look at the host, by the governor, without the lock."""
        self.pools: WeakSet[Pool] = WeakSet()
        self.gates: list[WatchedGate] = []
        """Those of the isolates; none is ever taken out."""
        self.permits = Permits(gil=self.gil, cores=self.cores)
        self.shield = Shield(self, switch)
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error for calls that come while the interpreter ends."""
        self.start_clean()

    def take_in(self, pool: Pool) -> None:
        """Count a new pool among the others; one that comes at exit takes no calls."""
        with patiently(self.lock):  # which `exiting` holds while it sets the one and lists the others
            self.pools.add(pool)
            if self.refusal is not None:
                pool.refusal, pool.draining = self.refusal, True
            self.governor.look_soon_locked()  # its budget may be another than that of the pools before

    def look_at_host(self) -> int:
        """Read what the process may use by now, without the lock, for it reads files; return its cores.

        One budget of memory holds for all pools: the least that one of them was given.
        """
        budgets = [
            pool.memory_max
            for pool in self.all_pools()
            if pool.memory_max is not None and pool.refusal is None and not pool.draining
        ]
        children = [child for children in self.children for child in children()]
        self.memory = read_memory(min(budgets, default=None), children)
        for tell in tuple(self.host_seen):
            tell()
        return usable_cores() if self._counts_cores else self.cores

    def set_cores_locked(self, cores: int) -> None:
        """Go by another number of cores from now on; the next dispatch starts what more of them allow."""
        self.cores = cores
        self.permits.set_cores(cores, gil=self.gil)
        for pool in self.pools:
            pool.set_cores_locked(cores, self.permits.capacity)

    def start_clean(self) -> None:
        """Forget all that ran; used at the start and in a forked child."""
        self.lock = threading.Lock()
        self.permits.forget()
        self.shield.start_clean()
        self.starved: dict[Pool, None] = {}
        """Pools with calls that lack a permit, the one that has had no turn for longest first."""
        self.gil_load = GilLoad(switch_interval_ns())
        self.kept = Kept()
        """For how long calls had no core lately, beyond what the kernel tells of each thread."""
        self.governor = Governor(self)
        self.ending: Ending | None = None
        for pool in list(self.pools):
            pool.start_clean()

    def all_pools(self) -> list[Pool]:
        """Return the pools there are; to be called without the lock."""
        with patiently(self.lock):
            return list(self.pools)


shared = Interpreter(switch=SystemSwitch() if shield_wanted() else None)


def _before_fork() -> None:
    patiently(shared.lock).acquire()


def _after_fork_in_parent() -> None:
    shared.lock.release()


def _after_fork_in_child() -> None:
    start_gates_clean()
    shared.start_clean()


if hasattr(os, "register_at_fork"):
    # The lock is held across the fork, so that the child copies no half-done change; the child
    # gets a new one, because the threads that would release the old one are not there.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
