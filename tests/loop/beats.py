"""Beats for anyio's limiter whose time, and whose calls' CPU time, a test makes."""

from __future__ import annotations

from collections.abc import Iterable

from hybridrt import Runtime
from hybridrt.loop.anyio_limiter import AnyioLimiter

from .support import turns

__all__ = ["Beats"]


class Beats:
    """Beats of a heartbeat whose time is made by the test.

    Args:
        runtime: Its own heart stands still from now on.
        computing: CPU seconds per second that anyio's threads are said to use; None leaves their clocks.
    """

    def __init__(self, runtime: Runtime, computing: float | None = None) -> None:
        assert runtime._watch is not None
        assert runtime._limiter is not None
        runtime._watch.stop()
        self.limiter: AnyioLimiter = runtime._limiter
        self.now = 100.0
        if computing is not None:
            self.limiter._clocks = Clocks(self, computing)  # type: ignore[assignment]

    async def seconds(self, seconds: float, late: float = 0.0, period: float = 0.01) -> None:
        """Let beats fall, and let what each of them starts get going."""
        for _ in range(round(seconds / period)):
            self.now += period
            self.limiter.beat(self.now, late)
            await turns(3)


class Clocks:
    """Says that the threads used a share of the time that passes."""

    def __init__(self, beats: Beats, share: float) -> None:
        self._beats, self._share, self._last = beats, share, beats.now

    def restart(self, native_ids: Iterable[int]) -> None:
        self._last = self._beats.now

    def spent(self, native_ids: Iterable[int]) -> float:
        last, self._last = self._last, self._beats.now
        return self._share * (self._beats.now - last)
