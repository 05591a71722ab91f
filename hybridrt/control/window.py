"""What a sizing policy is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hybridrt.values import Reason

__all__ = ["Limits", "Policy", "State", "Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a size.

    Attributes:
        lowest: The least number of workers, at least 1.
        highest: The most.
        capacity: CPU seconds per second that calls can get: 1 under a GIL, else the usable cores.
    """

    lowest: int
    highest: int
    capacity: float = 1.0

    def clamp(self, workers: int) -> int:
        """Return the nearest size within the bounds."""
        return max(self.lowest, min(workers, self.highest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened in one control interval; later signals join as further fields, None if absent.

    Attributes:
        seconds: Length of the interval.
        queued: Calls of the governed lane queued at its end.
        running: Calls of the governed lane running at its end.
        completed: Calls that finished in it.
        wall: Their wall time, in seconds.
        cpu: Their CPU time, in seconds.
        lane_cpu: CPU seconds per second that the governed lane used, running calls included.
    """

    seconds: float
    queued: int
    running: int
    completed: int
    wall: float
    cpu: float
    lane_cpu: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a policy remembers between windows.

    Attributes:
        workers: The size decided.
        reason: Why.
        beta: The smoothed blocking ratio.
        streak: Windows in a row that asked for growth (`paper`) or for nothing (`demand`).
    """

    workers: int
    reason: Reason = Reason.START
    beta: float | None = None
    streak: int = 0


class Policy(Protocol):
    """A sizing policy: a pure function from a window to the next state."""

    @property
    def interval(self) -> float:
        """Seconds between two decisions."""
        ...

    def start(self, limits: Limits) -> State:
        """Return the state before the first window."""
        ...

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return the next state; its reason is the whole explanation."""
        ...

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Tell whether windows without calls would change nothing any more."""
        ...
