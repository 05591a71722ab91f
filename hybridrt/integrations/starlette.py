"""Starlette and FastAPI: an application whose loop has a `Runtime` from start-up to shutdown.

Both know the same thing, a lifespan: an asynchronous context manager that is given the application. So no
name of theirs is imported here, and the same helper serves Litestar and other ASGI frameworks that take one.

Example:
    from fastapi import FastAPI
    from hybridrt.integrations.starlette import lifespan

    app = FastAPI(lifespan=lifespan(shutdown_timeout=15))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from hybridrt.integrations.life import check_options, runtime_of_loop

__all__ = ["Lifespan", "lifespan"]

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Takes the application; what it gives is None, or the state that requests find."""


def lifespan(inner: Lifespan | None = None, /, **options: Any) -> Lifespan:
    """Return a lifespan that opens a `Runtime` at start-up and closes it at shutdown.

    Endpoints and dependencies that are plain `def` run on it. `Runtime.current()` gives it to a handler,
    and so does `request.app.state.runtime` where the application has a `state`. If something else has given
    the loop a runtime already, as `hybridrt.run` does, that one serves and stays open. Applications on one
    loop share a runtime, which closes with the last of them.

    Args:
        inner: The application's own lifespan. It runs within the runtime, so what it does at shutdown may
            still offload; its state, if it yields one, reaches the requests.
        options: Those of `Runtime`. Each start of the application makes a new one.

    Raises:
        TypeError: `inner` is no lifespan, or an option is unknown or of the wrong type.
        ValueError: An option is out of its range.
    """
    if inner is not None and not callable(inner):
        raise TypeError(f"inner must be a lifespan, a function of the application, or None; got {inner!r}")
    check_options(options)

    @asynccontextmanager
    async def with_runtime(app: Any) -> AsyncIterator[Any]:
        async with runtime_of_loop(options) as runtime:
            if (state := getattr(app, "state", None)) is not None:
                state.runtime = runtime
            if inner is None:
                yield None
            else:
                async with inner(app) as given:
                    yield given

    return with_runtime
