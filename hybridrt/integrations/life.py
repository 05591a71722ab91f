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


_servers: dict[Runtime, int] = {}
"""How many servers use each runtime that one of them has opened; the last to end closes it."""


@asynccontextmanager
async def runtime_of_loop(options: Mapping[str, Any]) -> AsyncIterator[Runtime]:
    """Give the runtime that the running loop has, or a new one that is closed when its last server ends."""
    try:
        runtime = Runtime.current()
    except RuntimeClosedError:
        runtime = await Runtime(**options).__aenter__()
        _servers[runtime] = 0
    if runtime not in _servers:  # it stays open
        yield runtime
        return
    _servers[runtime] += 1
    try:
        yield runtime
    finally:
        _servers[runtime] -= 1
        if not _servers[runtime]:
            del _servers[runtime]
            await runtime.aclose()
