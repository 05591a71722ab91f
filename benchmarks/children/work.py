"""Pure-Python work that is counted while it is done."""

from __future__ import annotations

import threading
import time

__all__ = ["Work", "calibrate"]

_LOOPS = 1_000


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
