"""Sizing by bytes: the self-adaptive pool that is steered by the operating system's counters.

Every 1,500 ms the bytes that the worker threads have asked to read or write (`rchar + wchar`) are made into a
rate, and the rate is compared with that of the interval before; a tenth more or less is significant
(stability factor 0.9). Three phases, as published:

- *scaling*: the size grows after every interval, until the rate does not rise any more;
- *settled*: the size stays, until the rate changes or a time has passed;
- *exploring*: one thread fewer, and again, as long as the rate does not fall; then that one comes back and
  one more is tried, and if the rate rises with it, the pool scales again.

We differ where each of many threads counts, since one of them is never a tenth of the rate: while exploring,
the rate has fallen if it is a tenth below the best since that began. As many come back as that rate needs.

Where the document is silent we chose: scaling doubles; a settled pool explores after five intervals; fewer
are tried first; without any call the size falls back to where it began. None of these was measured. The law
knows bytes alone: for calls that compute or wait for a network it is the wrong one. Use `demand` for those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

__all__ = ["Phase", "ThroughputPolicy", "ThroughputState"]


class Phase(StrEnum):
    """What the controller does."""

    SCALING = "scaling"
    SETTLED = "settled"
    FEWER = "fewer"
    """Exploring: one thread fewer is tried."""
    MORE = "more"
    """Exploring: one thread more is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputState(State):
    """What the law remembers.

    Attributes:
        phase: What it does.
        rate: Bytes per second to compare with: of the interval before, or the most since exploring began.
        stayed: Intervals for which it has been settled.
        began_with: The size at which exploring began.
    """

    phase: Phase = Phase.SCALING
    rate: float = 0.0
    stayed: int = 0
    began_with: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPolicy:
    """The published state machine.

    Attributes:
        interval: Seconds between two decisions.
        stability: A rate below this share of the one before has fallen; one of which the rate before is less
            than this share has risen.
        patience: Intervals for which a settled pool stays so without a change.
        lowest: The least size.
        highest: The most.
        governs: The size counts for all calls.
        needs_moved: It cannot work without `Window.moved`.
    """

    interval: float = 1.5
    stability: float = 0.9
    patience: int = 5
    lowest: int = 1
    highest: int = 64
    governs: Literal["all", "waiting"] = "all"
    needs_moved: bool = True

    def start(self, limits: Limits) -> ThroughputState:
        """Return the smallest size."""
        return ThroughputState(workers=self._bounds(limits).lowest)

    def decide(self, limits: Limits, state: State, window: Window) -> ThroughputState:
        """Return the next size and phase."""
        own = state if isinstance(state, ThroughputState) else ThroughputState(workers=state.workers)
        bounds = self._bounds(limits)
        if not (window.queued or window.running or window.completed):
            return replace(self.start(limits), reason=Reason.NO_DEMAND)
        if window.moved is None:
            return replace(own, reason=Reason.HOLD)
        after = self._next(bounds, own, window.moved)
        rate = max(own.rate, window.moved) if own.phase is Phase.FEWER else window.moved
        after = replace(after, rate=rate)
        return after if after.workers <= bounds.highest else replace(after, workers=bounds.highest)

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True if the size is the one to begin with."""
        return state.workers == self._bounds(limits).lowest

    def _next(self, bounds: Limits, state: ThroughputState, rate: float) -> ThroughputState:
        rises = self.stability * rate > state.rate
        falls = rate < self.stability * state.rate
        match state.phase:
            case Phase.SCALING:
                return self._scale(bounds, state) if rises else _settle(state)
            case Phase.FEWER:
                return self._come_back(bounds, state, rate) if falls else self._fewer(bounds, state)
            case Phase.MORE:
                return self._scale(bounds, state) if rises else _settle(state, state.workers - 1)
            case Phase.SETTLED:
                if rises or falls or state.stayed >= self.patience:
                    return self._fewer(bounds, state)
                return replace(state, reason=Reason.SETTLED, stayed=state.stayed + 1)

    def _scale(self, bounds: Limits, state: ThroughputState) -> ThroughputState:
        if state.workers >= bounds.highest:
            return replace(_settle(state), reason=Reason.AT_MAX)
        workers = bounds.clamp(2 * state.workers)
        return replace(state, workers=workers, phase=Phase.SCALING, reason=Reason.SCALING)

    def _fewer(self, bounds: Limits, state: ThroughputState) -> ThroughputState:
        if state.workers <= bounds.lowest:
            if state.phase is Phase.FEWER:  # it has come down to here
                return replace(_settle(state), reason=Reason.AT_MIN)
            return self._more(bounds, state, state.workers)
        began_with = state.began_with if state.phase is Phase.FEWER else state.workers
        return replace(
            state,
            workers=state.workers - 1,
            phase=Phase.FEWER,
            reason=Reason.EXPLORING,
            began_with=began_with,
        )

    def _come_back(self, bounds: Limits, state: ThroughputState, rate: float) -> ThroughputState:
        """Go back to as many as did the old rate, if each does as much as now, and try one more."""
        began_with, wanted = max(state.began_with, state.workers + 1), state.workers * state.rate
        # A tenth fewer cannot be told apart; a pool that went by it would come down a little each time.
        same = wanted >= self.stability * began_with * rate
        return self._more(bounds, state, began_with if same else math.ceil(wanted / rate))

    def _more(self, bounds: Limits, state: ThroughputState, base: int) -> ThroughputState:
        if base >= bounds.highest:
            return replace(_settle(state, bounds.highest), reason=Reason.AT_MAX)
        return replace(state, workers=base + 1, phase=Phase.MORE, reason=Reason.EXPLORING)

    def _bounds(self, limits: Limits) -> Limits:
        lowest = limits.clamp(self.lowest)
        return Limits(lowest=lowest, highest=limits.clamp(max(self.highest, lowest)))


def _settle(state: ThroughputState, workers: int | None = None) -> ThroughputState:
    size = state.workers if workers is None else workers
    return replace(state, workers=size, phase=Phase.SETTLED, reason=Reason.SETTLED, stayed=0)
