"""For how long a call had no core without the kernel's run-queue delay telling it.

In a virtual machine the host may give a core to others while a thread runs on it. The guest's kernel then
counts neither CPU time nor a delay for the thread. Where the kernel tells no run-queue delay at all, it does
not tell for how long the CPU quota of a control group has stopped a thread either. Both read as waiting.

Only shares of the whole machine and the whole process are known, so what follows for a call is a mean.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Kept", "stolen_share"]

_MOST = 0.9
"""Shares above this are not believed: a core that is hardly ever there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Shares of the last seconds.

    Attributes:
        stolen: Of the CPU time that threads of this machine asked for, what the host gave to others.
        throttled: Of the time that passed, what the quota stopped the process for; 0 where the run-queue
            delay of a thread has it.
    """

    stolen: float = 0.0
    throttled: float = 0.0

    def of(self, wall_ns: int, cpu_ns: int) -> int:
        """Return for how long a call had no core, at most for as long as it did not compute."""
        stolen, throttled = min(_MOST, self.stolen), min(_MOST, self.throttled)
        kept_ns = cpu_ns * stolen / (1.0 - stolen) + wall_ns * throttled
        return max(0, min(int(kept_ns), wall_ns - cpu_ns))


def stolen_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the stolen share between two readings of time in use and stolen time, in any unit."""
    used, stolen = (new - old for new, old in zip(after, before, strict=True))
    return stolen / (used + stolen) if used >= 0 and stolen > 0 else 0.0
