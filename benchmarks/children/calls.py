"""The candidates: ways to call a function that does nothing, from a coroutine.

Each is an asynchronous context manager that gives an awaitable call. All of them hand over the same
function, keep their default sizes, and are imported only when they are the one that is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridrt import AdaptiveThreadPoolExecutor

__all__ = ["WAYS", "Way", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to make a call.

    Attributes:
        call: Gives its argument back, from a thread of the candidate.
        executor: Ours, if it is ours that runs the calls.
    """

    call: Callable[[int], Awaitable[int]]
    executor: AdaptiveThreadPoolExecutor | None = None


def nothing(x: int) -> int:
    """Return the argument: what is left of a call is its dispatch."""
    return x


def _untyped(call: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """Return the same: type checkers cannot follow variadic arguments through `partial`.

    A lambda would need no such thing, but add a call to what is measured.
    """
    return call


@asynccontextmanager
async def _inline() -> AsyncIterator[Way]:
    async def call(x: int) -> int:
        return nothing(x)

    yield Way(call=call)


@asynccontextmanager
async def _run_in_executor() -> AsyncIterator[Way]:
    yield Way(call=partial(_untyped(asyncio.get_running_loop().run_in_executor), None, nothing))


@asynccontextmanager
async def _to_thread() -> AsyncIterator[Way]:
    yield Way(call=partial(_untyped(asyncio.to_thread), nothing))


@asynccontextmanager
async def _anyio() -> AsyncIterator[Way]:
    import anyio.to_thread

    yield Way(call=partial(_untyped(anyio.to_thread.run_sync), nothing))


@asynccontextmanager
async def _default_executor() -> AsyncIterator[Way]:
    import hybridrt

    loop, executor = asyncio.get_running_loop(), hybridrt.AdaptiveThreadPoolExecutor()
    loop.set_default_executor(executor)
    call = partial(_untyped(loop.run_in_executor), None, nothing)
    yield Way(call=call, executor=executor)


@asynccontextmanager
async def _runtime() -> AsyncIterator[Way]:
    import hybridrt

    async with hybridrt.Runtime() as runtime:
        call = partial(_untyped(asyncio.get_running_loop().run_in_executor), None, nothing)
        yield Way(call=call, executor=runtime.executor)


@asynccontextmanager
async def _offload() -> AsyncIterator[Way]:
    import hybridrt

    async with hybridrt.Runtime() as runtime:
        yield Way(call=hybridrt.offload(nothing), executor=runtime.executor)


WAYS: dict[str, Callable[[], AbstractAsyncContextManager[Way]]] = {
    "inline": _inline,
    "run_in_executor": _run_in_executor,
    "to_thread": _to_thread,
    "anyio": _anyio,
    "default_executor": _default_executor,
    "runtime": _runtime,
    "offload": _offload,
}
