"""Grandchild: calls in worker processes that are killed at random, and what became of each call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from benchmarks.children.functions import spin, spin_at
from benchmarks.children.protocol import run_on, serve

__all__ = ["Reaper", "measure"]

IN_FLIGHT = 32
LOOPS = 5_000
"""Work of a call: a quarter of a millisecond or so."""
_PATIENCE = 20.0
"""Seconds that threads have to end in; the governor's rests for five of them before it leaves."""
AFTERWARDS = 100
"""Calls that must all succeed when the killing is over."""


def measure(*, calls: int, kill_share: float, seed: int) -> Mapping[str, Any]:
    """Return how many calls ended how, and what is left of the runtime's threads.

    Args:
        calls: Calls in all.
        kill_share: Kills by calls: after so many of the results the worker that gave it is killed.
        seed: Of the chance that picks them.
    """
    found = run_on("asyncio", _storm(calls, kill_share, Random(seed)))
    return {**found, "threads": _threads_left()}


def _threads_left() -> list[str]:
    """Return the threads that do not end by themselves."""
    deadline = time.monotonic() + _PATIENCE
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in others if thread.is_alive()]


async def _storm(calls: int, kill_share: float, chance: Random) -> Mapping[str, Any]:
    import hybridrt

    call = hybridrt.offload(spin_at, pure=True, where="isolate", isolation="process")
    reaper = Reaper(chance, kill_share, os.kill, asyncio.get_running_loop().call_later)
    begun = time.perf_counter()
    async with hybridrt.Runtime():
        ends = await _make(call, calls, reaper)
        seconds = time.perf_counter() - begun
        reaper.stop()
        await _make(call, IN_FLIGHT, None)  # whatever the last kill has hit
        after = await _make(call, AFTERWARDS, None)
    return {
        "ends": dict(ends),
        "after": dict(after),
        "kills": reaper.kills,
        "workers": len(reaper.seen),
        "seconds": seconds,
    }


async def _make(
    call: Callable[[int], Awaitable[tuple[int, int]]], calls: int, reaper: Reaper | None
) -> Counter[str]:
    """Make the calls, some at once; return how many ended how."""
    ends: Counter[str] = Counter()
    turns, right = iter(range(calls)), spin(LOOPS)

    async def stand() -> None:
        for _ in turns:
            try:
                result, worker = await call(LOOPS)
            except Exception as error:
                ends[type(error).__name__] += 1
                continue
            ends["returned" if result == right else "wrong"] += 1
            if reaper is not None:
                reaper.saw(worker)

    await asyncio.gather(*(stand() for _ in range(IN_FLIGHT)))
    return ends


class Reaper:
    """Kills workers that have just given a result, a moment later.

    Args:
        chance: What picks them.
        share: How many of the results cost a worker its life.
        kill: As `os.kill`.
        later: As `loop.call_later`.

    Attributes:
        seen: Every worker that gave a result.
        kills: How many were killed.
    """

    def __init__(
        self, chance: Random, share: float, kill: Callable[[int, int], None], later: Callable[..., object]
    ) -> None:
        self._chance = chance
        self._share = share
        self._kill = kill
        self._later = later
        self._condemned: set[int] = set()
        self._stopped = False
        self.seen: set[int] = set()
        self.kills = 0

    def saw(self, worker: int) -> None:
        """Take in that a worker gave a result; by chance it dies within two milliseconds, but once only."""
        self.seen.add(worker)
        if worker not in self._condemned and self._chance.random() < self._share:
            self._condemned.add(worker)
            self._later(0.002 * self._chance.random(), self._strike, worker)

    def stop(self) -> None:
        """Kill no more."""
        self._stopped = True

    def _strike(self, worker: int) -> None:
        if not self._stopped:
            self._kill(worker, signal.SIGKILL)
            self.kills += 1


if __name__ == "__main__":
    serve(measure)
