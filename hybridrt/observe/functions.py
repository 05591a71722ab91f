"""Function profiles: what a function costs, and what kind it is.

One profile per code object and executor. Running sums make the statistics; two windows of calls
make the kind. Everything is O(1) a call, and the number of profiles is bounded. The scheduler's
lock protects all of it.

The blocking part of a call is its wall time less its CPU time and less its run-queue delay, where the
kernel tells that. A call that had to wait for the GIL reads the same way, so a single call proves
nothing: the intrinsic wait w0 is the *least* blocking part seen in the last two windows, which a
function reaches only when it really blocks. The raw ratio, the paper's beta, is only reported and
never used to choose a kind.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from hybridrt.observe.naming import identify
from hybridrt.values import FunctionStatistics, Kind

__all__ = ["LONG_NS", "Profile", "Profiles"]

LONG_NS = 20_000_000
"""A call that computes for longer is long: four of CPython's default switch intervals."""
WAITING_SHARE = 0.7
"""Intrinsic blocking ratio from which a function waits. Two computing calls at once read 0.5."""
WAITING_NS = 50_000
"""A shorter intrinsic wait is noise of the clocks. Not measured."""
DELAY_NS = 5_000_000
"""Mean wall time from which run-queue delay is read: it costs 2 us a call and gives the GIL away."""
BATCH_CALL_NS = 50_000
"""Functions whose calls take less go to a worker in batches: the hand-over would cost as much."""
BATCH_NS = 1_000_000
"""What a batch should last at most."""
BATCH_MAX = 256
_WINDOW = 16
_SEEN_ENOUGH = 4
"""Running calls seen to wait, and none to compute, until the rest of a function may start."""


class Profile:
    """What is known about one function on one executor."""

    __slots__ = (
        "batch",
        "blocked_calls",
        "blocked_low",
        "blocked_previous",
        "calls",
        "calls_before",
        "computed_calls",
        "cpu_before",
        "cpu_ns",
        "delays",
        "failed",
        "free_ticks",
        "held_ticks",
        "key",
        "kind",
        "name",
        "owner",
        "queue_wait_ns",
        "releases_gil",
        "resolves",
        "seen_waiting",
        "turn_at",
        "unjudged",
        "wall_before",
        "wall_ns",
    )  # fmt: skip

    def __init__(self, key: Any, name: str, *, resolves: bool = False) -> None:
        self.key = key
        self.name = name
        self.resolves = resolves
        """It resolves names for asyncio, in a lane of its own."""
        self.owner: Profiles | None = None
        """Where it is kept; None once it was dropped."""
        self.kind = Kind.UNKNOWN
        self.calls = self.failed = 0
        self.wall_ns = self.cpu_ns = self.queue_wait_ns = 0
        self.batch = 1
        """How many queued calls of the function may go to a worker at once."""
        self.delays = True
        """Its calls are long enough to ask the kernel for their run-queue delay; so is the first."""
        self.unjudged = 0
        """Running calls of an unknown function of which nothing is known yet."""
        self.blocked_calls = self.computed_calls = self.seen_waiting = 0
        """Running calls seen from outside to wait, or to compute; and to wait since the last turn."""
        self.free_ticks = self.held_ticks = 0
        """Ticks at which a running call computed with the GIL free, or held."""
        self.releases_gil = False
        """Four ticks in five were free; it stays so until most are not."""
        self.calls_before = self.cpu_before = self.wall_before = 0
        self.blocked_low = self.blocked_previous = _NEVER
        self.turn_at = 1

    def record(self, wall_ns: int, cpu_ns: int, queue_wait_ns: int, run_delay_ns: int = 0) -> None:
        """Take in a finished call."""
        self.calls += 1
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self.queue_wait_ns += queue_wait_ns
        blocked = wall_ns - cpu_ns - run_delay_ns
        if blocked < self.blocked_low:
            self.blocked_low = blocked
        if self.calls >= self.turn_at:
            self._turn()

    def record_batch(
        self, calls: int, wall_ns: int, cpu_ns: int, queue_wait_ns: int, least_blocked_ns: int
    ) -> None:
        """Take in calls that ran back to back."""
        # First, because `record` may close the window. It takes the blocking part of the whole batch for
        # that of a call: harmless, because only the least counts, and a batch has no less than its least.
        self.blocked_low = min(self.blocked_low, least_blocked_ns)
        self.calls += calls - 1
        self.record(wall_ns, cpu_ns, queue_wait_ns)

    def _turn(self) -> None:
        """Close a window: choose the kind anew from this one and the one before.

        The first window is the first call alone.
        """
        calls = self.calls - self.calls_before
        cpu_mean = (self.cpu_ns - self.cpu_before) / calls
        wall_mean = (self.wall_ns - self.wall_before) / calls
        w0 = max(0, min(self.blocked_low, self.blocked_previous))
        self.blocked_previous, self.blocked_low = self.blocked_low, _NEVER
        seen, self.seen_waiting = self.seen_waiting, 0
        if 4 * seen >= calls and 2 * cpu_mean < wall_mean:
            w0 = max(w0, int(wall_mean - cpu_mean))  # some calls return at once, but those seen did wait
        self.calls_before, self.cpu_before, self.wall_before = self.calls, self.cpu_ns, self.wall_ns
        self.turn_at = self.calls + _WINDOW
        self.kind = self._kind_of(cpu_mean, w0)
        self.delays = wall_mean >= DELAY_NS
        short = self.kind is Kind.SHORT and wall_mean < BATCH_CALL_NS
        self.batch = min(BATCH_MAX, int(BATCH_NS / max(1.0, wall_mean))) if short else 1

    def _kind_of(self, cpu_ns: float, w0: int) -> Kind:
        if w0 >= WAITING_NS and w0 >= WAITING_SHARE * (w0 + cpu_ns):
            return Kind.WAITING
        if self.releases_gil:
            return Kind.FREE
        return Kind.SHORT if cpu_ns < LONG_NS else Kind.LONG

    @property
    def wall_mean_ns(self) -> int:
        """Mean wall time of its finished calls, 0 before the first."""
        return self.wall_ns // self.calls if self.calls else 0

    @property
    def cohort(self) -> int:
        """How many unjudged calls of an unknown function may run at once."""
        return max(1, 2 * self.blocked_calls)

    def saw_waiting(self) -> None:
        """A running call was seen to wait."""
        self.blocked_calls += 1
        self.seen_waiting += 1
        if self.kind is Kind.UNKNOWN and not self.computed_calls and self.blocked_calls >= _SEEN_ENOUGH:
            self.kind = Kind.WAITING

    def saw_computing(self) -> None:
        """A running call was seen to compute for longer than a short call does."""
        self.computed_calls += 1
        if self.kind in (Kind.UNKNOWN, Kind.SHORT):
            self.kind = Kind.LONG

    def saw_gil(self, *, free: bool) -> None:
        """A running call computed through a whole tick, and the GIL was free at its end, or held."""
        if free:
            self.free_ticks += 1
        else:
            self.held_ticks += 1
        if self.free_ticks + self.held_ticks > 64:
            self.free_ticks //= 2
            self.held_ticks //= 2
        if self.free_ticks >= 4 and self.free_ticks >= 4 * self.held_ticks:
            self.releases_gil = True
        elif self.held_ticks > self.free_ticks:
            self.releases_gil = False
        if self.kind in (Kind.SHORT, Kind.LONG, Kind.UNKNOWN) and self.releases_gil:
            self.kind = Kind.FREE

    def summary(self) -> FunctionStatistics:
        """Return the public view."""
        return FunctionStatistics(
            name=self.name,
            kind=self.kind,
            calls=self.calls,
            failed=self.failed,
            wall=self.wall_ns / 1e9,
            cpu=self.cpu_ns / 1e9,
            queue_wait=self.queue_wait_ns / 1e9,
            beta=blocking_ratio(self.wall_ns, self.cpu_ns),
        )


class Profiles:
    """The profiles of one executor.

    Args:
        bound: Profiles kept at most. Beyond it the least used quarter is dropped, and its
            sums go to the profile named "other".
    """

    def __init__(self, bound: int = 512) -> None:
        self._bound = bound
        self._by_key: dict[Any, Profile] = {}
        self._other = Profile("other", "other")
        self._lock = Lock()

    def start_clean(self, lock: Lock) -> None:
        """Keep what is known, forget what runs, and be protected by `lock` from now on."""
        self._lock = lock
        for profile in self._by_key.values():
            profile.unjudged = 0

    def of(self, fn: Any, args: tuple[Any, ...] = ()) -> Profile:
        """Return the profile of `fn`, a plain function or anything callable, submitted with `args`."""
        try:
            profile = self._by_key.get(getattr(fn, "__code__", None))
        except Exception:  # an odd callable; see `identify`
            profile = None
        # A wrapper has a code object too; only those that wrap nothing are found under it.
        return self._find(fn, args) if profile is None else profile

    def _find(self, fn: Any, args: tuple[Any, ...]) -> Profile:
        key, name, resolves = identify(fn, args)
        with self._lock:
            profile = self._by_key.get(key)
            if profile is None:
                if len(self._by_key) >= self._bound:
                    self._drop()
                profile = self._by_key[key] = Profile(key, name, resolves=resolves)
                profile.owner = self
        return profile

    def _drop(self) -> None:
        idle = sorted((p for p in self._by_key.values() if not p.unjudged), key=lambda p: p.calls)
        for profile in idle[: max(1, self._bound // 4)]:
            del self._by_key[profile.key]
            profile.owner = None
            for name in ("calls", "failed", "wall_ns", "cpu_ns", "queue_wait_ns"):
                setattr(self._other, name, getattr(self._other, name) + getattr(profile, name))

    def snapshot(self) -> list[FunctionStatistics]:
        """Return the public views; to be sorted by the caller outside of the lock."""
        everything = [p for p in (*self._by_key.values(), self._other) if p.calls]
        return [profile.summary() for profile in everything]


def blocking_ratio(wall_ns: int, cpu_ns: int) -> float | None:
    """Return the raw blocking ratio beta = 1 - cpu/wall of the seed paper, or None without a call."""
    return None if wall_ns <= 0 else min(1.0, max(0.0, 1.0 - cpu_ns / wall_ns))


_NEVER = 1 << 62
