"""Which static sizes to try, and which of them is the best. Pure: sizes and figures in, sizes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["GRID", "Point", "best_size", "doubtful", "next_sizes"]

GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

_ALIKE = 0.02
_CLOSE = 0.05
_DOUBTFUL_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a static size does.

    Attributes:
        rate: Calls per second.
        p99: Of a call's time in a thread, seconds.
        loop: p99 of the loop's delay, seconds; None where it was not noted.
    """

    rate: float
    p99: float
    loop: float | None = None


def next_sizes(points: Mapping[int, Point], begin: Collection[int], grid: Sequence[int] = GRID) -> list[int]:
    """Return the sizes to measure next, or none when the best one's neighbours are known.

    Coarse, then fine: first `begin`, then the neighbours on the grid of the best so far.
    """
    if coarse := sorted(set(begin) - set(points)):
        return coarse
    best = max(points, key=lambda size: points[size].rate)
    lower = [size for size in grid if size < best][-1:]
    higher = [size for size in grid if size > best][:1]
    return [size for size in lower + higher if size not in points]


def doubtful(points: Mapping[int, Point]) -> list[int]:
    """Return the best sizes if they are too close to be told apart by one run; none if one stands out."""
    highest = max(point.rate for point in points.values())
    close = [size for size, point in points.items() if point.rate >= highest * (1 - _CLOSE)]
    ranked = sorted(close, key=lambda size: -points[size].rate)
    return ranked[:_DOUBTFUL_MOST] if len(ranked) > 1 else []


def best_size(points: Mapping[int, Point]) -> int:
    """Return the size with the highest throughput; of those within 2 % of it, that of the lowest p99."""
    highest = max(point.rate for point in points.values())
    alike = [size for size, point in points.items() if point.rate >= highest * (1 - _ALIKE)]
    return min(alike, key=lambda size: points[size].p99)
