"""What a trial found, and how it reads as a table. Plain data; measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hybridrt.placements import number_text, time_text
from hybridrt.values import LoopDelay, Where

__all__ = ["CROWD", "Trial", "TrialRow", "count_text"]

CROWD = 8
"""Calls at once in the second half of a trial."""
_HEAD = (
    "", "time per call", "first call", "delay p50", "p99", "worst", "stall/call", "GIL",
    f"{CROWD} at once: calls/s", "delay p99",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One placement of the function. Times are in seconds, shares lie in [0, 1].

    Attributes:
        where: The placement.
        problem: Why the function does not run there; then all the rest is None.
        calls: Calls made one at a time.
        time: The median call, as its caller sees it.
        first: The first call: starting a worker and importing the function's module are in it.
        delay: The loop's delay meanwhile.
        stall: The longest the loop was late within a call, as a share of that call; the median over the
            calls. None where calls are shorter than the beat of 1 ms that the loop is watched with.
        gil_share: Share of the calls' time in which another thread found this interpreter's GIL taken;
            None without a GIL, and where calls are too few or too short to tell.
        rate: Calls per second with eight at once.
        crowd_delay: The loop's delay then.
    """

    where: Where
    problem: str | None = None
    calls: int | None = None
    time: float | None = None
    first: float | None = None
    delay: LoopDelay | None = None
    stall: float | None = None
    gil_share: float | None = None
    rate: float | None = None
    crowd_delay: LoopDelay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What `trial` found. `str()` gives the table and the verdict.

    Attributes:
        function: Qualified name, `module:qualname`.
        cpu_share: CPU time of the process while the function ran inline, by the time it took; above 1 for
            a function with threads of its own.
        idle: Delay of the same loop when nothing runs.
        rows: The placements: inline, thread, isolate.
        verdict: One sentence: what the function does to the loop, and what to do about it.
    """

    function: str
    cpu_share: float
    idle: LoopDelay
    rows: tuple[TrialRow, ...]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Return the same as nested dicts, tuples and numbers, ready for `json.dumps`."""
        return asdict(self)

    def __str__(self) -> str:
        idle = ["idle loop", "", "", *_delay(self.idle), "", "", "", ""]
        problems = [f"{row.where}: {row.problem}" for row in self.rows if row.problem is not None]
        table = _table([_HEAD, idle, *map(_cells, self.rows)])
        return "\n".join([*table, *problems, "", self.verdict])


def _cells(row: TrialRow) -> list[str]:
    if row.problem is not None:
        return [row.where, *[""] * (len(_HEAD) - 1)]
    return [
        row.where,
        time_text(row.time),
        time_text(row.first),
        *_delay(row.delay),
        _share(row.stall),
        _share(row.gil_share),
        count_text(row.rate),
        time_text(None if row.crowd_delay is None else row.crowd_delay.p99),
    ]


def _delay(delay: LoopDelay | None) -> tuple[str, str, str]:
    if delay is None:
        return "-", "-", "-"
    return time_text(delay.p50), time_text(delay.p99), time_text(delay.max)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def count_text(count: float | None) -> str:
    """Return a number with at least two digits, or `-`."""
    return "-" if count is None else number_text(count)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_align(row, widths)).rstrip() for row in rows]


def _align(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
