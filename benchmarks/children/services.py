"""The candidates: ways for a service to run a function in a thread, at their defaults.

Each is imported only when it is the one that is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridrt import Statistics

__all__ = ["SERVICES", "Call", "Service"]

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An open candidate.

    Attributes:
        run: Gives what a function returns for some arguments, from a thread.
        told: What ours knows about itself; empty for the others.
    """

    run: Callable[..., Awaitable[Any]]
    told: Callable[[], Mapping[str, Any]] = dict


@asynccontextmanager
async def _stdlib(size: int | None) -> AsyncIterator[Service]:
    """The loop's default pool; with a size, one of that size in its place."""
    loop = asyncio.get_running_loop()
    if size is not None:
        loop.set_default_executor(ThreadPoolExecutor(size))
    yield Service(run=partial(loop.run_in_executor, None))


@asynccontextmanager
async def _anyio(size: None) -> AsyncIterator[Service]:
    from anyio.to_thread import run_sync

    yield Service(run=run_sync)


@asynccontextmanager
async def _betapool(size: None) -> AsyncIterator[Service]:
    from betapool import AdaptiveThreadPoolExecutor

    # Not an `Executor`, but `run_in_executor` needs no more than `submit`.
    pool: Any = AdaptiveThreadPoolExecutor()
    yield Service(run=partial(asyncio.get_running_loop().run_in_executor, pool))
    pool.shutdown(wait=True)


@asynccontextmanager
async def _default_executor(size: None) -> AsyncIterator[Service]:
    import hybridrt

    loop, executor = asyncio.get_running_loop(), hybridrt.AdaptiveThreadPoolExecutor()
    loop.set_default_executor(executor)
    yield Service(run=partial(loop.run_in_executor, None), told=lambda: _excerpt(executor.statistics()))


@asynccontextmanager
async def _runtime(size: None, **options: Any) -> AsyncIterator[Service]:
    import hybridrt

    async with hybridrt.Runtime(**options) as runtime:
        yield Service(run=runtime.offload, told=lambda: _excerpt(runtime.statistics()))


def _offload_pure(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    import hybridrt

    offloaded: hybridrt.Offloaded[..., Any] = hybridrt.offload(fn, pure=True)
    return offloaded


@asynccontextmanager
async def _pure(size: None) -> AsyncIterator[Service]:
    """A runtime that may choose where a function runs."""
    placed = cache(_offload_pure)
    async with _runtime(size) as service:
        yield replace(service, run=lambda fn, *args: placed(fn)(*args))


SERVICES: dict[str, Callable[[Any], AbstractAsyncContextManager[Service]]] = {
    "stdlib": _stdlib,
    "anyio": _anyio,
    "betapool": _betapool,
    "default_executor": _default_executor,
    "offload": _runtime,
    "pure": _pure,
    "patient": partial(_runtime, loop_delay_target=0.01),
    "unshielded": partial(_runtime, shield=False),
}
"""By name; each takes the number of threads, which only the stdlib's pool lets one choose here."""


def _excerpt(statistics: Statistics) -> Mapping[str, Any]:
    """Return what explains a result."""
    return {
        "workers": statistics.workers,
        "target": statistics.target,
        "overdrafts": statistics.overdrafts,
        "governor_error": statistics.governor_error,
        "shield": None if statistics.shield is None else asdict(statistics.shield),
        "loop_delay": None if statistics.loop_delay is None else asdict(statistics.loop_delay),
        "functions": [
            {"name": f.name, "kind": f.kind, "calls": f.calls, "queue_wait": f.queue_wait}
            for f in statistics.functions
        ],
    }
