"""What it costs to have a call done elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RoundTrip"]


@dataclass(slots=True)
class RoundTrip:
    """What one call to an isolate cost.

    Attributes:
        wall_ns: From packing the arguments to having the result.
        host_cpu_ns: CPU time that took in this interpreter.
        child_wall_ns: What the function itself took over there.
        child_cpu_ns: CPU time of it.
        cold: The isolate was started for this call, so the times have the start in them.
    """

    wall_ns: int
    host_cpu_ns: int
    child_wall_ns: int
    child_cpu_ns: int
    cold: bool
