"""Child: an echo service beside computing calls that are always in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from benchmarks.children.echoing import Pace, pace
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.services import SERVICES, Call, Service
from benchmarks.children.standing import end
from benchmarks.children.work import Work

__all__ = ["measure"]


def measure(*, way: str, loop: str, calls: int, units: int, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    """Return what the clients saw and the units of work done per second.

    Args:
        way: A name in `SERVICES`.
        loop: `asyncio` or `uvloop`.
        calls: Computing calls in flight; 0 for an idle loop.
        units: Units of work of one call.
        pacing: Fields of `Pace`.
    """
    return run_on(loop, _measure(way, calls, Work(units), Pace(**pacing)))  # type: ignore[arg-type]  # JSON


async def _measure(way: str, calls: int, work: Work, pacing: Pace) -> Mapping[str, Any]:
    async with SERVICES[way](None) as service:
        standing = [asyncio.create_task(_stand(service, work)) for _ in range(calls)]
        try:
            paced = await pace(pacing, lambda: {"work": work.done()})
            told = service.told()
        finally:
            await end(standing)
    return {**paced.clients, **paced.counted, "told": told}


async def _stand(service: Service, call: Call) -> None:
    while True:
        await service.run(call)


if __name__ == "__main__":
    serve(measure)
