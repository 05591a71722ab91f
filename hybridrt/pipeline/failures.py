"""What user code may fail with in a pipe: any `Exception`, and a `CancelledError` of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["FAILURES", "failure", "whole"]

FAILURES = (Exception, asyncio.CancelledError)
"""What is caught around user code. A task group takes a task that ends with a `CancelledError` for one that
has ended in good order, so that items would be lost unseen."""


def failure(error: BaseException, what: str, pipe: asyncio.Task[None]) -> Exception:
    """Return what user code has failed with.

    Args:
        error: One of `FAILURES`.
        what: What was awaited, for the message.
        pipe: The task of the pipe. It is cancelled before any task that it has made. User code may have
            cancelled the one that it runs in.

    Raises:
        asyncio.CancelledError: The pipe was cancelled, and not the user code alone.
    """
    if isinstance(error, Exception):
        return error
    if pipe.cancelling():
        try:
            raise error
        finally:
            del error  # its traceback holds this frame
    failed = RuntimeError(f"the {what} was cancelled, and the pipe was not")
    failed.__cause__ = error
    return failed


async def whole(work: Callable[[], Awaitable[None]], pipe: asyncio.Task[None]) -> None:
    """Await a part of a stage; if user code has cancelled it, the group is to see an error."""
    try:
        await work()
    except asyncio.CancelledError as error:
        raise failure(error, "stage", pipe) from error
