"""What a pipe says of itself: frozen values. Times are float seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PipeStatistics", "SkippedItem", "StageStatistics", "bottleneck", "stage_row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedItem:
    """An item that a stage raised on, with `on_error="skip"`.

    Attributes:
        stage: Name of the stage.
        number: Which of the stage's items it was, from 0 on.
        item: What the stage was given.
        error: What it raised.
    """

    stage: str
    number: int
    item: Any
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatistics:
    """One stage of a pipe; the source and the consumer count as stages.

    Attributes:
        name: The function's name, "source" or "consumer".
        items_in: Items taken.
        items_out: Items handed on.
        failed: Items that it raised on.
        concurrency: Items, or hand-overs of several items, in work at once, at most so far.
        work: Seconds in the stage's function, summed over all that ran at once.
        waiting: Seconds without input, with room for some.
        blocked: Seconds in which the next stage had no room for its output.
        share: Part of the time so far in which it was neither, in [0, 1]: the bottleneck has the largest.
    """

    name: str
    items_in: int
    items_out: int
    failed: int
    concurrency: int
    work: float
    waiting: float
    blocked: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStatistics:
    """A pipe so far.

    Attributes:
        elapsed: Seconds since its first item was asked for, until its end.
        items_in: Items taken from the source.
        items_out: Items that the consumer got.
        skipped: Items that a stage raised on.
        stages: The source, the stages, the consumer, in this order.
        bottleneck: Name of the stage that the others wait for; None before anything has run.
    """

    elapsed: float
    items_in: int
    items_out: int
    skipped: int
    stages: tuple[StageStatistics, ...]
    bottleneck: str | None

    def __str__(self) -> str:
        """Return a table: a line for each stage, the bottleneck marked."""
        lines = [f"{'stage':24} {'in':>9} {'out':>9} {'work s':>9} {'waiting s':>9} {'blocked s':>9}"]
        for each in self.stages:
            mark = "  <- bottleneck" if each.name == self.bottleneck else ""
            lines.append(
                f"{each.name[:24]:24} {each.items_in:9} {each.items_out:9} {each.work:9.3f} "
                f"{each.waiting:9.3f} {each.blocked:9.3f}{mark}"
            )
        return "\n".join(lines)


def bottleneck(stages: tuple[StageStatistics, ...]) -> str | None:
    """Return the stage that lacked neither input nor room for its output for most of the time."""
    return max(stages, key=lambda stage: stage.share).name if any(stage.share for stage in stages) else None


def stage_row(
    name: str,
    elapsed: float,
    *,
    items: tuple[int, int],
    lasted: float,
    work: float,
    failed: int = 0,
    concurrency: int = 1,
    waiting: float = 0.0,
    blocked: float = 0.0,
) -> StageStatistics:
    """Return the statistics of a stage, its share of the time worked out.

    Args:
        name: The stage.
        elapsed: Seconds of the pipe so far.
        items: Items in and out.
        lasted: Seconds until its last result left; `elapsed` if it goes on.
        work: Seconds in its function.
        failed: Items that it raised on.
        concurrency: Pieces in work at once.
        waiting: Seconds without input.
        blocked: Seconds without room for its output.
    """
    busy = lasted - waiting - blocked
    return StageStatistics(
        name=name,
        items_in=items[0],
        items_out=items[1],
        failed=failed,
        concurrency=concurrency,
        work=max(0.0, work),
        waiting=waiting,
        blocked=blocked,
        share=min(1.0, max(0.0, busy / elapsed)) if elapsed > 0.0 else 0.0,
    )
