"""How often a full garbage collection looks at all objects: the law of the permanent generation."""

from __future__ import annotations

__all__ = ["FIRST_NS", "is_all_due"]

INVERSE_SHARE = 500
"""One over the share of the time that collections of all objects may take. They stop the loop, so together
they stay far below what its 99th percentile shows; and no garbage waits for ever. Not tuned."""
FIRST_NS = 100_000_000
"""What the first such collection is taken to last: 25 to 140 ms with one framework imported."""


def is_all_due(since_ns: int, took_ns: int) -> bool:
    """Return True if the next full collection is to look at all objects.

    Args:
        since_ns: Nanoseconds since the last that did.
        took_ns: How long that one took.
    """
    return since_ns >= INVERSE_SHARE * took_ns
