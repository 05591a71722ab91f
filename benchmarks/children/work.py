"""Pure-Python work that is counted while it is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from statistics import median

__all__ = ["ALIKE", "Work", "at_one_speed", "calibrate", "timed_units", "wait"]

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


def wait(seconds: float) -> None:
    """Block the thread."""
    time.sleep(seconds)


def timed_units(units: int) -> list[float]:
    """Do the work of one call; return what each unit took by the CPU clock of its thread."""
    cells: dict[int, int] = {}
    return [_timed_unit(cells) for _ in range(units)]


def at_one_speed(taken: Sequence[float]) -> float:
    """Return how long the units of a call would have taken on a core of its own, at the speed of the moment.

    How much gets done on a shared machine follows the speed of its cores, which is another one from second to
    second. What is done at the speed of the moment can be compared.
    """
    alike = [taken[begin : begin + ALIKE] for begin in range(0, len(taken), ALIKE)]
    return sum(len(units) * median(units) for units in alike)
