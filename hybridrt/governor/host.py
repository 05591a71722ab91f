"""Brings up to date what the host gives: cores, memory, time without a core.

All of it is read from files, and Python gives the GIL away several times for each. Where many threads want
it, that takes long: 0.2 to 0.6 s beside eight that compute. So a thread of its own reads, and the governor
goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from hybridrt.governor.kept import KeptReader
from hybridrt.pool.state import SharedBudget
from hybridrt.pool.thread import make_thread

__all__ = ["HostReader"]

_DUE_NS = 2_000_000_000
"""Time between two looks, at least; each costs 0.6 ms of CPU with its thread."""
_LATE_NS = 10_000_000_000
"""The same while the GIL is wanted: each time it is given away, another thread waits for it. Not measured."""


def _in_a_thread(read: Callable[[], None]) -> threading.Thread:
    thread = make_thread(read, "hybridrt-host")
    thread.start()
    return thread


class HostReader:
    """Reads for a budget, now and then.

    Args:
        budget: What is brought up to date, without its lock.
        run: Starts what it is given in a thread, and returns that; tests read when they want to.
    """

    def __init__(
        self,
        budget: SharedBudget,
        run: Callable[[Callable[[], None]], threading.Thread | None] = _in_a_thread,
    ) -> None:
        self._budget, self._run = budget, run
        self._kept = KeptReader()
        self._due_ns = 0
        self._reads = False
        self._thread: threading.Thread | None = None
        self.cores = budget.cpu
        """Those that the process may use, as of the last look."""

    def look_soon(self) -> None:
        """Begin to read at the next step."""
        self._due_ns = -_LATE_NS

    def step(self, now_ns: int, *, prompt: bool) -> None:
        """Begin to read if it is due and the last reading has ended.

        Args:
            now_ns: The time.
            prompt: Whether the governor found the GIL free when it woke.
        """
        late_ns = now_ns - self._due_ns
        if self._reads or late_ns < (0 if prompt else _LATE_NS - _DUE_NS):
            return
        self._due_ns, self._reads = now_ns + _DUE_NS, True
        try:
            self._thread = self._run(self._read)
        except (RuntimeError, MemoryError):  # there is no thread for it now; the next look is soon enough
            self._reads = False

    def stop(self, timeout: float | None = None) -> None:
        """Wait for the reading under way, for so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _read(self) -> None:
        budget = self._budget
        try:
            with suppress(MemoryError):
                budget.kept = self._kept.read(budget.clock.wall_ns(), budget.cores)
                self.cores = budget.look_at_host()
        finally:
            self._reads = False
