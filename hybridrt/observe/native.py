"""How much of its work a function leaves to threads of native libraries, seen beside its calls.

Such a call is not alone with its work: while it stands still, the threads that it started may compute for
it, or for another call that has them just now. Neither is waiting.

Counted are steps of the governor in which no other function's calls held a permit. What these threads do
while no call runs is not a call's. Such a function is taken for a waiting one only if its calls were seen to
stand still together with these threads; a library whose caller only sleeps meanwhile is not told from a wait.
"""

from __future__ import annotations

__all__ = ["Background", "NativeLedger"]

_ENOUGH_NS = 2_000_000
"""CPU time seen before anything is said,"""
_KEPT_NS = 200_000_000
"""and kept; then all of it is halved. Not measured."""
_DRIVES, _STILL_DRIVES = 0.25, 0.125
"""CPU time of native threads per CPU time of Python's from which a function uses them, and until which. Not
per time that passed: on a crowded machine neither gets much of that."""
_WEIGHT = 0.2
"""Of a new step in the mean of the background."""
_BOUNDS = 16
"""Steps with calls that do not compute, the least of which counts as one without calls. Not measured."""


class NativeLedger:
    """CPU time seen beside calls of one function; the shared lock protects it.

    Attributes:
        native_ns: That of native threads,
        own_ns: and that of Python's.
        drives: Its calls compute in native threads, too.
    """

    __slots__ = ("drives", "native_ns", "own_ns")

    def __init__(self) -> None:
        self.native_ns = self.own_ns = 0
        self.drives = False

    def saw(self, native_ns: int, own_ns: int) -> None:
        """Take in a step beside calls of this function alone.

        Args:
            native_ns: CPU time of native threads, less what they use in the background.
            own_ns: CPU time of Python's threads.
        """
        if self.native_ns + self.own_ns + native_ns + own_ns > _KEPT_NS:
            self.native_ns //= 2
            self.own_ns //= 2
        self.native_ns += native_ns
        self.own_ns += own_ns
        if self.native_ns + self.own_ns >= _ENOUGH_NS:
            least = _STILL_DRIVES if self.drives else _DRIVES
            self.drives = self.native_ns >= least * self.own_ns


class Background:
    """CPU time per time of native threads while no call computes; they work for others then."""

    def __init__(self) -> None:
        self._share = 0.0
        self._bounds: list[float] = []
        """What it was at most in the last steps in which calls ran."""

    def saw(self, native_ns: int, interval_ns: int) -> None:
        """Take in a step in which no call ran."""
        if interval_ns > 0:
            self._share += _WEIGHT * (native_ns / interval_ns - self._share)

    def saw_at_most(self, native_ns: int, interval_ns: int) -> None:
        """Take in a step in which calls ran and none was seen to compute: they may have left it to these."""
        if interval_ns > 0:
            self._bounds.append(native_ns / interval_ns)
        if len(self._bounds) >= _BOUNDS:
            # Where they work in bursts, what is known from steps without calls may lie between.
            known = min(max(self._share, min(self._bounds)), max(self._bounds))
            self._share += _WEIGHT * (known - self._share)
            self._bounds.clear()

    def beyond(self, native_ns: int, interval_ns: int) -> int:
        """Return what of this CPU time is more than the background."""
        return max(0, native_ns - int(self._share * interval_ns))
