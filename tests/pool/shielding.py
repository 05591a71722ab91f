"""A shield played by hand: the test is the switch interval, the calls, the governor and the loops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

from hybridrt.control.interval import REST
from hybridrt.executor.budget import GovernedBudget
from hybridrt.governor.shield import LOOK_NS, Shield
from hybridrt.observe.functions import Profile
from hybridrt.pool.permits import SHORT
from hybridrt.pool.tally import Tally
from hybridrt.testing import ManualClock
from hybridrt.values import ShieldStatistics

__all__ = ["USUAL", "FakePool", "FakeSwitch", "FakeWatch", "Play"]

USUAL = 0.005
TICK_NS = 16_000_000


class FakeSwitch:
    """A switch interval that belongs to the test; remembers what it was set to, and sees to the lock."""

    def __init__(self) -> None:
        self.value = USUAL
        self.history: list[float] = []
        self.lock: threading.Lock | None = None

    def get(self) -> float:
        assert self.lock is None or self.lock.locked()
        return self.value

    def set(self, seconds: float) -> None:
        assert self.lock is None or self.lock.locked()
        self.value = round(seconds * 1e6) / 1e6  # as `SystemSwitch` does
        self.history.append(self.value)


class FakeWatch:
    """A loop that suffers what the test says."""

    def __init__(self, *, target: float = 0.002, shield: bool = True) -> None:
        self.target = target
        self.shield = shield
        self.late = 0.0
        self.over = False
        self.quickened = 0
        self.native_id = -1  # of no thread

    def is_over(self) -> bool:
        return self.over

    def delay(self, now: float) -> float:
        return self.late

    def quicken(self) -> None:
        self.quickened += 1

    def call_soon(self, callback: Callable[[], None]) -> bool:
        return False

    def runs_here(self) -> bool:
        return False


class Play:
    """A shield whose calls, governor and time are played by the test."""

    def __init__(self, *, gil: bool = True) -> None:
        self.switch = FakeSwitch()
        self.clock = ManualClock()
        self.budget = GovernedBudget(self.clock, gil=gil, cores=2, switch=self.switch)
        self.switch.lock = self.budget.lock
        self.permits = self.budget.permits
        self.shield: Shield = self.budget.shield
        self.function = Profile("key", "function")
        self.step()

    def begin(self, permit: int = SHORT) -> None:
        """Begin a call, as its worker does."""
        self.permits.take(permit)
        if self.shield.armed:
            self.shield.begins(self.function)

    def end(self, permit: int = SHORT) -> None:
        self.permits.give_back(permit)

    def step(self, times: int = 1, *, gil_taken: bool = False, brief: bool = False) -> None:
        """Let the governor look that often."""
        for _ in range(times):
            self.clock.now_ns += TICK_NS
            pools = tuple(self.budget.pools)
            self.shield.step(self.clock.now_ns, pools, gil_taken=gil_taken, brief=brief)

    def look(self) -> None:
        """Let the governor look until it has asked the loops."""
        self.step(LOOK_NS // TICK_NS + 1)

    def rest(self) -> None:
        """Let the governor look until nothing has computed for long enough."""
        self.step(int(REST * 1e9) // TICK_NS + 2)

    @property
    def told(self) -> ShieldStatistics:
        with self.budget.lock:
            told = self.shield.statistics_locked()
        assert told is not None
        return told


class FakePool:
    """A pool that only counts calls."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.busy = 0
        self.sizing = SimpleNamespace(crowd=0.0)

    def start_clean(self) -> None: ...
