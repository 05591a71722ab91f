"""The watermark pool, as many programs have it: a thread when a job waits, none when idle, at most 64.

A rival of the sizing laws, written with the public protocol. Java's `ThreadPoolExecutor` and MariaDB's pool
are of this kind.
"""

from __future__ import annotations

import hybridrt

__all__ = ["HIGHEST", "Watermark"]

HIGHEST = 64
"""Threads at most, as in the document that the benchmark `disk` checks."""


class Watermark(hybridrt.Policy):
    """As many threads as there are calls, queued or running."""

    interval = 0.05

    def decide(
        self, limits: hybridrt.Limits, state: hybridrt.State, window: hybridrt.Window
    ) -> hybridrt.State:
        """Return a size for all calls there are; threads that idle leave by their timeout."""
        wanted = min(HIGHEST, window.running + window.queued)
        if wanted > state.workers:
            return hybridrt.State(workers=wanted, reason=hybridrt.Reason.DEMAND)
        if wanted < state.workers:
            return hybridrt.State(workers=wanted, reason=hybridrt.Reason.NO_DEMAND)
        return hybridrt.State(workers=wanted, reason=hybridrt.Reason.HOLD)
