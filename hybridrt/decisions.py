"""Decisions about the size of a pool, and their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Decision", "Reason"]


class Reason(StrEnum):
    """Why a pool has the size it has."""

    START = "start"
    """No window has been judged yet."""
    DEMAND = "demand"
    """Calls were queued and nothing forbade another thread."""
    STALL = "stall"
    """Calls were queued, all threads were blocked, and nothing completed."""
    BETA_VETO = "beta_veto"
    """Calls were queued, but the blocking ratio was at or below the threshold."""
    SATURATED = "saturated"
    """Calls were queued, but the GIL or the cores were already busy."""
    LOOP_DELAY = "loop_delay"
    """Calls were queued, but a loop was late, calls of the lane had the GIL most of the time, and there were
    as many of them as fill it."""
    HYSTERESIS = "hysteresis"
    """Growth was due, but not yet often enough in a row, or the last one was a moment ago."""
    MEMORY = "memory"
    """Calls were queued, but the memory budget was nearly used up."""
    PROBE = "probe"
    """More or fewer threads are tried; they stay if throughput rises with more, or holds with fewer."""
    KNEE = "knee"
    """Calls were queued, but more threads would only wait for each other: measured throughput stood still."""
    NO_DEMAND = "no_demand"
    """Nothing was queued."""
    AT_MAX = "at_max"
    """Growth was due at `max_workers`."""
    AT_MIN = "at_min"
    """Shrinking was due at `min_workers`."""
    HOLD = "hold"
    """The size fits what was seen."""
    SCALING = "scaling"
    """`throughput`: the threads moved more bytes than before, so there are twice as many now."""
    SETTLED = "settled"
    """`throughput`: more threads did not move more bytes, and nothing has changed since."""
    EXPLORING = "exploring"
    """`throughput`: one thread fewer, or one more, is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One sizing decision.

    Attributes:
        at: Seconds since the executor was made.
        workers: The size decided: waiting calls at once (`demand`) or threads (`paper`).
        previous: The size before.
        reason: Why.
        beta: The blocking ratio the policy worked with, or None before the first sample.
        queued: Calls queued at that moment, over all lanes.
        running: Calls running at that moment.
    """

    at: float
    workers: int
    previous: int
    reason: Reason
    beta: float | None
    queued: int
    running: int
