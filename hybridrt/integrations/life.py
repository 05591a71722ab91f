"""A runtime for as long as a server lives; what the helpers of the web frameworks share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hybridrt.errors import RuntimeClosedError
from hybridrt.runtime import Runtime

__all__ = ["check_options", "runtime_of_loop"]


def check_options(options: dict[str, Any]) -> None:
    """Let a mistake show where the options are written, not when the server starts.

    An iterator among them becomes a tuple: the check and each start go through it.

    Raises:
        TypeError: An option is unknown or of the wrong type.
        ValueError: An option is out of its range.
    """
    if isinstance(variables := options.get("isolate_context"), Iterator):
        options["isolate_context"] = tuple(variables)
    Runtime(**options).executor.shutdown()


@asynccontextmanager
async def runtime_of_loop(options: Mapping[str, Any]) -> AsyncIterator[Runtime]:
    """Give the runtime that the running loop has, or a new one that is closed at the end."""
    try:
        found = Runtime.current()
    except RuntimeClosedError:
        found = None
    if found is not None:
        yield found
        return
    async with Runtime(**options) as runtime:
        yield runtime
