"""Child: eight calls in flight, alone and beside an echo service; and what a call costs.

What is compared is measured in turns, because the speed of a shared machine changes from second to second.

`busy` is the floor of what the loop can feel: it computes the same in processes of its own, one per
core, and the loop has nothing to do with them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent import futures
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import psutil

from benchmarks.children.dispatch import Meter, drive
from benchmarks.children.echoing import Pace, pace
from benchmarks.children.functions import body, length_of, nothing, spin
from benchmarks.children.protocol import run_on, serve
from benchmarks.children.standing import end

__all__ = ["CALLS", "LOADS", "measure"]

CALLS = 8
LOADS: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "python": (spin, lambda: 500_000),
    "json": (length_of, lambda: body(1_500_000)),
}
"""By name: the function, and what makes its argument."""
_LEARNING = 1.0
"""Seconds of calls before anything counts: `auto` learns, workers start."""
_TURNS = 3
"""Times that the calls of eight and those of one thread alone are counted."""

Run = Callable[[Callable[..., Any], Any], Awaitable[Any]]


def measure(*, part: str, **arguments: Any) -> Mapping[str, Any]:
    """Return the figures of one part: `load` or `dispatch`."""
    parts: dict[str, Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]]
    parts = {"load": _load, "dispatch": _dispatch}
    return run_on("asyncio", parts[part](**arguments))


class Work(Protocol):
    """What keeps the cores busy."""

    async def rate(self, seconds: float) -> float:
        """Return how many calls end in a second."""
        ...

    async def pause(self) -> None:
        """Return when nothing is computed any more."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...


async def _load(
    *, way: str, load: str, cores: int, seconds: float, pacing: Mapping[str, float]
) -> Mapping[str, Any]:
    """Return the calls per second with eight in flight and alone, and what echo clients see beside them."""
    found = dict[str, list[float]](calls=[], alone=[])
    async with _working(way, load, cores) as work:
        for _ in range(_TURNS):
            found["calls"].append(await work.rate(seconds))
            await work.pause()
            found["alone"].append(await asyncio.to_thread(_alone, load, seconds))
            await work.resume()
        paced = await pace(Pace(**pacing), dict)  # type: ignore[arg-type]  # JSON
    return {**paced.clients, **found}


def _alone(load: str, seconds: float) -> float:
    """Return the calls per second of one thread that has the machine to itself."""
    function, argument = LOADS[load][0], LOADS[load][1]()
    begun, calls = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        function(argument)
        calls += 1
    return calls / elapsed


async def _dispatch(
    *, way: str, load: None, cores: int, block: float, blocks: int, warmup: float
) -> Mapping[str, Any]:
    """Return microseconds per call of a function that does nothing, one at a time and eight at once.

    Of calls in isolates also what one in a thread takes, in turns.
    """
    async with WAYS[way](cores) as run:
        calls: dict[str, Callable[[int], Awaitable[int]]] = {"way": partial(run, nothing)}
        if way in ("isolate", "process"):
            import hybridrt

            calls["thread"] = hybridrt.offload(nothing)
        for call in calls.values():
            await drive(call, CALLS, Meter(block=block, blocks=1, warmup=_LEARNING / 4).turns())
        found: dict[str, dict[str, list[float]]] = {name: {} for name in calls}
        for crowd, tasks in (("one", 1), ("eight", CALLS)):
            for _ in range(blocks):
                for name, call in calls.items():
                    meter = Meter(block=block, blocks=1, warmup=warmup)
                    await drive(call, tasks, meter.turns())
                    found[name].setdefault(crowd, []).extend(meter.wall_us)
    return found


class _Calls:
    """Eight calls in flight, and when they ended."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._wanted = self._running = 0
        self._reached, self._goes_on, self._rests = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._goes_on.set()

    async def begin(self) -> None:
        """Wait until another call is to be made."""
        await self._goes_on.wait()
        self._running += 1

    def end(self) -> None:
        """Note that a call has ended."""
        self._running -= 1
        if not self._running:
            self._rests.set()
        self.times.append(time.perf_counter())
        if len(self.times) >= self._wanted:
            self._reached.set()

    async def rate(self, seconds: float) -> float:
        """Return the rate from the end of one call to that of another."""
        await self.reach(len(self.times) + CALLS)  # after a pause all have begun at once
        before = len(self.times)
        await asyncio.sleep(seconds)
        await self.reach(before + CALLS)
        counted = self.times[before:]
        return (len(counted) - 1) / (counted[-1] - counted[0])

    async def pause(self) -> None:
        """Let the calls end."""
        self._goes_on.clear()
        if self._running:
            self._rests.clear()
            await self._rests.wait()

    async def resume(self) -> None:
        """Make calls again."""
        self._goes_on.set()

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
async def _working(way: str, load: str, cores: int) -> AsyncIterator[Work]:
    if way == "busy":
        async with _busy_processes(load, cores) as processes:
            yield processes
    else:
        async with WAYS[way](cores) as run, _standing(run, load) as calls:
            yield calls


@asynccontextmanager
async def _standing(run: Run, load: str) -> AsyncIterator[_Calls]:
    """Keep eight calls in flight; what to learn has been learned by then."""
    function, argument = LOADS[load][0], LOADS[load][1]()
    calls = _Calls()

    async def stand() -> None:
        try:
            while True:
                await calls.begin()
                await run(function, argument)
                calls.end()
        finally:
            calls.fail()

    tasks = [asyncio.create_task(stand()) for _ in range(CALLS)]
    try:
        await calls.reach(CALLS)
        await asyncio.sleep(_LEARNING)
        yield calls
    finally:
        await end(tasks)


class _Processes:
    """A process per core that computes, and counts its calls."""

    def __init__(self, load: str, cores: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._counts = spawning.RawArray("q", cores)
        self.begun = [spawning.Event() for _ in range(cores)]
        self.crew = [
            spawning.Process(target=_compute, args=(load, event, self._counts, number), daemon=True)
            for number, event in enumerate(self.begun)
        ]
        for process in self.crew:
            process.start()

    async def rate(self, seconds: float) -> float:
        """Return how many calls end in a second."""
        before, begun = sum(self._counts), time.perf_counter()
        await asyncio.sleep(seconds)
        calls: int = sum(self._counts) - before
        return calls / (time.perf_counter() - begun)

    async def pause(self) -> None:
        """Suspend the processes."""
        for process in self.crew:
            psutil.Process(process.pid).suspend()

    async def resume(self) -> None:
        """Let them go on."""
        for process in self.crew:
            psutil.Process(process.pid).resume()


@asynccontextmanager
async def _busy_processes(load: str, cores: int) -> AsyncIterator[_Processes]:
    """Compute in a process per core; they have begun when the block does."""
    processes = _Processes(load, cores)
    try:
        for event in processes.begun:
            event.wait()
        yield processes
    finally:
        for process in processes.crew:
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
        offloaded: hybridrt.Offloaded[..., Any] | None = made.get(function)
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
