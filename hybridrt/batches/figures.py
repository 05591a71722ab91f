"""What batches of one function have cost, and what it gains to run calls together."""

from __future__ import annotations

from threading import Lock

from hybridrt.pool.lock import without_convoy
from hybridrt.values import BatchStatistics

__all__ = ["BatchFigures", "gain"]


def gain(count: int, items: int, squares: int, wall: float, weighted: float) -> float | None:
    """Return how many times as many items a second the batches ran as batches of one would have.

    The time of a batch is taken for a line over its size, by least squares: a fixed part and one for each
    item, neither below zero.

    Args:
        count: Batches.
        items: The sum of their sizes.
        squares: The sum of the squares of their sizes.
        wall: The sum of their times, in seconds.
        weighted: The sum of time times size.

    Returns:
        At least 1.0; None if all batches had one size, which tells nothing.
    """
    spread = count * squares - items * items
    if not count or not spread or wall <= 0.0:
        return None
    each = min(max(0.0, (count * weighted - items * wall) / spread), wall / items)
    fixed = (wall - each * items) / count
    return max(1.0, (fixed + each) * items / wall)


class BatchFigures:
    """Counts of one function's batches, over all loops of a pool."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._batches = self._items = self._squares = self._largest = self._failed = self._dropped = 0
        self._wall = self._weighted = self._waited = 0.0

    def note(self, size: int, wall: float, waited: float, *, failed: bool) -> None:
        """Count a batch.

        Args:
            size: Its items.
            wall: Seconds from handing it over to its results.
            waited: Seconds that its items waited for it, in sum.
            failed: It raised.
        """
        with without_convoy(self._lock):
            self._batches += 1
            self._items += size
            self._squares += size * size
            self._largest = max(self._largest, size)
            self._failed += failed
            self._wall += wall
            self._weighted += wall * size
            self._waited += waited

    def drop(self) -> None:
        """Count an item whose caller left before its batch ended."""
        with without_convoy(self._lock):
            self._dropped += 1

    def statistics(self) -> BatchStatistics:
        """Return the public view."""
        with without_convoy(self._lock):
            batches, items = self._batches, self._items
            found = gain(batches, items, self._squares, self._wall, self._weighted)
            return BatchStatistics(
                batches=batches,
                items=items,
                size_mean=items / batches if batches else None,
                size_max=self._largest,
                failed=self._failed,
                dropped=self._dropped,
                wait_mean=self._waited / items if items else None,
                gain=found,
            )
