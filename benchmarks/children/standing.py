"""The end of tasks that stand: they make calls again and again, so only an error ends one early."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

__all__ = ["end"]


async def end(standing: Sequence[asyncio.Future[None]]) -> None:
    """Cancel the tasks and raise what went wrong in one: a service whose calls fail looks idle."""
    for task in standing:
        task.cancel()
    for outcome in await asyncio.gather(*standing, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
