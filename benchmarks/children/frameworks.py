"""Child: a framework whose tool waits for a service and then parses its answer, 32 requests at once."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

from benchmarks.children.adapters import ADAPTERS, Tool
from benchmarks.children.echoing import Pace, pace
from benchmarks.children.pacer import figures
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.upstream import RECORDS, serving

__all__ = ["measure"]


def measure(
    *,
    framework: str,
    modules: Sequence[str],
    way: str,
    loop: str,
    requests: int,
    pause: float,
    pacing: Mapping[str, float],
) -> Mapping[str, Any]:
    """Return requests per second, their times, and what echo clients saw of the loop.

    Args:
        framework: A name in `ADAPTERS`.
        modules: What a program imports before anything else.
        way: `default`, what the framework uses by itself, or `hybridrt`, a runtime on its loop.
        loop: `asyncio` or `uvloop`.
        requests: Requests in flight.
        pause: Seconds that the service waits before it answers the tool.
        pacing: Fields of `Pace`.
    """
    for module in modules:
        import_module(module)
    return run_on(loop, _measure(framework, way, requests, pause, Pace(**pacing)))  # type: ignore[arg-type]


async def _measure(framework: str, way: str, requests: int, pause: float, pacing: Pace) -> Mapping[str, Any]:
    async with serving(pause) as url, _line(way), ADAPTERS[framework](_tool(url)) as ask:
        with _collections() as took:
            if isinstance(ask, int):
                found = await _ask_from_outside(ask, requests, pacing)
            else:
                found = await _ask_here(ask, requests, pacing)
        return {**found, "collections": took}


@contextmanager
def _collections() -> Iterator[list[float]]:
    """Yield a list that gets the seconds of each full garbage collection within the block."""
    took: list[float] = []
    begun = time.perf_counter()

    def collects(phase: str, info: Mapping[str, int]) -> None:
        nonlocal begun
        if info["generation"] == 2:
            if phase == "start":
                begun = time.perf_counter()
            else:
                took.append(time.perf_counter() - begun)

    gc.callbacks.append(collects)
    try:
        yield took
    finally:
        gc.callbacks.remove(collects)


def _tool(url: str) -> Tool:
    """Return the user's function: it asks the service and adds up what came."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def tool(number: int) -> int:
        """Ask a service and count the tags of what it answers."""
        with opener.open(url) as answer:
            records = json.loads(answer.read())
        tags = sum(len(record["tags"]) for record in records)
        if tags != 2 * RECORDS:
            raise RuntimeError(f"expected {2 * RECORDS} tags, got {tags}")
        return tags * number

    return tool


@asynccontextmanager
async def _line(way: str) -> AsyncIterator[None]:
    """The one line that a program adds, or none."""
    if way == "default":
        yield
        return
    import hybridrt

    async with hybridrt.Runtime():
        yield


async def _ask_here(ask: Callable[[], Awaitable[object]], requests: int, pacing: Pace) -> Mapping[str, Any]:
    standing = _Standing(ask)
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(standing.stand()) for _ in range(requests)]
    first: asyncio.Task[Any] = asyncio.create_task(standing.first.wait())
    try:
        await asyncio.wait({first, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        paced = await pace(pacing, standing.counts)
        for task in tasks:
            if task.done():
                task.result()  # it never ends but by an error
    finally:
        for task in (first, *tasks):
            task.cancel()
        await asyncio.gather(first, *tasks, return_exceptions=True)
    return {**paced.clients, **paced.counted, "request": figures(standing.counted or standing.before)}


class _Standing:
    """Requests that are made again and again, and their times since the counts were last asked for."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self.first = asyncio.Event()
        self.before: list[float] = []
        self.counted: list[float] = []
        self._ask = ask
        self._answered = 0
        self._times: list[float] = []

    async def stand(self) -> None:
        while True:
            begun = time.perf_counter()
            await self._ask()
            self._times.append(time.perf_counter() - begun)
            self._answered += 1
            self.first.set()

    def counts(self) -> Mapping[str, float]:
        """Return the requests answered; `counted` has the times of those since the last question.

        `before` has those up to it, for a machine on which none was answered since.
        """
        self.before, self.counted, self._times = self.counted, self._times, []
        return {"requests": self._answered}


async def _ask_from_outside(port: int, requests: int, pacing: Pace) -> Mapping[str, Any]:
    arguments = {"port": port, "clients": requests, "warmup": pacing.warmup, "seconds": pacing.seconds}
    clients = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.children.asking", json.dumps(arguments),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    paced = await pace(pacing, dict)
    printed, _ = await clients.communicate()
    if clients.returncode:
        raise RuntimeError("the clients failed; see above")
    return {**paced.clients, **json.loads(printed)}


if __name__ == "__main__":
    serve(measure)
