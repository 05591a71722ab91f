"""What the gateway needs of whatever runs it: a `Runtime`, or in the benchmarks something plainer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

__all__ = ["Work"]

R = TypeVar("R")


class Work(Protocol):
    """Runs functions off the loop and coroutines beside a request; `hybridrt.Runtime` is one."""

    async def offload(self, fn: Callable[..., R], /, *args: Any) -> R:
        """Run `fn(*args)` without holding up the loop."""
        ...

    def background(self, coro: Coroutine[Any, Any, R], *, name: str | None = None) -> asyncio.Task[R]:
        """Run a coroutine beside the request.

        Raises:
            hybridrt.QueueFullError: There are too many; the coroutine is closed.
        """
        ...
