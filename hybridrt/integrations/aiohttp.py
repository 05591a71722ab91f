"""aiohttp.web: an application whose loop has a `Runtime` from start-up to cleanup.

Example:
    from aiohttp import web
    from hybridrt.integrations.aiohttp import cleanup_ctx

    app = web.Application()
    app.cleanup_ctx.append(cleanup_ctx(shutdown_timeout=15))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from hybridrt.integrations.life import check_options, runtime_of_loop
from hybridrt.runtime import Runtime

__all__ = ["RUNTIME", "cleanup_ctx"]

RUNTIME = web.AppKey("hybridrt.runtime", Runtime)
"""Key of the runtime in the application: `request.app[RUNTIME]`."""


def cleanup_ctx(**options: Any) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return what opens a `Runtime` at the start of an application and closes it at its cleanup.

    aiohttp runs these in order and ends them in reverse. So put it first: what the others do at their end
    may still offload. If something else has given the loop a runtime already, as `hybridrt.run` does, that
    one serves and stays open; so sub-applications may have the helper, too.

    Args:
        options: Those of `Runtime`. Each start of the application makes a new one.

    Raises:
        TypeError: An option is unknown or of the wrong type.
        ValueError: An option is out of its range.
    """
    check_options(options)

    async def with_runtime(app: web.Application) -> AsyncIterator[None]:
        async with runtime_of_loop(options) as runtime:
            app[RUNTIME] = runtime
            yield

    return with_runtime
