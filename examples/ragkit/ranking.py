"""Merge ranked lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

__all__ = ["fuse"]

T = TypeVar("T", bound=Hashable)

_DAMPING = 60
"""From Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion" (SIGIR 2009)."""


def fuse(rankings: Iterable[Sequence[T]]) -> list[T]:
    """Return the items of several rankings as one, by reciprocal rank fusion, best first.

    Only ranks count, so that scores of different kinds need no common scale.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (_DAMPING + rank)
    return sorted(scores, key=lambda item: -scores[item])
