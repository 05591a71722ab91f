"""Running counts of one pool; the shared lock protects them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Sums since the pool was made; times in nanoseconds of finished calls."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    rejected: int = 0
    abandoned: int = 0
    overdrafts: int = 0
    workers_lost: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    lane_calls: int = 0
    """Finished calls that had started in the waiting lane."""
    lane_wall_ns: int = 0
    lane_cpu_ns: int = 0
    asked_wall_ns: int = 0
    """Wall time of those of them that were asked for their waits,"""
    asked_blocked_ns: int = 0
    """and how long they were blocked for certain."""
