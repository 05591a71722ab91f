"""Sizing by demand, first version: how many *waiting* calls may run at once.

Computing calls are not its business: they need a permit (see `permits`), however long their queue
is, and that is what keeps a pool of computing threads from growing because of its own GIL wait.
The law sees the waiting lane alone: it doubles while calls are queued there, unless the lane's own
CPU use has filled what the GIL or the cores can give, and forgets a peak after a while without a
queue. The rules are tried in order and the first that applies wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

__all__ = ["DemandPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandPolicy:
    """Doubling growth under a saturation veto, slow return to the start.

    Attributes:
        interval: Seconds between two decisions.
        first: The size to start with, and to return to. Not tuned: asyncio's own default pool has
            at most as many threads.
        saturation: Share of the capacity from which growth is refused.
        patience: Windows without a queue before a peak is halved.
    """

    interval: float = 0.05
    first: int = 32
    saturation: float = 0.85
    patience: int = 100

    def start(self, limits: Limits) -> State:
        """Return the first size."""
        return State(workers=limits.clamp(self.first))

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return the next size."""
        beta = None if window.wall <= 0.0 else min(1.0, max(0.0, 1.0 - window.cpu / window.wall))
        workers, streak, reason = self._next(limits, state, window)
        return State(workers=workers, reason=reason, beta=state.beta if beta is None else beta, streak=streak)

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Tell whether the size is back at the start."""
        return state.workers <= limits.clamp(self.first)

    def _next(self, limits: Limits, state: State, window: Window) -> tuple[int, int, Reason]:
        """Return (size, windows in a row without a queue, reason)."""
        workers = state.workers
        if not window.queued:
            return self._settle(limits, state, window)
        if workers >= limits.highest:
            return limits.highest, 0, Reason.AT_MAX
        if window.running < workers:
            return workers, 0, Reason.HOLD
        if window.lane_cpu >= self.saturation * limits.capacity:
            return workers, 0, Reason.SATURATED
        reason = Reason.DEMAND if window.completed else Reason.STALL
        return limits.clamp(2 * workers), 0, reason

    def _settle(self, limits: Limits, state: State, window: Window) -> tuple[int, int, Reason]:
        rest = limits.clamp(self.first)
        if state.workers <= rest:
            return state.workers, 0, Reason.HOLD
        if state.streak + 1 < self.patience or window.running > state.workers // 2:
            return state.workers, state.streak + 1, Reason.HOLD
        return max(rest, state.workers // 2), 0, Reason.NO_DEMAND
