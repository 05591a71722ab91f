"""uvicorn: what its grace period and a runtime's `shutdown_timeout` have to do with each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hybridrt import Runtime, offload

from .support import FOREIGN_WARNINGS, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]
fastapi = framework("fastapi")
httpx = framework("httpx")
uvicorn = framework("uvicorn")


async def test_the_runtime_closes_after_the_requests_had_their_grace() -> None:
    """So the two periods add up."""
    told: list[str] = []
    running, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @offload
    def wait() -> None:
        loop.call_soon_threadsafe(running.set)
        gate.wait(30.0)
        told.append("call ended")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with Runtime(shutdown_timeout=30.0):
            yield
            told.append("closing")
            gate.set()
        told.append("closed")

    application = fastapi.FastAPI(lifespan=lifespan)

    @application.get("/wait")
    async def answer() -> None:
        try:
            await wait.options(abandon_on_cancel=True)()
        except asyncio.CancelledError:
            told.append("grace over")
            raise

    config = uvicorn.Config(application, port=0, log_level="critical", timeout_graceful_shutdown=0)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()  # what `serve` does, without taking over the signals
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None) as client:
        asking = asyncio.create_task(client.get("/wait"))
        await running.wait()
        await server.shutdown()
        await asyncio.gather(asking, return_exceptions=True)
    assert told == ["grace over", "closing", "call ended", "closed"]
