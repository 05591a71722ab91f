"""Child: a service whose requests wait first and compute then, each in a thread."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from benchmarks.children.echoing import Pace, pace
from benchmarks.children.pacer import figures
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.services import SERVICES, Service
from benchmarks.children.work import TimedWork

__all__ = ["measure"]


def measure(
    *,
    way: str,
    size: int | None,
    loop: str,
    requests: int,
    wait: float,
    units: int,
    pacing: Mapping[str, float],
) -> Mapping[str, Any]:
    """Return what the echo clients saw, requests and seconds of work per second, times of the last requests.

    Args:
        way: A name in `SERVICES`.
        size: Threads, where they can be chosen.
        loop: `asyncio` or `uvloop`.
        requests: Requests in flight.
        wait: Seconds that each of them waits.
        units: Units of work that each of them does.
        pacing: Fields of `Pace`.
    """
    serving = _Serving(requests, wait, TimedWork(units))
    return run_on(loop, _measure(serving, way, size, Pace(**pacing)))  # type: ignore[arg-type]  # JSON


async def _measure(serving: _Serving, way: str, size: int | None, pacing: Pace) -> Mapping[str, Any]:
    async with SERVICES[way](size) as service:
        standing = [asyncio.create_task(serving.stand(service)) for _ in range(serving.requests)]
        try:
            paced = await pace(pacing, serving.counts)
            told = service.told()
        finally:
            for task in standing:
                task.cancel()
            await asyncio.gather(*standing, return_exceptions=True)
    return {**paced.clients, **paced.counted, "request": figures(serving.times), "told": told}


class _Serving:
    """The requests, and how many have been answered."""

    def __init__(self, requests: int, wait: float, work: TimedWork) -> None:
        self.requests = requests
        self.times: deque[float] = deque(maxlen=requests * 20)
        self._wait = wait
        self._work = work
        self._answered: Counter[str] = Counter()

    async def stand(self, service: Service) -> None:
        while True:
            begun = time.perf_counter()
            await service.run(self._waits)
            await service.run(self._work)
            self.times.append(time.perf_counter() - begun)
            self._answered["requests"] += 1

    def _waits(self) -> None:
        time.sleep(self._wait)

    def counts(self) -> Mapping[str, float]:
        return {"requests": self._answered["requests"], "work": self._work.seconds()}


if __name__ == "__main__":
    serve(measure)
