"""Sizing by bytes: the self-adaptive pool of "Towards a self-adapting thread pool" (see `docs/policies.md`).

Every 1,500 ms the rate of bytes that the pool's threads read and wrote is compared with the one before. A
change of more than a tenth counts (stability factor 0.9). Three phases, as published:

- Scaling: one step more threads after each interval, until the rate rises no more.
- Settled: the size stays. After some intervals, or when the rate has changed, the pool explores.
- Exploring: first one step fewer. If the rate holds, one fewer again; if it falls, back, and then one step
  more. If that pays, the pool scales again; if not, it settles where it was.

The paper names neither the step, nor the time for which a size stays, nor the order in which it explores;
those are ours, and so are the bounds (4 to 64, as for the other published pool here). It is made for calls
that read and write. Where the platform does not count bytes by thread, the size stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

__all__ = ["Phase", "ThroughputPolicy", "ThroughputState"]


class Phase(StrEnum):
    """What the pool is about."""

    SCALING = "scaling"
    SETTLED = "settled"
    DOWN = "exploring fewer"
    UP = "exploring more"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputState(State):
    """What the policy remembers.

    Attributes:
        phase: What it is about.
        rate: Bytes per second of the interval before; None before the first.
        reference: The same at the size from which it explores.
        settled: Intervals for which the size has stayed.
    """

    phase: Phase = Phase.SCALING
    rate: float | None = None
    reference: float = 0.0
    settled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPolicy:
    """Hill climbing on the rate of bytes.

    Attributes:
        interval: Seconds between two decisions.
        stability: A rate below this share of another one differs from it.
        step: Threads added or taken at a time. Ours.
        patience: Intervals for which a size stays before the pool explores. Ours.
        lowest: Threads at least, and at the start. Ours.
        highest: Threads at most, as of the pool that the paper compares with.
    """

    interval: float = 1.5
    stability: float = 0.9
    step: int = 1
    patience: int = 4
    lowest: int = 4
    highest: int = 64
    governs: str = "all"
    reads_bytes: bool = True

    def start(self, limits: Limits) -> ThroughputState:
        """Return the smallest size."""
        return ThroughputState(workers=self._bounds(limits).lowest)

    def decide(self, limits: Limits, state: State, window: Window) -> ThroughputState:
        """Return the next size; its reason names the phase."""
        own = state if isinstance(state, ThroughputState) else ThroughputState(workers=state.workers)
        rate = window.bytes_rate
        if rate is None or not (window.queued or window.running or window.completed):
            return replace(own, reason=Reason.HOLD, rate=None)
        after = self._next(own, rate)
        workers = self._bounds(limits).clamp(after.workers)
        reason = after.reason
        if workers != after.workers:
            reason = Reason.AT_MAX if after.workers > workers else Reason.AT_MIN
            after = replace(after, phase=self._at_a_bound(after.phase))
        return replace(after, workers=workers, reason=reason, rate=rate)

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True: a window without calls says nothing of bytes, and the size stays."""
        return True

    def _next(self, state: ThroughputState, rate: float) -> ThroughputState:
        before = state.rate
        if before is None:
            return self._scale(state)  # the first interval with calls: nothing to compare with
        if state.phase is Phase.SCALING:
            return self._scale(state) if self._rose(before, rate) else self._settle(state, state.workers)
        if state.phase is Phase.SETTLED:
            changed = self._rose(before, rate) or self._rose(rate, before)
            if changed or state.settled + 1 >= self.patience:
                return self._explore(state, Phase.DOWN, rate)
            return replace(state, reason=Reason.SETTLED, settled=state.settled + 1)
        if state.phase is Phase.DOWN:
            if self._rose(rate, state.reference):  # it fell: back, and one more
                back = replace(state, workers=state.workers + self.step)
                return self._explore(back, Phase.UP, state.reference)
            return self._explore(state, Phase.DOWN, state.reference)
        if self._rose(state.reference, rate):
            return self._scale(state)
        return self._settle(state, state.workers - self.step)

    def _rose(self, before: float, after: float) -> bool:
        return before < self.stability * after

    def _scale(self, state: ThroughputState) -> ThroughputState:
        return replace(
            state, phase=Phase.SCALING, workers=state.workers + self.step, reason=Reason.SCALING, settled=0
        )

    def _settle(self, state: ThroughputState, workers: int) -> ThroughputState:
        return replace(state, phase=Phase.SETTLED, workers=workers, reason=Reason.SETTLED, settled=0)

    def _explore(self, state: ThroughputState, phase: Phase, reference: float) -> ThroughputState:
        step = -self.step if phase is Phase.DOWN else self.step
        return replace(
            state,
            phase=phase,
            workers=state.workers + step,
            reason=Reason.EXPLORING,
            reference=reference,
            settled=0,
        )

    def _at_a_bound(self, phase: Phase) -> Phase:
        """Return the phase after a step that a bound forbade: nothing more is to be tried that way."""
        return Phase.SETTLED if phase in (Phase.SCALING, Phase.DOWN) else phase

    def _bounds(self, limits: Limits) -> Limits:
        lowest = max(limits.lowest, min(self.lowest, limits.highest))
        return Limits(lowest=lowest, highest=max(lowest, min(self.highest, limits.highest)))
