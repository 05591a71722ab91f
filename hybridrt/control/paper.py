"""The published controller, Algorithm 1 of arXiv 2601.10582, so that anyone can compare.

Every 500 ms: b = 0.2 * sample + 0.8 * b, from 0.5; sample = 1 - sum(cpu) / sum(wall). With calls
queued, b > 0.3 three times in a row adds one thread and b <= 0.3 is a veto; with none queued one
thread goes. From 4 to 64 threads in the paper; here the executor's own bounds count as well.

Its weak point is kept on purpose: a thread that waits for the GIL uses no CPU, so pure computation
on k threads reads b = 1 - 1/k and the veto cannot fire. Use `demand` unless you compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hybridrt.control.window import Limits, State, Window
from hybridrt.values import Reason

__all__ = ["PaperPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPolicy:
    """Algorithm 1 with the constants of the paper."""

    interval: float = 0.5
    smoothing: float = 0.2
    threshold: float = 0.3
    patience: int = 3
    lowest: int = 4
    highest: int = 64
    beta_start: float = 0.5
    governs: Literal["all", "waiting"] = "all"
    needs_moved: bool = False

    def start(self, limits: Limits) -> State:
        """Return the smallest size."""
        return State(workers=self._bounds(limits).lowest, beta=self.beta_start)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return the next size: at most one thread more or less."""
        bounds = self._bounds(limits)
        beta = self._smooth(self.beta_start if state.beta is None else state.beta, window)
        step, streak, reason = self._judge(beta, state.streak, window)
        workers = bounds.clamp(state.workers + step)
        if step and workers == state.workers:
            reason = Reason.AT_MAX if step > 0 else Reason.AT_MIN
        return State(workers=workers, reason=reason, beta=beta, streak=streak)

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True if the size has come down to the lower bound."""
        return state.workers == self._bounds(limits).lowest

    def _smooth(self, beta: float, window: Window) -> float:
        if window.wall <= 0.0:  # no call ended: the paper does not say; the old value stands
            return beta
        sample = min(1.0, max(0.0, 1.0 - window.cpu / window.wall))
        return self.smoothing * sample + (1.0 - self.smoothing) * beta

    def _judge(self, beta: float, streak: int, window: Window) -> tuple[int, int, Reason]:
        """Return (threads to add, streak, reason)."""
        if not window.queued:
            return -1, 0, Reason.NO_DEMAND
        if beta <= self.threshold:
            return 0, 0, Reason.BETA_VETO
        if streak + 1 < self.patience:
            return 0, streak + 1, Reason.HYSTERESIS
        return 1, 0, Reason.DEMAND

    def _bounds(self, limits: Limits) -> Limits:
        return Limits(lowest=limits.clamp(self.lowest), highest=limits.clamp(self.highest))
