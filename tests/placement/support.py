"""What the placement tests share: time that moves by what a function says it costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hybridrt import Offloaded, PlacementStatistics, explain, offload
from hybridrt.loop.binding import LoopBinding, current_binding
from hybridrt.testing import ManualClock

__all__ = ["MS", "US", "Work", "learn", "placement", "pure", "stop_time"]

US, MS = 1e-6, 1e-3


class Work:
    """A function that takes as long as it is told, and notes the thread of each call.

    Args:
        clock: Moved by each call.
        cpu: Seconds a call computes.
        wait: Seconds it waits beside that.
    """

    def __init__(self, clock: ManualClock, cpu: float = 5 * US, wait: float = 0.0) -> None:
        self.clock, self.cpu, self.wait = clock, cpu, wait
        self.threads: list[int] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.append(threading.get_ident())
        self.clock.advance(self.cpu + self.wait, cpu=self.cpu)
        return args[0] if args else None

    @property
    def was_here(self) -> bool:
        """Return True if the last call ran in the calling thread: on its loop."""
        return self.threads[-1] == threading.get_ident()


def stop_time() -> ManualClock:
    """Let placement on the running loop go by a clock that only calls move."""
    clock, loop_binding = ManualClock(), current_binding()
    loop_binding.wall_ns, loop_binding.cpu_ns = clock.wall_ns, clock.cpu_ns
    return clock


async def learn(offloaded: Offloaded[..., Any], *args: Any, calls: int = 3, **kwargs: Any) -> None:
    """Make the calls after which a size is known."""
    for _ in range(calls):
        await offloaded(*args, **kwargs)


def placement(offloaded: Offloaded[..., Any]) -> PlacementStatistics:
    """Return what the statistics of the running loop's pool say of a function."""
    name = explain(offloaded).name
    loop_binding: LoopBinding = current_binding()
    found = [row.placement for row in loop_binding.executor.statistics().functions if row.name == name]
    assert len(found) == 1, found
    assert found[0] is not None
    return found[0]


def pure(fn: Callable[..., Any], **options: Any) -> Offloaded[..., Any]:
    """Return the function, offloaded and declared pure."""
    return offload(pure=True, **options)(fn)
