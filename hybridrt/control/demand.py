"""Sizing by demand: how many *waiting* calls may run at once.

Computing calls are not its business: they need a permit (see `permits`), however long their queue
is. The law sees the waiting lane alone and steers towards the knee, the size at which the lane's
bottleneck is just busy all the time: the GIL, the cores, or something downstream that Python does not
see, a disk or a connection pool. It borrows from TCP BBR (rate times round trip without queueing),
square-root staffing, and libdispatch (double when all is blocked). The rules, in order:

1. An experiment that is under way ends when its reading is clear; the size stays, or goes back.
2. Calls held back by the size: the vetoes refuse growth (memory, GIL or cores filled by the lane
   itself, a loop that is late behind it, blocking ratio below 0.3). Nothing completes: double. Below
   what the readings call for, or nothing known yet: grow, at once to a size known to be good, else by
   doubling.
3. Held back although growth does not seem to pay: try more threads, or fewer, and keep what holds up
   the throughput. What was found stays for seconds, then longer and longer.
4. No call held back: after some seconds the size comes down to the peak of that time, if it is clearly
   lower. If calls seem to hold each other up all the same, fewer are tried as well; the rest then queues.

Throughput is the authority: the service time alone, the profiles' knee and all signals of the GIL only
choose what to try and what to refuse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from hybridrt.control.experiment import begin, is_crowded, judge, try_uncrowding
from hybridrt.control.knee import DemandState, is_pressed, observe, reopen, staff
from hybridrt.control.veto import corrected, find_veto
from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

__all__ = ["DemandPolicy"]

CROWDED = 20
"""Windows in a row in which calls held each other up until fewer are tried although none is queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandPolicy:
    """Knee tracking: doubling growth under vetoes, tested changes, peak hold.

    Attributes:
        interval: Seconds between two decisions.
        first: The size to start with, and to rest at.
        governs: The size counts for the waiting calls.
        needs_moved: It does not know bytes.
        patience: Seconds from finding a knee to the first doubt; doubles up to sixteen times that.
    """

    interval: float = 0.05
    first: int = 6
    patience: float = 4.0
    governs: Literal["all", "waiting"] = "waiting"
    needs_moved: bool = False

    def start(self, limits: Limits) -> DemandState:
        """Return the first size."""
        return DemandState(workers=limits.clamp(self.first), patience=self.patience)

    def decide(self, limits: Limits, state: State, window: Window) -> DemandState:
        """Return the next state; its reason is the whole explanation."""
        state = observe(limits, self._own(state), window)
        after = self._next(limits, state, window)
        beta = corrected(state)
        after = replace(after, beta=beta if beta >= 0.0 else None)
        if after.workers == state.workers:
            return after
        grown = after.clock if after.workers > state.workers else after.grown_at
        return reopen(replace(after, grown_at=grown))

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True if windows without calls would change nothing any more."""
        own = self._own(state)
        return not own.trial and own.workers <= self._rest(limits, own)

    def _own(self, state: State) -> DemandState:
        """Return a state of this policy; one of another has a size and nothing else to tell."""
        if isinstance(state, DemandState):
            return state
        return DemandState(workers=state.workers, patience=self.patience, peak=state.workers)

    def _rest(self, limits: Limits, state: DemandState) -> int:
        return limits.clamp(min(self.first, state.knee or self.first))

    def _next(self, limits: Limits, state: DemandState, window: Window) -> DemandState:
        if state.trial:
            return judge(self.patience, limits, state, window)
        if not is_pressed(state, window):
            return self._settle(limits, state, window)
        return self._press(limits, self._doubt(state), window)

    # ------------------------------------------------------------------ held back

    def _doubt(self, state: DemandState) -> DemandState:
        """Forget a knee whose throughput has become another: the load has changed.

        After a quiet time the rate has to come up first.
        """
        since = min(state.pressed, state.clock - max(state.grown_at, state.trial_at))
        if state.workers != state.knee or not state.knee_throughput or since < 1.5 or not state.readable:
            return state
        change = state.rate / state.knee_throughput
        noise = 3.0 / math.sqrt(state.rate + 1.0)
        if 0.75 - noise < change < 1.33 + noise:
            return state
        return replace(state, knee=0, exact=False, patience=self.patience, least=0.0)

    def _press(self, limits: Limits, state: DemandState, window: Window) -> DemandState:
        veto = find_veto(limits, state, window)
        if veto is None:
            grown = self._grow(limits, state, window)
            if grown is not None:
                return grown
        else:
            state = replace(state, refused_at=state.clock)
        return begin(limits, state, window, veto)

    def _grow(self, limits: Limits, state: DemandState, window: Window) -> DemandState | None:
        workers = state.workers
        if _is_stalled(limits, state, window):
            target, reason = 2 * workers, Reason.STALL
        elif state.knee and workers < state.knee:
            target, reason = min(state.knee, workers + window.queued), Reason.DEMAND
        elif _calls_for_more(state):
            hint = 0 if state.exact or state.tried else int(window.knee or 0)
            target = min(workers + window.queued, max(2 * workers, hint), _ceiling(window))
            reason = Reason.DEMAND
        else:
            return None
        target = limits.clamp(target)
        if target <= workers:
            return replace(state, reason=Reason.AT_MAX) if workers >= limits.highest else None
        if state.clock - state.grown_at < _pause(state):
            return replace(state, reason=Reason.HYSTERESIS)
        return replace(state, workers=target, reason=reason)

    # ------------------------------------------------------------------ not held back

    def _settle(self, limits: Limits, state: DemandState, window: Window) -> DemandState:
        """Come down to the peak of the last seconds, if it is clearly lower."""
        rest = self._rest(limits, state)
        peak = max(state.peak, state.peak_before)
        want = max(rest, limits.clamp(peak))
        if want < state.workers and peak + math.sqrt(peak) < state.workers:  # the next peak may be higher
            return replace(state, workers=want, reason=Reason.NO_DEMAND, streak=0)
        state = replace(
            state, reason=Reason.HOLD, streak=state.streak + 1 if is_crowded(limits, state, window) else 0
        )
        return try_uncrowding(limits, state, window) if state.streak >= CROWDED else state


def _ceiling(window: Window) -> int:
    """Return the size beyond which growth needs a trial, because by the profiles GIL or cores are full."""
    return 1 << 30 if window.knee is None else math.ceil(staff(window.knee))


def _pause(state: DemandState) -> float:
    """Return how long a growth must show what it does before the next one: longer from 64 threads."""
    return min(state.quick, 0.1) if state.workers < 64 else min(2.0 * state.quick, 0.2)


def _is_stalled(limits: Limits, state: DemandState, window: Window) -> bool:
    """Return True if calls block, not compute, for longer than their usual time and that of several
    others.
    """
    if window.completed or window.lane_cpu >= 0.3 * limits.capacity:
        return False
    usual = max(2.0 * state.alone, 16.0 * state.quick / state.workers)
    since = max(state.done_at, state.grown_at)
    return not state.alone or state.clock - since >= max(0.1, usual)


def _calls_for_more(state: DemandState) -> bool:
    """Return True if the pool has fewer threads than its own throughput would keep busy."""
    if state.knee and state.workers >= state.knee:
        return False
    if not state.alone_at or not state.service:
        return True
    return state.workers < staff(state.workers * state.likely_alone / state.service)
