"""A stint: what is taken from the queue at once, and what it holds until it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridrt.pool.call import Call
from hybridrt.pool.permits import NONE

if TYPE_CHECKING:
    from hybridrt.pool.worker import Worker

__all__ = ["ELSEWHERE", "ELSEWHERE_BEARER", "NOBODY", "Stint"]

NOBODY: list[Worker] = []
"""No worker to start; never changed."""
ELSEWHERE, ELSEWHERE_BEARER = "in another interpreter", "its isolate"
"""`position` and `bearer` of a call in an isolate."""


class Stint:
    """What the pool knows of a worker: the call that it runs, and what that call holds.

    Attributes:
        serving: A stint is open; with `permit`, `waits` and `resolves` what it holds. Changed with
            the lock held only.
        deserted: Nobody waits for its call any more.
        call: The call that runs now; the innermost one where calls help each other.
    """

    __slots__ = ("call", "deserted", "permit", "resolves", "serving", "waits")

    def __init__(self) -> None:
        self.serving = self.waits = self.resolves = self.deserted = False
        self.permit = NONE
        self.call: Call | None = None

    @property
    def name(self) -> str:
        """The name of what runs the call, in the statistics."""
        raise NotImplementedError

    @property
    def bearer(self) -> str:
        """The same in a sentence."""
        raise NotImplementedError

    def calls(self) -> tuple[Call, ...]:
        """Return the call that runs now, and those that cannot be told from it."""
        call = self.call  # read once: a worker begins and ends a call without the lock
        return () if call is None else (call,)

    def runs(self, call: Call) -> bool:
        """Tell whether it is this call's stint."""
        return self.call is call

    def position(self) -> str:
        """Say where the call stands."""
        raise NotImplementedError

    def leave_behind(self) -> None:
        """Let the interpreter exit without waiting for the call."""
        raise NotImplementedError

    def cpu_so_far(self) -> int | None:
        """Return the CPU nanoseconds of the call that runs; None where that cannot be read."""
        raise NotImplementedError
