"""What the governor may cost: a share of a core, with some credit for busy moments.

Pure arithmetic on what its thread has used. A new load is looked at every few milliseconds, which is
worth its price for a moment; one that lasts is looked at as often as the share allows.
"""

from __future__ import annotations

__all__ = ["CREDIT_NS", "DEBT_NS", "PRESSED_SHARE", "SHARE", "CpuBudget"]

SHARE = 0.01
"""Share of a core that the governor may use in the long run."""
PRESSED_SHARE = 0.014
"""Share of a core that it may use while a call lacks a permit, which wants to be seen soon."""
CREDIT_NS = 25_000_000
"""CPU time it may have saved up: what it earns in 2.5 s, some 100 steps. Not measured."""
DEBT_NS = 25_000_000
"""CPU time it may owe; what was used beyond is forgiven. A full garbage collection runs in the thread that
happens to allocate: one of 0.3 s would keep the governor from looking for half a minute. Not tuned."""
_DEAREST_NS = 2_000_000
"""What one step counts at most in the mean; a step that takes more was disturbed."""


class CpuBudget:
    """Tells one thread how long to sleep, so that it keeps to its share.

    Args:
        share: Of a core, above 0.
        credit_ns: CPU time that may be saved up.
    """

    __slots__ = ("_at_ns", "_credit_ns", "_debt_ns", "_mean_ns", "_share", "_used_ns")

    def __init__(self, share: float = SHARE, credit_ns: int = CREDIT_NS) -> None:
        self._share = share
        self._credit_ns = credit_ns
        self._at_ns = self._used_ns = 0
        self._debt_ns = float(-credit_ns)
        self._mean_ns = 0.0
        """CPU time of a step: a mean in which old steps count less and less."""

    def book(self, now_ns: int, used_ns: int) -> None:
        """Take note of the CPU time `used_ns` that the thread has used until now, in all."""
        earned = self._share * (now_ns - self._at_ns)
        spent = max(0, used_ns - self._used_ns)  # less than before: it is another thread
        self._debt_ns = min(DEBT_NS, max(-self._credit_ns, self._debt_ns + spent - earned))
        self._at_ns, self._used_ns = now_ns, used_ns
        self._mean_ns += (min(_DEAREST_NS, spent) - self._mean_ns) / 8

    @property
    def least_sleep_ns(self) -> int:
        """The sleep after which nothing is owed any more."""
        return max(0, int(self._debt_ns / self._share))

    @property
    def steady_sleep_ns(self) -> int:
        """The sleep between steps like the last ones that keeps them to `PRESSED_SHARE`."""
        return int(self._mean_ns / PRESSED_SHARE)
