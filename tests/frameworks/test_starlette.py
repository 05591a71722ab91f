"""Starlette and FastAPI: plain functions of an application with a lifespan of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hybridrt import Runtime
from hybridrt.integrations.starlette import lifespan

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]
applications = framework("starlette.applications")
responses = framework("starlette.responses")
routing = framework("starlette.routing")
background = framework("starlette.background")
fastapi = framework("fastapi")
httpx = framework("httpx")


async def get(application: Any, path: str) -> Any:
    """Return the answer of an application that was started for it."""
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.get(path)
        booked = {row.name: row.calls for row in Runtime.current().statistics().functions}
    assert answer.status_code == 200
    return answer, booked


async def test_an_endpoint_of_starlette_runs_on_the_runtime_and_is_booked(sight: Sight) -> None:
    def answer(request: Any) -> Any:
        sight.look()
        return responses.PlainTextResponse("here")

    application = applications.Starlette(routes=[routing.Route("/", answer)], lifespan=lifespan())
    response, booked = await get(application, "/")
    assert (response.text, sight.threads) == ("here", ["hybridrt"])
    assert booked[f"{__name__}:{answer.__qualname__}"] == 1


async def test_a_background_task_runs_on_the_runtime(sight: Sight) -> None:
    async def answer(request: Any) -> Any:
        return responses.PlainTextResponse("here", background=background.BackgroundTask(sight.look))

    application = applications.Starlette(routes=[routing.Route("/", answer)], lifespan=lifespan())
    await get(application, "/")
    assert sight.threads == ["hybridrt"]


async def test_a_stream_of_a_plain_generator_is_read_on_the_runtime(sight: Sight) -> None:
    def parts() -> Any:
        for part in ("one", "two"):
            sight.look()
            yield part

    async def answer(request: Any) -> Any:
        return responses.StreamingResponse(parts())

    application = applications.Starlette(routes=[routing.Route("/", answer)], lifespan=lifespan())
    response, _ = await get(application, "/")
    assert (response.text, sight.threads) == ("onetwo", ["hybridrt"] * 2)


async def test_endpoint_dependency_and_clean_up_of_fastapi_run_on_the_runtime(sight: Sight) -> None:
    application = fastapi.FastAPI(lifespan=lifespan())

    def connection() -> Any:
        sight.look()
        yield 4
        sight.look()

    @application.get("/")
    def answer(connection: int = fastapi.Depends(connection)) -> int:
        sight.look()
        return 2 * connection

    response, booked = await get(application, "/")
    assert (response.json(), sight.threads) == (8, ["hybridrt"] * 3)
    assert booked[f"{__name__}:{answer.__qualname__}"] == 1


async def test_a_request_of_the_test_client_runs_on_the_runtime_of_its_own_loop(sight: Sight) -> None:
    """The client runs the application on a loop in another thread, which anyio starts."""
    application = fastapi.FastAPI(lifespan=lifespan())

    @application.get("/")
    def answer() -> int:
        sight.look()
        return 8

    def ask() -> int:
        with framework("starlette.testclient").TestClient(application) as client:
            return int(client.get("/").json())

    async with Runtime():
        assert await asyncio.to_thread(ask) == 8
    assert sight.threads == ["hybridrt"]
