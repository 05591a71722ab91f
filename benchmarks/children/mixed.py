"""Child: a service whose requests wait first and compute then, each in a thread."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from benchmarks.children.echoing import Pace, pace
from benchmarks.children.pacer import figures
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.services import SERVICES, Service
from benchmarks.children.standing import end
from benchmarks.children.work import at_one_speed, timed_units, wait

__all__ = ["measure"]


def measure(
    *,
    way: str,
    size: int | None,
    loop: str,
    requests: int,
    pause: float,
    units: int,
    pacing: Mapping[str, float],
) -> Mapping[str, Any]:
    """Return what the echo clients saw, requests and seconds of work per second, times of the last requests.

    Args:
        way: A name in `SERVICES`.
        size: Threads, where they can be chosen.
        loop: `asyncio` or `uvloop`.
        requests: Requests in flight.
        pause: Seconds that each of them waits.
        units: Units of work that each of them does.
        pacing: Fields of `Pace`.
    """
    serving = _Serving(requests, pause, units)
    return run_on(loop, _measure(serving, way, size, Pace(**pacing)))  # type: ignore[arg-type]  # JSON


async def _measure(serving: _Serving, way: str, size: int | None, pacing: Pace) -> Mapping[str, Any]:
    async with SERVICES[way](size) as service:
        standing = [asyncio.create_task(serving.stand(service)) for _ in range(serving.requests)]
        try:
            paced = await pace(pacing, serving.counts)
            told = service.told()
        finally:
            await end(standing)
    return {**paced.clients, **paced.counted, "request": figures(serving.times), "told": told}


class _Serving:
    """The requests, and how many have been answered."""

    def __init__(self, requests: int, pause: float, units: int) -> None:
        self.requests = requests
        self.times: deque[float] = deque(maxlen=requests * 20)
        self._pause = pause
        self._units = units
        self._answered = 0
        self._taken: list[list[float]] = []
        self._work = 0.0

    async def stand(self, service: Service) -> None:
        while True:
            begun = time.perf_counter()
            await service.run(wait, self._pause)
            self._taken.append(await service.run(timed_units, self._units))
            self.times.append(time.perf_counter() - begun)
            self._answered += 1

    def counts(self) -> Mapping[str, float]:
        """Return the requests answered, and the seconds of work in them at the speed of the moment."""
        taken, self._taken = self._taken, []
        self._work += sum(map(at_one_speed, taken))
        return {"requests": self._answered, "work": self._work}


if __name__ == "__main__":
    serve(measure)
