"""Close a pool's window, ask its policy, keep the decision and its reason."""

from __future__ import annotations

import logging
from collections import deque

from hybridrt.control.checked import CheckedPolicy
from hybridrt.control.replay import Recording
from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.governor.signals import Sums, crowd_of, look_at_lane
from hybridrt.measure.moved import MovedBytes
from hybridrt.pool.state import Pool
from hybridrt.values import Decision, Reason

__all__ = ["LOG", "Sizing"]

logger = logging.getLogger("hybridrt")

LOG = 512
"""Windows kept, so that what was decided in them can be decided again."""
CALM = 4
"""Intervals in a window while no call of the lane queues and the size stays: a window costs some 0.3 ms."""


class Sizing:
    """The size of one pool and how it came about; the shared lock protects it.

    Args:
        policy: Decides.
        limits: The bounds.
        now_ns: The time.
    """

    def __init__(self, policy: Policy, limits: Limits, now_ns: int) -> None:
        self._policy = policy
        self._limits = limits
        self._made_ns = self._opened_ns = now_ns
        self._sums = Sums()
        self._moved = MovedBytes() if policy.needs_moved else None
        self._told: str | None = None
        """The failure of the policy that was logged last."""
        self.crowd = 0.0
        """Calls of the governed lane that computed at once, or waited for the GIL, on average."""
        self._calm = False
        self.state: State = policy.start(limits)
        self._log: deque[tuple[State, Window, int]] = deque(maxlen=LOG)
        self.decisions: deque[Decision] = deque(maxlen=200)
        self._note(self.state, now_ns)

    def set_limits(self, limits: Limits) -> None:
        """Decide within other bounds from now on; the log begins anew, since it is replayed within one."""
        self._limits = limits
        self._log.clear()

    def close_window(self, pool: Pool, now_ns: int) -> bool:
        """Decide if a window is over; return whether the size changed."""
        seconds = (now_ns - self._opened_ns) / 1e9
        if seconds < self._policy.interval * (CALM if self._is_calm(pool) else 1):
            return False
        if self._is_idle(pool):
            self._opened_ns, self.crowd = now_ns, 0.0
            return False
        before = self.state
        window, self._sums = look_at_lane(pool, self._sums, now_ns, seconds, self._moved)
        self.state = self._policy.decide(self._limits, before, window)
        self.crowd = crowd_of(pool, window)
        self._log.append((before, window, self.state.workers))
        self._opened_ns = now_ns
        stays = (self.state.workers, self.state.reason) == (before.workers, Reason.HOLD)
        self._calm = stays and not self.state.streak
        if (self.state.workers, self.state.reason) != (before.workers, before.reason):
            self._note(before, now_ns, pool.queued, pool.busy)
        return self.state.workers != before.workers

    def tell_failure(self) -> None:
        """Log that the user's policy fails, once for each error in a row; without the lock."""
        policy = self._policy
        if not isinstance(policy, CheckedPolicy) or (policy.error is None and self._told is None):
            return
        error = policy.error
        told, self._told = self._told, None if error is None else repr(error)
        if error is not None and self._told != told:
            logger.error("the policy %s failed; the pool keeps its size", policy.name, exc_info=error)

    def _is_calm(self, pool: Pool) -> bool:
        """Return True if the law had nothing to do, and still has not; the paper's keeps to its interval."""
        return self._calm and not pool.admission.governs_all and not pool.admission.governed()

    def _is_idle(self, pool: Pool) -> bool:
        """Return True if the lane had no call and its size would stay, as where calls only compute."""
        return (
            not pool.admission.governs_all
            and not pool.waiting
            and not pool.admission.governed()
            and pool.tally.lane_calls == self._sums.completed
            and pool.at_rest()
        )

    def log(self) -> Recording:
        """Return the last windows and what was decided in them."""
        kept = tuple(self._log)
        return Recording(
            limits=self._limits,
            start=kept[0][0] if kept else self.state,
            windows=tuple(window for _, window, _ in kept),
            sizes=tuple(size for _, _, size in kept),
        )

    def _note(self, before: State, now_ns: int, queued: int = 0, running: int = 0) -> None:
        decision = Decision(
            at=(now_ns - self._made_ns) / 1e9,
            workers=self.state.workers,
            previous=before.workers,
            reason=self.state.reason,
            beta=self.state.beta,
            queued=queued,
            running=running,
        )
        self.decisions.append(decision)
