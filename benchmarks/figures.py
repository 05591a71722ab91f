"""Pure arithmetic of the benchmarks: spreads, paired comparisons, tables. Knows no processes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median

__all__ = ["Spread", "Target", "differences", "percentile", "ratios", "spread", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Repetitions of one figure; `sure_low` to `sure_high` holds the median with 95 % confidence."""

    median: float
    low: float
    high: float
    sure_low: float
    sure_high: float
    count: int

    def text(self, digits: int = 1) -> str:
        """Return `median (low-high)` for a table."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    def to_dict(self) -> dict[str, float]:
        """Return the figures by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A promise about a figure: its median is at most, or `at_least`, `limit`."""

    claim: str
    figure: Spread
    limit: float
    at_least: bool = False

    @property
    def held(self) -> bool:
        if self.at_least:
            return self.figure.median >= self.limit
        return self.figure.median <= self.limit

    def to_dict(self) -> dict[str, object]:
        """Return claim, limit, verdict and figure, for JSON."""
        return {**asdict(self), "held": self.held}

    def row(self, digits: int = 2) -> tuple[str, str, str, str]:
        """Return claim, limit, measured and verdict for a table."""
        verdict = "held" if self.held else "missed"
        sign = ">=" if self.at_least else "<="
        return self.claim, f"{sign} {self.limit:.{digits}f}", self.figure.text(digits), verdict


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that more than `share` of all do not exceed, or the greatest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> Spread:
    """Summarise repetitions of one figure.

    The interval of the median comes from order statistics, so it assumes no distribution. With
    fewer than six values it is the whole range, which is then all that is known.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("spread needs at least one value, got none")
    skip = _sure_skip(len(ordered))
    return Spread(
        median=median(ordered),
        low=ordered[0],
        high=ordered[-1],
        sure_low=ordered[skip],
        sure_high=ordered[-1 - skip],
        count=len(ordered),
    )


def _sure_skip(count: int, doubt: float = 0.05) -> int:
    """Return how many values may be left off at either end with the median still inside."""
    skip, tail = 0, 1 / 2**count
    while 2 * (tail := tail + comb(count, skip + 1) / 2**count) <= doubt:
        skip += 1
    return min(skip, (count - 1) // 2)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarise `ours / theirs`, repetition by repetition, so that slow drift cancels."""
    return _paired(operator.truediv, ours, theirs)


def differences(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarise `ours - theirs`, repetition by repetition."""
    return _paired(operator.sub, ours, theirs)


def _paired(
    combine: Callable[[float, float], float], ours: Sequence[float], theirs: Sequence[float]
) -> Spread:
    if len(ours) != len(theirs):
        raise ValueError(f"pairs need as many values on both sides, got {len(ours)} and {len(theirs)}")
    return spread([combine(a, b) for a, b in zip(ours, theirs, strict=True)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that reads well as plain text; all but the first column align right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = (_line(cells, widths) for cells in (head, rule, *rows))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if i else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *others]) + " |"
