"""Where calls run and why, as frozen values: what `statistics()` and `explain` say of a placement.

Times are float seconds. Costs are seconds per call with eight callers at once; see `control.placement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "Explanation", "Placement", "PlacementReason", "PlacementStatistics", "SizePlacement", "number_text",
    "time_text",
]  # fmt: skip

_WORTH_TELLING = 0.01
"""Share of the loop's delay below which `str(explanation)` does not mention it."""
Placement = Literal["inline", "thread", "isolate"]


class PlacementReason(StrEnum):
    """Why a call runs where it does."""

    FORCED = "forced"
    """`where` names the place."""
    NOT_PURE = "not_pure"
    """It is not declared `pure`, so it keeps the semantics of a thread."""
    LEARNING = "learning"
    """Too few calls of this size have been measured in a worker."""
    SHORT = "short"
    """It is over before a worker would have it."""
    OVERRUN = "overrun"
    """It ran on the loop and took longer than allowed: the next calls go to a worker."""
    RELEASES_GIL = "releases_gil"
    """Several at once compute in threads, so carrying it elsewhere gains nothing."""
    WAITS = "waits"
    """It waits for three tenths of its time or more, which any number of threads can do at once."""
    HOLDS_GIL = "holds_gil"
    """It keeps the GIL until it returns, and carrying it elsewhere costs less."""
    SHARES_GIL = "shares_gil"
    """One at a time computes in threads, and carrying it elsewhere costs less."""
    CARRYING = "carrying"
    """Carrying arguments and result elsewhere gains little or nothing."""
    NOT_PORTABLE = "not_portable"
    """The function, an argument or a result cannot be carried elsewhere."""
    TRIAL = "trial"
    """An isolate is tried to measure what carrying costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePlacement:
    """Where calls with inputs of one size run. Costs are seconds per call with eight callers at once.

    Attributes:
        size_max: The largest size in this class: the lengths of the arguments in sum; None for inputs
            whose size cannot be told.
        number_max: The largest number among the arguments. Several numbers make a class of their own by
            the powers of two of all of them.
        where: Where the next call runs.
        reason: Why.
        calls: Calls of this size.
        inline: What a call costs on the loop; None where it may not run there.
        thread: What it costs in a thread; None before it was measured.
        isolate: What it costs in an isolate; None before anything is known.
        tried: The cost in an isolate was measured; otherwise it is an estimate.
    """

    size_max: int | None
    number_max: int | None
    where: Placement
    reason: PlacementReason
    calls: int
    inline: float | None
    thread: float | None
    isolate: float | None
    tried: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStatistics:
    """Where the calls of one function ran and run; only of functions that are placed, not of all.

    Attributes:
        inline_calls: Calls on the loop. They are not among `FunctionStatistics.calls`, whose times are
            those of worker threads.
        inline_wall: Seconds that they took in sum.
        overruns: Those of them that took longer than they may: each has stalled its loop.
        longest_overrun: The longest of these stalls, in seconds.
        paused: Calls that go to a worker, whatever their size, before one runs on the loop again; the most of
            all options.
        isolate_calls: Calls that were carried to an isolate and came back.
        not_portable: Why it cannot be carried to an isolate; None where it can, as far as is known.
        sizes: By the size of the input, the most used first; other options have sizes of their own.
        held: First calls that wait until it is known where they run.
    """

    inline_calls: int
    inline_wall: float
    overruns: int
    longest_overrun: float
    paused: int
    isolate_calls: int
    not_portable: str | None
    sizes: tuple[SizePlacement, ...]
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a function runs, why, and what it would cost elsewhere; `str()` gives it in sentences.

    Costs are seconds per call with eight callers at once. A call that keeps the GIL for more than a
    millisecond counts for a quarter of that once more, because the loop stands still meanwhile.

    Attributes:
        name: Qualified name, `module:qualname`.
        pure: It was declared so.
        where: Where the next call of the most used size runs.
        reason: Why.
        gil: What it does with the GIL.
        gil_share: Share of its computing time in which it has the GIL; None before enough is known.
        calls: Finished calls, wherever they ran; of a generator function its steps.
        wall: Mean seconds of a call in a thread, or on the loop if it only ran there; None before the first.
            Under load a call in a thread waits for the GIL and for a core, too: this is not its work.
        cpu: CPU seconds of a call in a thread, by the last of them; None before the first there.
        wait: Seconds that one waits by itself, for I/O or a sleep; None where that cannot be told.
        native: CPU seconds that threads of native libraries compute for one, as BLAS's; None if none do.
        inline: What a call costs on the loop; None where it may not run there, or nothing is known.
        thread: What it costs in a thread.
        isolate: What it costs in an isolate.
        isolate_tried: That was measured; otherwise it is an estimate.
        overruns: Calls on the loop that took longer than they may.
        advice: What to do about it, if anything, in one sentence.
        sizes: By the size of the input, the most used first; empty for functions that are not placed.
        delay_share: Share of the lateness of the runtime's loop that its calls have caused lately, what is
            carried to isolates and back included; None if none was seen.
    """

    name: str
    pure: bool
    where: Placement
    reason: PlacementReason
    gil: str
    gil_share: float | None
    calls: int
    wall: float | None
    cpu: float | None
    wait: float | None
    native: float | None
    inline: float | None
    thread: float | None
    isolate: float | None
    isolate_tried: bool
    overruns: int
    advice: str
    sizes: tuple[SizePlacement, ...]
    delay_share: float | None = None

    def __str__(self) -> str:
        place = {"inline": "on the loop", "thread": "in a thread", "isolate": "in an isolate"}[self.where]
        lines = [f"{self.name} runs {place} ({self.reason}). {self.advice}"]
        if self.cpu is not None:
            wait = self.wait or 0.0
            waits = f" and waits for {time_text(wait)}" if wait >= 1e-6 else ""
            native = f"; native threads compute for {time_text(self.native)} more" if self.native else ""
            lines.append(f"A call computes for {time_text(self.cpu)}{waits}{native}.")
        costs = [
            f"{name} {time_text(cost)}"
            for name, cost in (("inline", self.inline), ("thread", self.thread), ("isolate", self.isolate))
            if cost is not None
        ]
        if costs:
            guess = "" if self.isolate is None or self.isolate_tried else " (estimated)"
            lines.append(f"A call costs, with eight callers at once: {', '.join(costs)}{guess}.")
        if self.delay_share is not None and self.delay_share >= _WORTH_TELLING:
            lines.append(f"It causes {100 * self.delay_share:.0f} % of the loop's delay.")
        if self.overruns:
            lines.append(
                f"{self.overruns} of its calls stalled the loop by taking longer than they may there."
            )
        return "\n".join(lines)


def time_text(seconds: float | None) -> str:
    """Return a time with two or three digits and its unit, or `-`."""
    if seconds is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1.0 or unit == "us":
            break
    return f"{number_text(seconds * factor)} {unit}"


def number_text(number: float) -> str:
    """Return a number with at least two digits."""
    return f"{number:,.{2 if number < 1 else 1 if number < 10 else 0}f}"
