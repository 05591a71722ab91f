"""The loop shield: governs the interpreter's switch interval while calls compute.

`control.interval` decides; here the interval is read, set and given back. There is one shield per
interpreter, because there is one interval. It knows loops only as `Watch`: what they may suffer and
what they do.

Actors: workers (`begins`), the governor (`step`), runtimes (`join`, `leave`), the thread that closes a pool
(`rest`). The shared lock protects everything, so that a fork copies no half-done change;
`sys.setswitchinterval` under it takes a tenth of a microsecond, and a thread's time slice a few, once a loop.
Loops are told after it is released.

The interval belongs to the user:

- What was found when a call began to compute is the upper bound, and is put back when nothing has
  computed for 50 ms, when the last worker of a pool leaves, when the governor stops or fails, and in a
  forked child.
- A value that differs from the one set last is the user's. It is left alone, and is the user's
  own from the next rest on. If ours is put back before that, by code that saves and restores it,
  governing goes on; if after that, the user's own is what it was before. CPython cuts to whole
  microseconds, so what comes back may be a little less.
- While a runtime with `shield=False` is open, or where HYBRIDRT_SHIELD=0 was set when hybridrt was
  imported, nothing is touched: of two runtimes that disagree the one that objects wins.
- Of several loops the worst delay and the smallest target count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

from hybridrt.control.interval import Grip, Seen, decide, grasp
from hybridrt.governor.permanent_generation import PermanentGeneration
from hybridrt.observe.functions import Profile
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.loop_first import Answering, LoopFirst
from hybridrt.pool.permits import LONG
from hybridrt.pool.priority import ISOLATE, THREAD, lower
from hybridrt.pool.state import Pool, SharedBudget
from hybridrt.pool.time_slice import ShortSlices
from hybridrt.values import ShieldReason, ShieldStatistics

__all__ = ["LOOP_DELAY_TARGET", "Shield", "Switch", "SystemSwitch", "Watch", "shield_wanted"]

LOOP_DELAY_TARGET = 0.002
"""Seconds, where no runtime says otherwise."""
CUT = 3.5e-6
"""Seconds that our value may lose while it is saved and restored, between two steps of the governor: each
time CPython cuts it, at most one microsecond, and mostly none the second time."""
LOOK_NS = 100_000_000
"""Time between two looks at the loops' delays: sorting their beats takes some 30 us."""


class Switch(Protocol):
    """The switch interval of an interpreter, in seconds."""

    def get(self) -> float:
        """Return it."""
        ...

    def set(self, seconds: float) -> None:
        """Change it; it is rounded to whole microseconds."""
        ...


class SystemSwitch:
    """That of this interpreter."""

    def get(self) -> float:
        """Return the interval."""
        return sys.getswitchinterval()

    def set(self, seconds: float) -> None:
        """Set the interval; what `get` has returned comes back as it was.

        CPython cuts to whole microseconds, so that 0.0003, which is a little less in binary, would
        become 299 of them.
        """
        sys.setswitchinterval(seconds + 0.5e-6)


class Watch(Answering, Protocol):
    """A loop that is measured.

    Attributes:
        native_id: The kernel's number of its thread.
    """

    native_id: int

    @property
    def target(self) -> float:
        """Seconds of delay that the loop may suffer."""
        ...

    @property
    def shield(self) -> bool:
        """Whether the interval may be governed while this loop runs."""
        ...

    def is_over(self) -> bool:
        """Return True if the loop is gone for good."""
        ...

    def delay(self, now: float) -> float:
        """Return the 99th percentile of the recent delay; from any thread."""
        ...

    def quicken(self) -> None:
        """Measure closely from now on; from any thread."""
        ...


class Shield:
    """Sets the switch interval of one interpreter.

    Args:
        budget: Whose calls are counted, and whose lock protects this.
        switch: The interval; None governs nothing.
        permanent: Where long-lived objects are kept out of garbage collection while there is a loop; None
            leaves them where they are.

    Attributes:
        armed: The next computing call is to call `begins`; the one thing that is read without the lock.
        loop_delay: What the loops' delay was at the last look; None without a loop.
    """

    def __init__(
        self, budget: SharedBudget, switch: Switch | None, permanent: PermanentGeneration | None = None
    ) -> None:
        self._budget = budget
        self._permanent = permanent
        self._given_switch = switch
        self._wanted = switch is not None
        self._loop_first = LoopFirst()
        self._slices = ShortSlices()
        self._watches: WeakSet[Watch] = WeakSet()
        """Weak, because a loop may end without its runtime being closed."""
        self._target, self._allowed = LOOP_DELAY_TARGET, True
        self._user: float | None = None
        self._ours = 0.0
        self._saved: tuple[float, float] | None = None
        """Ours and the user's own at the last rest that found another value, whose code may put ours back."""
        self._changes = 0
        self.start_clean()

    def start_clean(self) -> None:
        """Give the interval back and forget the loops: a forked child has none of the threads."""
        self._give_back()
        self._watches.clear()
        self._loop_first.clear()
        self._slices.start_clean()
        self._heed_locked()
        self._grip: Grip | None = None
        self._step_ns = self._look_ns = self._ended = 0
        self._before = (False, 0)
        self.loop_delay: float | None = None
        self.armed = True

    @property
    def _switch(self) -> Switch | None:
        """Return the switch interval to govern; None where there is no GIL to switch."""
        return self._given_switch if self._budget.gil else None

    # ------------------------------------------------------------------ who computes

    def begins(self, profile: Profile) -> None:
        """Tighten, on the thread of a call that is about to compute; without the lock.

        The governor would do it, too, but has to wait for the GIL first. Functions that run in batches
        are over before any thread could wait for them.
        """
        if profile.batch > 1:
            return
        try:
            with without_convoy(self._budget.lock):
                watches = self._begin_locked()
            _quicken(watches)
        except MemoryError:  # the call is to run all the same, and the governor will see it
            pass

    def goes_first(self) -> bool:
        """Return True if a loop that wakes is to get a core at once: there is one, and the user allows it."""
        return self._wanted and self._allowed and self._loop_first.known

    def give_way(self, profile: Profile) -> None:
        """Let a loop that works go first, before a call of a function that holds the GIL for long."""
        if self._may_govern():
            self._loop_first.give_way(profile.cpu_mean_ns)

    def step(
        self, now_ns: int, pools: Sequence[Pool], *, gil_taken: bool = False, brief: bool = False
    ) -> None:
        """Follow what happens; called by the governor at each of its steps, without the lock.

        Brief calls that come one by one do not count. Each ends before a short interval could help the
        loop, and a short interval makes each wait for the GIL dearer: it is below the kernel's tick, so
        the wait sets a hardware timer, and a virtual machine must ask its host for that.

        Args:
            now_ns: The time.
            pools: All of the interpreter.
            gil_taken: Calls run, and the governor had to wait for the GIL when it woke.
            brief: No call is queued, and all that run end within the shortest interval.
        """
        if now_ns - self._look_ns >= LOOK_NS:
            self._look_ns = now_ns
            self.loop_delay = max((watch.delay(now_ns / 1e9) for watch in self._living()), default=None)
        with without_convoy(self._budget.lock):
            watches = self._step_locked(now_ns, pools, gil_taken=gil_taken, brief=brief)
        _quicken(watches)

    def wake(self) -> None:
        """Have the loops measured closely again: calls come after a rest."""
        with without_convoy(self._budget.lock):
            watches = tuple(self._watches)
        _quicken(watches)

    def rest(self) -> None:
        """Give the interval back now if nothing computes, and forget loops that ended; a pool has closed."""
        self._living()
        with without_convoy(self._budget.lock):
            if not self._budget.permits.computing:
                self.rest_locked()

    def rest_locked(self) -> None:
        """Give the interval back until the next call begins to compute."""
        self._give_back()
        self._grip = None
        self.armed = True

    # ------------------------------------------------------------------ whose loop suffers

    def join(self, watch: Watch) -> None:
        """Count a loop in; in its thread."""
        if self._permanent is not None and watch.shield:
            self._permanent.collect_if_due()
        with without_convoy(self._budget.lock):
            self._watches.add(watch)
            self._loop_first.join_locked(watch)
            self._heed_locked()
            if not self._may_govern():
                self._give_back()
            first = self.goes_first()
        if first:
            self._lower_others()

    def _lower_others(self) -> None:
        """Lower the priority of the threads and child processes that were there before the loop."""
        for pool in self._budget.all_pools():
            for worker in tuple(pool.roster.workers):
                if (native_id := worker.thread.native_id) is not None:
                    lower(native_id, THREAD)
        for process_ids in self._budget.children:
            for process_id in process_ids():
                lower(process_id, ISOLATE)

    def leave(self, watch: Watch) -> None:
        """Count a loop out."""
        with without_convoy(self._budget.lock):
            self._watches.discard(watch)
            self._loop_first.leave_locked(watch)
            self._heed_locked()

    def _heed_locked(self) -> tuple[Watch, ...]:
        """Work out what all loops together ask for; return their watches."""
        watches = tuple(self._watches)
        self._loop_first.forget_lost_locked()
        self._target = min((watch.target for watch in watches), default=LOOP_DELAY_TARGET)
        self._allowed = all(watch.shield for watch in watches)
        self._slices.keep({watch.native_id for watch in watches} if self.goes_first() else set())
        if self._permanent is not None:
            self._permanent.use(wanted=self.goes_first())
        return watches

    def lateness_locked(self) -> float | None:
        """Return the loops' delay at the last look over what it may be; None without a loop."""
        return None if self.loop_delay is None else self.loop_delay / self._target

    def _living(self) -> list[Watch]:
        """Return the watches of loops that go on, and forget the others."""
        with without_convoy(self._budget.lock):
            watches = self._heed_locked()  # some may have gone unseen
        living = []
        for watch in watches:
            if watch.is_over():  # its runtime was never closed
                self.leave(watch)
            else:
                living.append(watch)
        return living

    # ------------------------------------------------------------------ the interval

    def _begin_locked(self) -> tuple[Watch, ...]:
        """Tighten unless that has been done; return the loops to be told."""
        if not self.armed:
            return ()
        self.armed = False
        self._grip = grasp(self._highest(), self._askers_locked())
        self._apply()
        return tuple(self._watches)

    def _step_locked(
        self, now_ns: int, pools: Sequence[Pool], *, gil_taken: bool, brief: bool
    ) -> tuple[Watch, ...]:
        seconds, self._step_ns = (now_ns - self._step_ns) / 1e9, now_ns
        lasts, ended = self._lasts(), self._newly_ended(pools)
        if self._grip is None:
            tightens = not brief and (lasts or (gil_taken and self._is_late()))
            return self._begin_locked() if tightens else ()
        seen = Seen(
            seconds=seconds,
            users=0 if brief else max(gil_taken, self._budget.permits.computing + _crowd(pools)),
            delay=self.loop_delay,
            target=self._target,
            highest=self._highest(),
            ended=ended,
            threads=self._askers_locked(),
        )
        self._grip = decide(self._grip, seen)
        if self._grip is None:
            self.rest_locked()
        else:
            self._apply()
        return ()

    def _askers_locked(self) -> int:
        """Return how many threads of calls may ask for the GIL, if all of them wake at once."""
        return sum(pool.busy for pool in self._budget.pools) - self._budget.permits.waits

    def _lasts(self) -> bool:
        """Return True if a call computes that did not say so, and since the step before."""
        permits, before = self._budget.permits, self._before
        self._before = (permits.computing > 0, permits.moves)
        return permits.held[LONG] > 0 or (permits.computing > 0 and self._before == before)

    def _newly_ended(self, pools: Sequence[Pool]) -> int:
        """Return how many calls have ended since the step before."""
        before, self._ended = self._ended, sum(pool.tally.completed + pool.tally.failed for pool in pools)
        return max(0, self._ended - before)  # a pool may have gone

    def _is_late(self) -> bool:
        """Return True if a loop suffers, from calls that compute between their waits for example."""
        return self.loop_delay is not None and self.loop_delay > self._target

    def _highest(self) -> float:
        """Return the user's own interval."""
        if self._user is not None:
            return self._user
        now = 0.0 if self._switch is None else self._switch.get()
        return self._saved[1] if self._saved is not None and 0.0 <= self._saved[0] - now < CUT else now

    def _may_govern(self) -> bool:
        # Without a governor the interval would never be given back.
        return self._switch is not None and self._allowed and self._budget.governor.error is None

    def _apply(self) -> None:
        """Set what the grip says, if it is ours to set."""
        if self._switch is None or self._grip is None or not self._may_govern():
            return
        now = self._switch.get()
        if self._user is None:
            self._user, self._ours = self._highest(), now
        elif not self._is_ours(now):
            return
        if abs(self._grip.interval - now) > 0.6e-6:  # what it is set to is rounded to the nearest one
            self._switch.set(self._grip.interval)
            self._ours = self._switch.get()
            self._changes += 1

    def _is_ours(self, interval: float) -> bool:
        """Return True if the shield has set it, or a save and restore made it of that."""
        return 0.0 <= self._ours - interval < CUT

    def _give_back(self) -> None:
        """Put back what the user had set, unless other code has set something else since."""
        if self._switch is None or self._user is None:
            return
        is_ours = self._is_ours(self._switch.get())
        self._saved = None if is_ours else (self._ours, self._user)
        if is_ours and self._ours != self._user:
            self._switch.set(self._user)
            self._changes += 1
        self._user = None

    # ------------------------------------------------------------------ statistics

    def statistics_locked(self) -> ShieldStatistics | None:
        """Return what there is to tell, or None where nothing can be governed."""
        if self._switch is None:
            return None
        return ShieldStatistics(
            interval=self._switch.get(),
            user=self._highest(),
            target=self._target,
            delay=self.loop_delay,
            reason=self._reason(),
            changes=self._changes,
            gave_way=self._loop_first.calls,
            collections=0 if self._permanent is None else self._permanent.collections,
            longest_collection=0.0 if self._permanent is None else self._permanent.longest_ns / 1e9,
        )

    def _reason(self) -> ShieldReason:
        if self._budget.governor.error is not None:
            return ShieldReason.FAILED
        if not self._may_govern():
            return ShieldReason.VETO
        if self._grip is None:
            return ShieldReason.REST
        if self._user is not None and self._switch is not None and not self._is_ours(self._switch.get()):
            return ShieldReason.FOREIGN
        return self._grip.reason


def shield_wanted() -> bool:
    """Return True if the environment allows to govern the interval."""
    return os.environ.get("HYBRIDRT_SHIELD", "1") != "0"


def _crowd(pools: Sequence[Pool]) -> int:
    """Return how many calls compute, or want to, that are known to wait most of the time."""
    return round(sum(pool.sizing.crowd for pool in pools))


def _quicken(watches: tuple[Watch, ...]) -> None:
    for watch in watches:
        watch.quicken()
