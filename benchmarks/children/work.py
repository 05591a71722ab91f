"""Pure-Python work that is counted while it is done."""

from __future__ import annotations

import threading
import time
from collections import deque
from statistics import median

__all__ = ["ALIKE", "TimedWork", "Work", "calibrate"]

_LOOPS = 1_000
ALIKE = 16
"""Units in a row that count as long as the middle one of them took: some 2 ms, in which the speed of a core
stays what it is, while a change of threads makes single units longer."""


def calibrate(seconds: float) -> int:
    """Return how many units take so long on a thread that runs alone; the fastest of many counts."""
    cells: dict[int, int] = {}
    fastest = min(_timed_unit(cells) for _ in range(2_000))
    return max(1, round(seconds / fastest))


def _timed_unit(cells: dict[int, int]) -> float:
    begun = time.thread_time()
    _units(1, cells)
    return time.thread_time() - begun


def _units(units: int, cells: dict[int, int]) -> None:
    mine = threading.get_ident()
    for _ in range(units):
        x = 0
        for i in range(_LOOPS):
            x += i * i
        cells[mine] = cells.get(mine, 0) + 1


class Work:
    """A computing call of fixed length, and the units that all of its calls have done so far.

    Args:
        units: Units of one call.
    """

    def __init__(self, units: int) -> None:
        self._units = units
        # One cell per thread: no update is lost, and what runs counts before it ends.
        self._cells: dict[int, int] = {}

    def __call__(self) -> None:
        """Do the work of one call."""
        _units(self._units, self._cells)

    def done(self) -> int:
        """Return the units done so far, by all threads."""
        return sum(tuple(self._cells.values()))


class TimedWork(Work):
    """The same, and what the units took by the CPU clock of their thread.

    How much gets done on a shared machine follows the speed of its cores, which is another one from second to
    second. What is done at the speed of the moment can be compared.
    """

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self._taken: deque[float] = deque()
        self._seconds = 0.0

    def __call__(self) -> None:
        """Do the work of one call."""
        at = time.thread_time()
        for _ in range(self._units):
            _units(1, self._cells)
            before, at = at, time.thread_time()
            self._taken.append(at - before)

    def seconds(self) -> float:
        """Return the seconds for which the units done so far would have kept a core busy; from one thread."""
        while len(self._taken) >= ALIKE:
            self._seconds += ALIKE * median(self._taken.popleft() for _ in range(ALIKE))
        return self._seconds
