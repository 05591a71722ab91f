"""The candidates: pools that run a load's calls for coroutines, untuned but for the static size.

All but anyio are driven by `run_in_executor`, so that what the loop does for a call is the same.
Each is imported only when it is the one that is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hybridrt import Statistics

__all__ = ["POOLS", "Pool", "Stamps", "open_pool"]

Stamps = tuple[float, float]
"""When a call began and when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """An open pool.

    Attributes:
        submit: Runs a function in a thread and gives what it returns.
        statistics: What ours knows about itself; empty for the others.
    """

    submit: Callable[[Callable[[], Stamps]], Awaitable[Stamps]]
    statistics: Callable[[], Mapping[str, Any]] = dict


@asynccontextmanager
async def open_pool(name: str, size: int | None = None) -> AsyncIterator[Pool]:
    """Open the pool of that name; calls that are queued at the exit are dropped.

    Args:
        name: A key of `POOLS`, `anyio`, or `runtime`.
        size: Threads of a `static` pool; the others choose for themselves.
    """
    if name == "anyio":
        from anyio.to_thread import run_sync

        yield Pool(submit=run_sync)
        return
    if name == "runtime":
        from hybridrt import Runtime

        async with Runtime() as runtime:
            run = asyncio.get_running_loop().run_in_executor
            yield Pool(submit=partial(run, None), statistics=lambda: _excerpt(runtime.statistics()))
        return
    with POOLS[name](size) as (executor, statistics):
        loop = asyncio.get_running_loop()
        yield Pool(submit=partial(loop.run_in_executor, executor), statistics=statistics)


_Opened = tuple[Executor, Callable[[], Mapping[str, Any]]]


@contextmanager
def _static(size: int | None) -> Iterator[_Opened]:
    executor = ThreadPoolExecutor(size)
    yield executor, dict
    executor.shutdown(cancel_futures=True)


@contextmanager
def _betapool(size: None) -> Iterator[_Opened]:
    from betapool import AdaptiveThreadPoolExecutor

    # Not an `Executor`, but `run_in_executor` needs no more than `submit`.
    pool: Any = AdaptiveThreadPoolExecutor()
    yield pool, lambda: {"workers": pool.get_current_thread_count()}
    pool.shutdown(wait=True)


@contextmanager
def _hybridrt(size: None, policy: Literal["demand", "paper"] = "demand") -> Iterator[_Opened]:
    import hybridrt

    executor = hybridrt.AdaptiveThreadPoolExecutor(policy=policy)
    yield executor, lambda: _excerpt(executor.statistics())
    executor.shutdown(cancel_futures=True)


POOLS: dict[str, Callable[[Any], Any]] = {
    "static": _static,
    "betapool": _betapool,
    "hybridrt": _hybridrt,
    "paper": partial(_hybridrt, policy="paper"),
}


def _excerpt(statistics: Statistics) -> Mapping[str, Any]:
    """Return what explains a result: of decisions seconds, size, reason, ratio; of files the name alone."""
    told = asdict(statistics)
    told["running"] = len(statistics.running)
    told["decisions"] = [
        [round(made.at, 2), made.workers, str(made.reason), made.beta] for made in statistics.decisions
    ]
    for site in told["phases"]["sites"] if told["phases"] else ():
        site["file"] = PurePath(site["file"]).name
    return told
