"""Calls that run on the loop: how much of its turn they may take, and who waits for the next one.

Everything here happens on the loop's own thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator

from hybridrt.measure.gil import blocks

__all__ = ["HANDLING_NS", "MARK_NS", "NOTICE_NS", "TURN_NS", "Turn"]

TURN_NS = 500_000
"""What calls inline may take of one turn of the loop in sum: a quarter of the default `loop_delay_target`,
because a request takes the loop two or three turns."""
NOTICE_NS = 100_000
"""From which sum on the end of the turn is waited for. A call of the loop for each turn would cost as much
as a short call does; what was spent in earlier turns counts until then, so the sum is never too low."""
HANDLING_NS = 1_700
"""What a call takes of the turn beside itself: measuring its input, a copy of the context, booking; see
`python -m benchmarks inline`."""
MARK_NS = 100_000
"""How old the last look at the thread may be at the start of a call: the loop may have slept since. In a turn
that is known to last it may be as old as `TURN_NS`. A look costs a microsecond or two, so calls in a row go
without; what one computed is known to this much, which decides no more than whether it was an overrun."""
_NEVER = 1 << 62


class _NextTurn:
    """Awaited until the next turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_next_turn = _NextTurn()


class Turn:
    """One turn of a loop after the other.

    Attributes:
        spent_ns: What calls inline have taken, of this turn and at most a little of earlier ones, and the
            room of those that go on now.
        marked_ns: When the thread's CPU clock was last read,
        marked_cpu_ns: what it said,
        mark_until_ns: and until when that will do; 0: it will not.
        notice_ns: From which `spent_ns` on `notice` is to be called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.spent_ns = self.marked_ns = self.marked_cpu_ns = self.mark_until_ns = 0
        self._marked_blocks: int | None = None
        self.notice_ns = NOTICE_NS
        self._booked_ns = 0
        """Room of the next turn that is taken."""
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def notice(self) -> None:
        """Hear of the end of the turn: much of it is spent."""
        self.notice_ns = _NEVER
        if self.mark_until_ns:
            self.mark_until_ns = self.marked_ns + TURN_NS
        self._loop.call_soon(self._begin)

    def mark(self, wall_ns: int, cpu_ns: int) -> None:
        """Note the clocks before a call, and how often the thread has waited for anything."""
        self.marked_ns, self.marked_cpu_ns, self._marked_blocks = wall_ns, cpu_ns, blocks()
        self.mark_until_ns = wall_ns + (TURN_NS if self.notice_ns == _NEVER else MARK_NS)

    def waits(self) -> int | None:
        """Return how often the thread has waited since, for the GIL or anything; None where the platform does
        not count.
        """
        count = blocks()
        return None if count is None or self._marked_blocks is None else count - self._marked_blocks

    def wait(self, expected_ns: int) -> Awaitable[None]:
        """Take room for a call of this length, and return what to await for it, in order."""
        if not self._waiting and self._booked_ns + expected_ns <= TURN_NS:
            self._booked_ns += expected_ns
            return _next_turn  # for less than a future costs
        future = self._loop.create_future()
        self._waiting.append((future, expected_ns))
        return future

    def _begin(self) -> None:
        """A turn begins: let as many of the queue run in the next as that has room for."""
        running, granted = self._booked_ns, 0
        while self._waiting and granted < TURN_NS:
            future, expected_ns = self._waiting.popleft()
            if not future.done():  # else its task was cancelled
                granted += expected_ns
                future.set_result(None)
        self._booked_ns = granted
        self.spent_ns = running + granted  # newcomers must not overtake the queue
        self.notice_ns = NOTICE_NS
        if self.spent_ns:
            self.notice()
        else:
            self.mark_until_ns = 0  # the loop may sleep before the next call
