"""Close a pool's window, ask its policy, keep the decision and its reason."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.values import Decision

if TYPE_CHECKING:
    from hybridrt.pool.pool import Pool

__all__ = ["Sizing"]


class Sizing:
    """The size of one pool and how it came about; the interpreter's lock protects it.

    Args:
        policy: Decides.
        limits: The bounds.
        now_ns: The time.
    """

    def __init__(self, policy: Policy, limits: Limits, now_ns: int) -> None:
        self._policy = policy
        self._limits = limits
        self._made_ns = self._opened_ns = now_ns
        self._sums = (0, 0, 0, 0)
        self.state: State = policy.start(limits)
        first = self.state
        self.decisions: deque[Decision] = deque(maxlen=200)
        self.decisions.append(
            Decision(
                at=0.0,
                workers=first.workers,
                previous=first.workers,
                reason=first.reason,
                beta=first.beta,
                queued=0,
                running=0,
            )
        )

    def close_window(self, pool: Pool, now_ns: int) -> bool:
        """Decide if a window is over; return whether the size changed."""
        seconds = (now_ns - self._opened_ns) / 1e9
        if seconds < self._policy.interval:
            return False
        before = self.state
        self.state = self._policy.decide(self._limits, before, self._window(pool, seconds))
        self._opened_ns = now_ns
        if (self.state.workers, self.state.reason) != (before.workers, before.reason):
            self.decisions.append(self._decision(pool, before, now_ns))
        return self.state.workers != before.workers

    def _window(self, pool: Pool, seconds: float) -> Window:
        tally = pool.tally
        sums = (tally.completed + tally.failed, tally.wall_ns, tally.cpu_ns, tally.lane_cpu_ns)
        completed, wall, cpu, lane_cpu = (new - old for new, old in zip(sums, self._sums, strict=True))
        self._sums = sums
        return Window(
            seconds=seconds,
            queued=pool.admission.governed(),
            running=pool.governed_running(),
            completed=completed,
            wall=wall / 1e9,
            cpu=cpu / 1e9,
            lane_cpu=lane_cpu / 1e9 / seconds,
        )

    def _decision(self, pool: Pool, before: State, now_ns: int) -> Decision:
        return Decision(
            at=(now_ns - self._made_ns) / 1e9,
            workers=self.state.workers,
            previous=before.workers,
            reason=self.state.reason,
            beta=self.state.beta,
            queued=pool.queued,
            running=pool.busy,
        )
