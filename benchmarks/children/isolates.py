"""Child: eight calls in flight, alone and beside an echo service; and what a call costs.

`busy` is the floor of what the loop can feel: it computes the same in processes of its own, one per
core, and the loop has nothing to do with them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from benchmarks.children.dispatch import Meter, drive
from benchmarks.children.echoing import Pace, pace
from benchmarks.children.functions import body, length_of, nothing, spin
from benchmarks.children.protocol import run_on, serve

__all__ = ["CALLS", "LOADS", "measure"]

CALLS = 8
LOADS: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "python": (spin, lambda: 500_000),
    "json": (length_of, lambda: body(1_500_000)),
}
"""By name: the function, and what makes its argument."""
_LEARNING = 1.0
"""Seconds of calls before the echo clients come: `auto` learns, workers start."""

Run = Callable[[Callable[..., Any], Any], Awaitable[Any]]


def measure(*, part: str, **arguments: Any) -> Mapping[str, Any]:
    """Return the figures of one part: `load`, `alone` or `dispatch`."""
    parts: dict[str, Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]]
    parts = {"load": _load, "alone": _alone, "dispatch": _dispatch}
    return run_on("asyncio", parts[part](**arguments))


async def _load(
    *, way: str, load: str, cores: int, seconds: float, pacing: Mapping[str, float]
) -> Mapping[str, Any]:
    """Return the calls per second with eight in flight, and then what echo clients see beside them."""
    clients = Pace(**pacing)  # type: ignore[arg-type]  # JSON
    if way == "busy":
        with _busy_processes(load, cores) as counts:
            before = sum(counts)
            await asyncio.sleep(seconds)
            calls = (sum(counts) - before) / seconds
            return {**(await pace(clients, dict)).clients, "calls": calls}
    async with WAYS[way](cores) as run, _standing(run, load) as ends:
        calls = await _calls_per_second(ends, seconds)
        paced = await pace(clients, dict)
    return {**paced.clients, "calls": calls}


async def _calls_per_second(ends: _Ends, seconds: float) -> float:
    """Return the rate from the end of one call to that of another."""
    before = len(ends.times)
    await asyncio.sleep(seconds)
    await ends.reach(before + CALLS)
    counted = ends.times[before:]
    return (len(counted) - 1) / (counted[-1] - counted[0])


async def _alone(*, way: str, load: str, cores: int, seconds: float) -> Mapping[str, Any]:
    """Return the calls per second of one thread that has the machine to itself."""
    function, argument = LOADS[load][0], LOADS[load][1]()

    def calls_per_second() -> float:
        begun, calls = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begun) < seconds:
            function(argument)
            calls += 1
        return calls / elapsed

    return {"calls": await asyncio.to_thread(calls_per_second)}


async def _dispatch(
    *, way: str, load: None, cores: int, block: float, blocks: int, warmup: float
) -> Mapping[str, Any]:
    """Return microseconds per call of a function that does nothing, one at a time and eight at once."""
    async with WAYS[way](cores) as run:

        async def call(turn: int) -> int:
            result: int = await run(nothing, turn)
            return result

        await asyncio.gather(*map(call, range(CALLS)))
        found = {}
        for name, tasks in (("one", 1), ("eight", CALLS)):
            meter = Meter(block=block, blocks=blocks, warmup=warmup)
            await drive(call, tasks, meter.turns())
            found[name] = meter.wall_us
    return found


class _Ends:
    """When calls ended, in order."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._wanted = 0
        self._reached = asyncio.Event()

    def add(self) -> None:
        """Note that a call has ended."""
        self.times.append(time.perf_counter())
        if len(self.times) >= self._wanted:
            self._reached.set()

    async def reach(self, count: int) -> None:
        """Wait until so many have ended, or one has failed."""
        self._wanted = count
        if len(self.times) < count:
            self._reached.clear()
            await self._reached.wait()

    def fail(self) -> None:
        """Let nobody wait any longer."""
        self._reached.set()


@asynccontextmanager
async def _standing(run: Run, load: str) -> AsyncIterator[_Ends]:
    """Keep eight calls in flight; what to learn has been learned by then."""
    function, argument = LOADS[load][0], LOADS[load][1]()
    ends = _Ends()

    async def stand() -> None:
        try:
            while True:
                await run(function, argument)
                ends.add()
        finally:
            ends.fail()

    tasks = [asyncio.create_task(stand()) for _ in range(CALLS)]
    try:
        await ends.reach(CALLS)
        await asyncio.sleep(_LEARNING)
        yield ends
    finally:
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error


@contextmanager
def _busy_processes(load: str, cores: int) -> Iterator[Sequence[int]]:
    """Compute in a process per core, and count the calls; they have begun when the block does."""
    spawning = multiprocessing.get_context("spawn")
    counts = spawning.RawArray("q", cores)
    begun = [spawning.Event() for _ in range(cores)]
    crew = [
        spawning.Process(target=_compute, args=(load, event, counts, number), daemon=True)
        for number, event in enumerate(begun)
    ]
    for process in crew:
        process.start()
    try:
        for event in begun:
            event.wait()
        yield counts
    finally:
        for process in crew:
            process.kill()
            process.join()


def _compute(load: str, begun: Any, counts: Any, number: int) -> None:
    function, argument = LOADS[load][0], LOADS[load][1]()
    begun.set()
    while True:
        function(argument)
        counts[number] += 1


# ------------------------------------------------------------------ the ways


@asynccontextmanager
async def _thread(cores: int) -> AsyncIterator[Run]:
    async with _offloaded() as run:
        yield run


@asynccontextmanager
async def _pure(cores: int) -> AsyncIterator[Run]:
    async with _offloaded(pure=True) as run:
        yield run


@asynccontextmanager
async def _isolate(cores: int) -> AsyncIterator[Run]:
    async with _offloaded(pure=True, where="isolate") as run:
        yield run


@asynccontextmanager
async def _process(cores: int) -> AsyncIterator[Run]:
    async with _offloaded(pure=True, where="isolate", isolation="process") as run:
        yield run


@asynccontextmanager
async def _offloaded(**options: Any) -> AsyncIterator[Run]:
    import hybridrt

    made: dict[Any, Any] = {}

    def run(function: Callable[..., Any], argument: Any) -> Awaitable[Any]:
        offloaded = made.get(function)
        if offloaded is None:
            offloaded = made[function] = hybridrt.offload(function, **options)
        return offloaded(argument)

    async with hybridrt.Runtime():
        yield run


@asynccontextmanager
async def _to_thread(cores: int) -> AsyncIterator[Run]:
    def run(function: Callable[..., Any], argument: Any) -> Awaitable[Any]:
        return asyncio.to_thread(function, argument)

    yield run


@asynccontextmanager
async def _executor(executor: futures.Executor) -> AsyncIterator[Run]:
    loop = asyncio.get_running_loop()

    def run(function: Callable[..., Any], argument: Any) -> Awaitable[Any]:
        return loop.run_in_executor(executor, function, argument)

    yield run
    executor.shutdown(cancel_futures=True)


def _process_pool(cores: int) -> AbstractAsyncContextManager[Run]:
    return _executor(futures.ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")))


def _interpreter_pool(cores: int) -> AbstractAsyncContextManager[Run]:
    pools: Any = futures  # typed for versions that lack it
    return _executor(pools.InterpreterPoolExecutor(cores))


WAYS: dict[str, Callable[[int], AbstractAsyncContextManager[Run]]] = {
    "to_thread": _to_thread,
    "thread": _thread,
    "pure": _pure,
    "isolate": _isolate,
    "process": _process,
    "process_pool": _process_pool,
    "interpreter_pool": _interpreter_pool,
}


if __name__ == "__main__":
    serve(measure)
