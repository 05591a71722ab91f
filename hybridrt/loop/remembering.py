"""Where the calls of a function run, as it is kept from one run to the next."""

from __future__ import annotations

from typing import get_args

from hybridrt.control.placement import AGAIN, Choice, Prices
from hybridrt.observe.placement import Figures
from hybridrt.placements import Placement, PlacementReason
from hybridrt.remembered import Record

__all__ = ["SPOTS_MAX", "spot_record", "standing_of"]

SPOTS_MAX = 32
"""Sizes of a function that are kept, the most used ones."""
_PASSING = (PlacementReason.LEARNING, PlacementReason.TRIAL, PlacementReason.FORCED)


def spot_record(key: int, figures: Figures, choice: Choice) -> Record | None:
    """Return what is kept of the calls of one size; None if it is not known where they run."""
    if choice.reason in _PASSING:
        return None
    prices = choice.prices
    return {
        "key": key,
        "where": choice.where,
        "reason": choice.reason,
        "prices": [prices.inline, prices.thread, prices.isolate],
        **figures.to_record(),
    }


def standing_of(record: Record, calls: int) -> Choice:
    """Return where calls of a size run, by its record; the other place is tried again as after a choice.

    Raises:
        KeyError, TypeError, ValueError: It is no record of a size.
    """
    where, reason = record["where"], PlacementReason(record["reason"])
    if where not in get_args(Placement) or reason in _PASSING:
        raise ValueError(f"expected a place that was chosen, got {where!r} by {reason}")
    inline, thread, isolate = (None if price is None else float(price) for price in record["prices"])
    prices = Prices(inline=inline, thread=thread, isolate=isolate)
    return Choice(where=where, reason=reason, prices=prices, again_at=calls + AGAIN)
