"""Whether several calls at once get more done, tried where waits are too short to be told from the GIL's.

A call of a quarter of a millisecond that sleeps for half of it looks, beside a busy loop, like one that
waits for the GIL: each wait for that counts as a switch interval, which is as long as the call. So such a
function counts as computing, and its calls run one at a time. If a good part of their time is neither
CPU nor explained, they are let run at once for a while, as waiting calls do, and the throughput decides.

Alone, the calls follow each other without a gap, so that one call's time gives the throughput. At once, only
completions per second do, and they say little where too few calls were queued: then it is tried again. So it
is after a success, because what computes at once with others looks as if it waited.
"""

from __future__ import annotations

__all__ = ["OverlapTrial"]

UNEXPLAINED_NS = 20_000
UNEXPLAINED_SHARE = 0.2
"""Blocked time, and its share of the call, from which a trial is worth it."""
GAIN = 1.1
"""Throughput of several at once, over that of one alone, from which it stays at that."""
_CALLS = 256
_LONGEST_NS = 250_000_000
"""What a stretch of one kind is judged by: that many calls, or that long."""
_STARTING = 64
"""Calls that do not count: of a trial, because their threads have to start; after it, because some of them
began at once with others."""
_PATIENCE = 4_096
_PATIENCE_MOST = 1 << 18
_CHANGED, _ODD_MAX = 2.0, 8
"""Factor of CPU time, or part of its wait, by which a function is no longer the one that was tried, and for
how many windows in a row. Not tuned."""


class OverlapTrial:
    """The trials of one function; its profile tells it of every window of calls.

    Attributes:
        running: Calls may overlap now, for a trial.
        wait_ns: The wait that a successful trial has proved; 0 without one.
    """

    __slots__ = (
        "_alone",
        "_cpu_ns",
        "_odd",
        "_patience",
        "_span",
        "_starting",
        "_try_at",
        "running",
        "wait_ns",
    )

    def __init__(self) -> None:
        self.running = False
        self.wait_ns = 0
        self._cpu_ns = 0.0
        self._alone = self._span = (0, 0.0)
        """Calls and nanoseconds: one at a time, and at once."""
        self._starting = self._odd = 0
        self._try_at, self._patience = _CALLS, _PATIENCE

    def alone(self, total: int, calls: int, wall_ns: float, cpu_ns: float) -> None:
        """Take in a window of calls that ran one at a time; begin a trial when it is time.

        Args:
            total: Calls of the function so far.
            calls: Calls in the window.
            wall_ns: Their mean wall time.
            cpu_ns: Their mean CPU time.
        """
        if self._starting > 0:
            self._starting -= calls
            return
        blocked = wall_ns - cpu_ns
        if blocked < UNEXPLAINED_NS or blocked < UNEXPLAINED_SHARE * wall_ns:
            self._alone = (0, 0.0)
            return
        self._alone = (self._alone[0] + calls, self._alone[1] + calls * wall_ns)
        self._cpu_ns = cpu_ns
        if total >= self._try_at and _is_enough(self._alone):
            self.running, self._starting, self._span = True, _STARTING, (0, 0.0)

    def together(self, total: int, calls: int, elapsed_ns: int) -> None:
        """Take in a window of the trial, which took `elapsed_ns`; judge it when it is over."""
        if self._starting > 0:
            self._starting -= calls
            return
        self._span = (self._span[0] + calls, self._span[1] + elapsed_ns)
        if _is_enough(self._span):
            self._judge(total)

    def holds(self, total: int, wall_ns: float, cpu_ns: float) -> bool:
        """Return True while a trial's success counts: until the next is due, or the function is another one.

        Args:
            total: Calls of the function so far.
            wall_ns: Mean wall time of the last ones.
            cpu_ns: Their mean CPU time.
        """
        if not self.wait_ns:
            return False
        changed = cpu_ns > _CHANGED * self._cpu_ns or self.wait_ns > _CHANGED * (wall_ns - cpu_ns)
        self._odd = self._odd + 1 if changed else 0
        if self._odd >= _ODD_MAX:
            self._try_at = total
        if total >= self._try_at:
            self.wait_ns = 0
        return self.wait_ns > 0

    def _judge(self, total: int) -> None:
        alone, together = (nanoseconds / calls for calls, nanoseconds in (self._alone, self._span))
        self.running, self._alone, self._starting, self._odd = False, (0, 0.0), _STARTING, 0
        self._try_at, self._patience = total + self._patience, min(2 * self._patience, _PATIENCE_MOST)
        if alone >= GAIN * together:
            self.wait_ns = int(alone - self._cpu_ns)


def _is_enough(stretch: tuple[int, float]) -> bool:
    return stretch[0] >= _CALLS or stretch[1] >= _LONGEST_NS
