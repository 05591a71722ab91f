"""Where steps run: on hybridrt, or, for comparison, on asyncio's default executor.

A program of your own needs none of this: it awaits its steps. The seam is here so that `--compare`
runs the very same job on both.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

import hybridrt

from .values import Cost, PoolCost, Resize, StepCost

__all__ = ["OnDefaultExecutor", "OnHybridrt", "Runner", "Step"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

AT_ONCE = 32
"""Items in work at once on the default executor; a stage of hybridrt's pipe that waits has as many."""

Skip = Callable[[Any, Exception], None]
Stage = Callable[[Any], Coroutine[Any, Any, Any]]


class Step(Protocol[P, R_co]):
    """A function under `@offload`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Runner(Protocol):
    """Runs steps and knows what they cost."""

    async def call(self, step: Step[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run one step off the loop."""

    def pipe(
        self, items: Sequence[Any], *stages: Stage, limit: int | None = None, skip: Skip | None = None
    ) -> AsyncIterator[Any]:
        """Run items through coroutine functions and steps that overlap; results keep their order.

        Args:
            items: What the first stage takes, one by one.
            *stages: Functions of one item.
            limit: How many items the first stage has in work at once, if it is to be bounded.
            skip: Told of an item on which a stage raised, and its error; else the first error ends it all.
        """

    def cost(self) -> Cost:
        """Return what was measured so far."""


class OnHybridrt:
    """The job's real home."""

    def __init__(self, runtime: hybridrt.Runtime) -> None:
        self._runtime = runtime

    async def call(self, step: Step[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Await the step: that is all there is to do."""
        return await step(*args, **kwargs)

    async def pipe(
        self, items: Sequence[Any], *stages: Stage, limit: int | None = None, skip: Skip | None = None
    ) -> AsyncIterator[Any]:
        """As `hybridrt.pipe`."""
        first = hybridrt.stage(stages[0], concurrency=limit)
        async with hybridrt.pipe(items, first, *stages[1:], on_error="skip" if skip else "raise") as pipe:
            async for result in pipe:
                yield result
        if skip is not None:
            for skipped in pipe.skipped:
                skip(skipped.item, skipped.error)

    def cost(self) -> Cost:
        """Return what the runtime measured by itself."""
        statistics = self._runtime.statistics()
        steps = tuple(
            StepCost(
                name=function.name.rsplit(":", 1)[-1],
                calls=function.calls,
                failed=function.failed,
                wall=function.wall,
                cpu=function.cpu,
                queue_wait=function.queue_wait,
            )
            for function in statistics.functions
            if function.calls  # a pure one has a row for each place
        )
        return Cost(executor="hybridrt", steps=steps, pool=_pool_cost(statistics))


def _pool_cost(statistics: hybridrt.Statistics) -> PoolCost:
    decisions = tuple(
        Resize(
            at=decision.at,
            workers=decision.workers,
            previous=decision.previous,
            reason=str(decision.reason),
            queued=decision.queued,
            running=decision.running,
        )
        for decision in statistics.decisions
    )
    delay = statistics.loop_delay
    return PoolCost(
        policy=statistics.policy,
        workers=statistics.workers,
        max_workers=statistics.max_workers,
        overdrafts=statistics.overdrafts,
        decisions=decisions,
        loop_delay=None if delay is None else (delay.p50, delay.p99, delay.max, delay.window),
    )


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    failed: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    queue_wait: float = 0.0


@dataclass(slots=True)
class OnDefaultExecutor:
    """`loop.run_in_executor(None, ...)`, with the measuring that hybridrt does by itself.

    Args:
        lanes: Steps whose calls must not overlap; a lock for each stands in for hybridrt's lanes.
        batch: How many items a batched step is given at once.
    """

    lanes: tuple[Step[..., Any], ...] = ()
    batch: int = 1
    _locks: dict[int, asyncio.Lock] = field(default_factory=dict)
    _sums: dict[str, _Sums] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _threads: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._locks = {id(step): asyncio.Lock() for step in self.lanes}

    async def call(self, step: Step[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the plain function in the loop's default executor."""
        submitted = time.perf_counter()
        async with self._locks.get(id(step)) or contextlib.nullcontext():
            return await self._submit(submitted, step, step.sync, *args, **kwargs)

    async def pipe(
        self, items: Sequence[Any], *stages: Stage, limit: int | None = None, skip: Skip | None = None
    ) -> AsyncIterator[Any]:
        """A task for each item, or for each batch, `limit` of them in work at once."""
        free = asyncio.Semaphore(limit or AT_ONCE)
        step: Any = stages[0]
        batched = isinstance(step, hybridrt.Batched)

        async def one(some: Sequence[Any]) -> Sequence[Any]:
            async with free:
                if batched:
                    return await self._submit(time.perf_counter(), step, inspect.unwrap(step), some)
                (item,) = some
                try:
                    for stage in stages:
                        item = await (self.call(stage, item) if hasattr(stage, "sync") else stage(item))
                except Exception as error:
                    if skip is None:
                        raise
                    skip(item, error)
                    return []
                return [item]

        size = self.batch if batched else 1
        tasks = [asyncio.ensure_future(one(items[at : at + size])) for at in range(0, len(items), size)]
        try:
            for task in tasks:
                for result in await task:
                    yield result
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def cost(self) -> Cost:
        """Return the sums so far, the largest CPU time first."""
        with self._guard:
            steps = [StepCost(name=name, **asdict(sums)) for name, sums in self._sums.items()]
            workers = len(self._threads)
        pool = PoolCost(policy="fixed", workers=workers, max_workers=_default_max_workers())
        return Cost(
            executor="asyncio default executor",
            steps=tuple(sorted(steps, key=lambda step: -step.cpu)),
            pool=pool,
        )

    async def _submit(
        self, submitted: float, step: Any, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        def measured() -> R:
            started, cpu = time.perf_counter(), time.thread_time()
            failed = True
            try:
                result = function(*args, **kwargs)
                failed = False
                return result
            finally:
                wall, spent = time.perf_counter() - started, time.thread_time() - cpu
                self._add(step, failed, wall, spent, started - submitted)

        return await asyncio.get_running_loop().run_in_executor(None, measured)

    def _add(self, step: Any, failed: bool, wall: float, cpu: float, queue_wait: float) -> None:
        with self._guard:
            self._threads.add(threading.get_ident())
            sums = self._sums.setdefault(step.__qualname__, _Sums())
            sums.calls += 1
            sums.failed += failed
            sums.wall += wall
            sums.cpu += cpu
            sums.queue_wait += queue_wait


def _default_max_workers() -> int:
    """Return how many threads `ThreadPoolExecutor()` takes on this interpreter and machine."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as executor:
        return executor._max_workers
