"""An eye on a loop: the heartbeat, what it has measured, and what the shield asks of both.

The heartbeat beats on the loop. The governor's thread reads the delays and may ask for closer beats.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from hybridrt.measure.heartbeat import Heartbeat
from hybridrt.measure.threads import ThreadProbe
from hybridrt.observe.delay_shares import LATE
from hybridrt.observe.loop_delay import DelayWindow
from hybridrt.pool.computed import Computed
from hybridrt.pool.state import Pool
from hybridrt.values import LoopDelay

__all__ = ["Listener", "LoopWatch", "this_run"]

RECENT = 1.5
"""Seconds of beats that the shield goes by. Not measured."""


class Listener(Protocol):
    """Who else wants to be called on the loop now and then."""

    def beat(self, now: float, late: float) -> None:
        """Take a beat that came `late` seconds after its time."""
        ...


class LoopWatch:
    """Measures the delay of one loop.

    Args:
        loop: The loop, whose thread this is.
        pool: Beats are frequent while it has calls, or calls compute in the interpreter.
        target: Seconds of delay that the loop may suffer.
        shield: Whether the switch interval may be governed meanwhile.
        listener: Hears each beat, too.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Pool,
        *,
        target: float,
        shield: bool,
        listener: Listener | None = None,
    ) -> None:
        self.target = target
        self.shield = shield
        self._listener = listener
        self._loop = loop
        self._pool = pool
        self._delays = DelayWindow()
        self._computed = Computed(pool)
        self._recent = DelayWindow(window=RECENT, size=256)
        self.native_id = threading.get_native_id()
        self._thread = ThreadProbe()
        self._heartbeat = Heartbeat(loop, self._record, self._is_busy)
        self._run: object = None
        """What is the same for all of one run of the loop, and another object in the next."""

    def start(self) -> None:
        """Begin to measure."""
        self._run = this_run()
        self._heartbeat.start()
        self._pool.budget.shield.join(self)

    def stop(self) -> None:
        """Measure no more."""
        self._pool.budget.shield.leave(self)
        self._heartbeat.stop()
        self._thread.close()

    def is_over(self) -> bool:
        """Return True if the loop was closed, perhaps without its runtime."""
        return self._loop.is_closed()

    def summary(self) -> LoopDelay | None:
        """Return the delay over the last minute, a stall that lasts included; from any thread.

        None without a beat in it.
        """
        now = time.perf_counter()
        return self._delays.summary(now, self._overdue(now))

    def delay(self, now: float) -> float:
        """Return the 99th percentile of the recent delay, a stall that lasts included; from any thread."""
        return self._recent.p99(now, self._overdue(now))

    def quicken(self) -> None:
        """Beat fast from now on; from any thread.

        A loop at rest is measured twice a second, and would not notice a stall in between.
        """
        self._call_soon(self._quicken)

    def call_soon(self, callback: Callable[[], None]) -> bool:
        """Have a callback run in the loop's next iteration; from any thread.

        Returns:
            False if the loop does not run, so that it might take for ever.
        """
        return self._loop.is_running() and self._call_soon(callback)

    def runs_here(self) -> bool:
        """Return True if the loop runs in the calling thread."""
        return asyncio._get_running_loop() is self._loop

    def cpu_ns(self) -> int | None:
        """Return the CPU time of the loop's thread, or None where that cannot be read; from any thread."""
        return self._thread.cpu_ns()

    def _call_soon(self, callback: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed meanwhile
            return False
        return True

    def _overdue(self, now: float) -> float:
        if not self._loop.is_running() or (self.runs_here() and this_run() is not self._run):
            return 0.0  # the loop stood still because it did not run
        return self._heartbeat.overdue(now)

    def _quicken(self) -> None:
        self._heartbeat.quicken()

    def _record(self, at: float, late: float, period: float) -> None:
        before, self._run = self._run, this_run()
        if self._run is not before:  # the loop stood still in between because it did not run
            self._computed.note(at)
            return
        self._delays.record(at, late, period)
        self._recent.record(at, late, period)
        if late >= LATE:
            self._pool.delay_shares.record(at, late, self._computed.since(at))
        else:
            self._computed.note(at)
        if self._listener is not None:
            self._listener.beat(at, late)

    def _is_busy(self) -> bool:
        return self._pool.is_active() or not self._pool.budget.shield.armed


def this_run() -> object:
    """Return an object that the running loop has made for this run alone.

    A loop may run, stand still for any time, and run again, with its timers. It sets hooks for asynchronous
    generators whenever it begins: methods bound anew, and so other objects while the old are kept.
    """
    return sys.get_asyncgen_hooks().firstiter
