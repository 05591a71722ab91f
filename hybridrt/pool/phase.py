"""What is known of a call that waits and computes by turns; one record per thread, kept from call to call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Phase"]


@dataclass(slots=True)
class Phase:
    """The computing phase that a worker's call is in; times in nanoseconds.

    Attributes:
        begun_ns: When it got its permit; a call that started later has not come back from a wait yet.
        call_ns: When the call started that has said last that it waits.
        cpu_ns: The thread's CPU time then.
        left: The call gave a permit back to wait, and asks for one when it comes back.
        within: It gives a permit back or asks for one. What the thread waits for meanwhile, as for the start
            of another worker, is no wait of the call.
        asking: It stands in the line for a permit; see `permits.Asking`.
        blocks: How often the thread was blocked in that line, for a call that is asked for its waits.
        last: The site that the call has come back from last, until it waits again.
        last_cpu_ns: The thread's CPU time then.
        site: Where the call waits now, if it said so by itself.
        site_wall_ns: When it came there.
        site_cpu_ns: The thread's CPU time then.
    """

    begun_ns: int = -1
    call_ns: int = -1
    cpu_ns: int = 0
    left: bool = False
    within: bool = False
    asking: Any = None
    blocks: int = 0
    last: Any = None
    last_cpu_ns: int = 0
    site: Any = None
    site_wall_ns: int = 0
    site_cpu_ns: int = 0

    def ended(self, cpu_ns: int) -> None:
        """Tell the site that the call came back from what came after, until this CPU time of the thread."""
        last, self.last = self.last, None
        if last is not None:
            last.followed_by(cpu_ns - self.last_cpu_ns)
