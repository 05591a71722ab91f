"""The helpers for web frameworks: a runtime for as long as an application lives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession, web

from hybridrt import Runtime, RuntimeClosedError
from hybridrt.integrations.aiohttp import RUNTIME, cleanup_ctx
from hybridrt.integrations.starlette import lifespan

VARIABLE: ContextVar[int] = ContextVar("variable")


def has_runtime() -> bool:
    """Return True if the running loop has a runtime."""
    try:
        Runtime.current()
    except RuntimeClosedError:
        return False
    return True


def thread_name() -> str:
    return threading.current_thread().name.partition("_")[0]


# ---------------------------------------------------------------------- Starlette, FastAPI


async def test_an_application_has_a_runtime_from_start_to_shutdown() -> None:
    app = SimpleNamespace(state=SimpleNamespace())
    async with lifespan(max_workers=3)(app) as state:
        assert state is None
        assert app.state.runtime is Runtime.current()
        assert Runtime.current().executor._max_workers == 3
        assert await asyncio.to_thread(thread_name) == "hybridrt"
    assert not has_runtime()


async def test_an_error_of_the_application_has_no_other_for_its_context() -> None:
    app = SimpleNamespace(state=SimpleNamespace())
    with pytest.raises(ZeroDivisionError) as caught:
        async with lifespan()(app):
            raise ZeroDivisionError
    assert caught.value.__context__ is None


async def test_each_start_makes_a_new_one() -> None:
    app = SimpleNamespace(state=SimpleNamespace())
    life = lifespan()
    async with life(app):
        first = app.state.runtime
    async with life(app):
        assert app.state.runtime is not first


async def test_the_applications_own_lifespan_runs_within_it() -> None:
    told: list[object] = []

    @asynccontextmanager
    async def inner(app: object) -> AsyncIterator[dict[str, int]]:
        told.append((app, await asyncio.to_thread(thread_name)))
        yield {"answer": 42}
        told.append(has_runtime())

    app = object()  # one without a `state`
    async with lifespan(inner)(app) as state:
        assert state == {"answer": 42}
    assert told == [(app, "hybridrt"), True]


async def test_a_runtime_that_the_loop_has_serves_and_stays_open() -> None:
    app = SimpleNamespace(state=SimpleNamespace())
    async with Runtime() as runtime:
        async with lifespan(max_workers=3)(app):
            assert app.state.runtime is runtime
        assert has_runtime()


async def test_of_two_applications_on_one_loop_the_last_to_end_closes_the_runtime() -> None:
    apps = [SimpleNamespace(state=SimpleNamespace()) for _ in range(2)]
    first, second = (lifespan()(app) for app in apps)
    await first.__aenter__()
    async with second:
        assert apps[0].state.runtime is apps[1].state.runtime
        await first.__aexit__(None, None, None)
        assert await asyncio.to_thread(thread_name) == "hybridrt"
        assert has_runtime()
    assert not has_runtime()


async def test_an_error_at_start_or_in_the_server_closes_it() -> None:
    @asynccontextmanager
    async def broken(app: object) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    with pytest.raises(LookupError, match="no database"):
        async with lifespan(broken)(object()):
            pass
    assert not has_runtime()
    with pytest.raises(LookupError, match="in the server"):
        async with lifespan()(object()):
            raise LookupError("in the server")
    assert not has_runtime()


@pytest.mark.parametrize("helper", [lifespan, cleanup_ctx])
def test_a_wrong_option_is_refused_where_it_is_written(helper: Any) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        helper(no_such_option=1)
    with pytest.raises(ValueError, match="shutdown_timeout"):
        helper(shutdown_timeout=-1)


async def test_variables_that_come_from_an_iterator_are_kept_for_each_start() -> None:
    life = lifespan(isolate_context=iter([VARIABLE]))
    for _ in range(2):
        async with life(object()):
            assert [found for *_, found in Runtime.current()._variables] == [VARIABLE]


def test_what_is_no_lifespan_is_refused() -> None:
    with pytest.raises(TypeError, match=r"inner must be a lifespan, .* got 5"):
        lifespan(5)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- aiohttp.web


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on the loopback."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_application_of_aiohttp_has_a_runtime_while_it_serves() -> None:
    told: list[bool] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.app[RUNTIME] is Runtime.current()
        return web.Response(text=await asyncio.to_thread(thread_name))

    async def last_to_start(app: web.Application) -> AsyncIterator[None]:
        yield
        told.append(has_runtime())

    app = web.Application()
    app.cleanup_ctx.append(cleanup_ctx())
    app.cleanup_ctx.append(last_to_start)
    app.router.add_get("/", answer)
    async with served(app) as url, ClientSession() as session, session.get(url) as response:
        assert (response.status, await response.text()) == (200, "hybridrt")
    assert (told, has_runtime()) == ([True], False)


async def test_a_sub_application_shares_the_runtime_of_its_parent() -> None:
    app, below = web.Application(), web.Application()
    for each in (app, below):
        each.cleanup_ctx.append(cleanup_ctx())
    app.add_subapp("/below", below)
    async with served(app):
        assert app[RUNTIME] is below[RUNTIME] is Runtime.current()
    assert not has_runtime()
