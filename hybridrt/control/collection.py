"""How often a full garbage collection looks at all objects: the law of the permanent generation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Whole", "is_whole_due"]

GROWTH = 1.25
"""Factor of the memory blocks from which all objects are looked at: CPython collects its oldest generation
after a quarter as many have come. So what was frozen alive and is garbage by now stays below a quarter."""
INVERSE_SHARE = 500
"""One over the share of the time that collections of all objects may take where nothing grows. They stop the
loop, so they stay far below what its 99th percentile shows. Not tuned."""
LONGEST_NS = 10_000_000_000
"""Time that one may have taken, in nanoseconds: more than that, and the process stood still meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A collection that looked at all objects.

    Attributes:
        ended_ns: When, in nanoseconds.
        took_ns: For how long; before there was one, what a usual one takes.
        blocks: Blocks of memory that Python's objects had after it.
    """

    ended_ns: int
    took_ns: int = 100_000_000
    blocks: int


def is_whole_due(last: Whole, now_ns: int, blocks: int) -> bool:
    """Return True if the next full collection is to look at all objects.

    Args:
        last: The last that did.
        now_ns: The time in nanoseconds.
        blocks: Blocks of memory that Python's objects have now.
    """
    took_ns = min(last.took_ns, LONGEST_NS)
    return blocks > GROWTH * last.blocks or now_ns - last.ended_ns >= INVERSE_SHARE * took_ns
