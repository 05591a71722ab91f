"""What native threads compute from one step of the governor to the next; see `measure.native`."""

from __future__ import annotations

from hybridrt.measure.native import NativeThreads
from hybridrt.observe.native import Background

__all__ = ["NativeWork"]

_FIND_NS = 100_000_000
"""Time between two looks for such threads, at least. Not measured."""


class NativeWork:
    """Reads their clocks once a step.

    Args:
        threads: Those of the process; others in tests.
    """

    def __init__(self, threads: NativeThreads | None = None) -> None:
        self._threads = NativeThreads() if threads is None else threads
        self._background = Background()
        self._find_at_ns = self._at_ns = 0

    def read(self, now_ns: int, *, prompt: bool) -> tuple[int, int]:
        """Return the CPU time since the last step, and the length of that.

        Threads are looked for only while the GIL is free, because listing them gives it away.
        """
        if prompt and now_ns >= self._find_at_ns:
            self._find_at_ns = now_ns + _FIND_NS
            self._threads.find()
        interval_ns, self._at_ns = now_ns - self._at_ns, now_ns
        return self._threads.spent_ns(), interval_ns

    def beyond_background(self, native_ns: int, interval_ns: int) -> int:
        """Return what of that is more than they compute while no call does."""
        return self._background.beyond(native_ns, interval_ns)

    def rested(self, native_ns: int, interval_ns: int, *, active: bool) -> None:
        """Take in a step in which no call had a permit; `active`: some ran without one."""
        saw = self._background.saw_at_most if active else self._background.saw
        saw(native_ns, interval_ns)
