"""The kinds of permits, by names that a debugger shows."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Permit"]


class Permit(IntEnum):
    """What a call holds while it computes; `permits` tells how many there are of each."""

    NONE = 0
    SHORT = 1
    LONG = 2
    FREE = 3
