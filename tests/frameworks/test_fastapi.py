"""FastAPI: synchronous endpoints of an application that knows nothing of the runtime."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hybridrt import Runtime

from .support import FOREIGN_WARNINGS, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]
fastapi = framework("fastapi")
httpx = framework("httpx")

DEADLINE = 30.0


async def get_all(application: Any, path: str, size: int) -> list[Any]:
    """Return the answers to `size` requests made at once, over HTTP without a socket."""
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client:
        answers = await asyncio.gather(*(client.get(path) for _ in range(size)))
    return [answer.json() for answer in answers]


async def test_a_hundred_endpoints_that_wait_for_each_other_all_answer() -> None:
    application = fastapi.FastAPI()
    barrier = threading.Barrier(100)

    @application.get("/wait")
    def wait() -> str:
        barrier.wait(DEADLINE)
        return "all here"

    async with Runtime() as runtime:
        assert await get_all(application, "/wait", 100) == ["all here"] * 100
        booked = {row.name: row.calls for row in runtime.statistics().functions}
    assert booked[f"{__name__}:{wait.__qualname__}"] == 100


async def test_what_endpoints_depend_on_waits_beside_them() -> None:
    """A dependency and its endpoint are two calls, one after the other in one task."""
    application = fastapi.FastAPI()
    barrier = threading.Barrier(60)

    def account() -> int:
        return barrier.wait(DEADLINE)

    @application.get("/account")
    def show(account: int = fastapi.Depends(account)) -> int:
        barrier.wait(DEADLINE)
        return account

    async with Runtime():
        assert sorted(await get_all(application, "/account", 60)) == [*range(60)]
