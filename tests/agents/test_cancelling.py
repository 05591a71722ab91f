"""A run that is cancelled at any point leaves no task, thread or connection behind."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI

from hybridrt import Agent, Runtime, tool
from hybridrt.agents.calling import call_tools
from hybridrt.agents.requested import RequestedCall
from tests.agents.server import Json, ModelServer, call, end, spent, text
from tests.loop.support import DEADLINE, Gate, is_cancelled_once

POINTS = 100
"""Points at which a run is cancelled, each once."""
TURNS_MAX = 40
"""Turns of the loop without a pause after which a run is cancelled at most; its beginning."""

_tools_inside = 0
_guard = threading.Lock()


def _count(change: int) -> None:
    global _tools_inside
    with _guard:
        _tools_inside += change


@tool(retries=3, retry_on=OSError, backoff=0.0)
def in_a_thread(number: int) -> int:
    """Compute a little, and fail now and then."""
    _count(1)
    try:
        if sum(range(500)) and number % 3 == 0:
            raise OSError("not yet")
        return number
    finally:
        _count(-1)


@tool(limit=1)
async def on_the_loop(number: int) -> int:
    """Take some turns of the loop."""
    _count(1)
    try:
        for _ in range(number % 4):
            await asyncio.sleep(0)
        return number
    finally:
        _count(-1)


def script(number: int, body: Json) -> list[Json]:
    """Ask for four tools, twice, then answer."""
    if len(body["messages"]) > 9:
        return [text("That "), text("is "), text("all."), end(), spent(1, 1)]
    calls = [
        call(name, f'{{"number": {index}}}', index=index, id=f"{number}-{index}")
        for index, name in enumerate(["in_a_thread", "on_the_loop", "in_a_thread", "on_the_loop"])
    ]
    return [text("Let me see. "), *calls, end("tool_calls"), spent(1, 1)]


async def cancel_somewhere(work: Coroutine[Any, Any, object], chance: random.Random, usual: float) -> None:
    """Run, and cancel after some turns of the loop, or after a part of the seconds that it usually takes."""
    task = asyncio.ensure_future(work)
    if chance.random() < 0.3:
        for _ in range(chance.randrange(TURNS_MAX)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(chance.uniform(0.0, 1.1 * usual))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    assert _tools_inside == 0  # whatever it started has ended when the run has


async def seconds_of(agent: Agent) -> float:
    """Return what an undisturbed run takes, its connection being open."""
    await agent.run("Why?")
    begun = time.perf_counter()
    await agent.run("Why?")
    return time.perf_counter() - begun


def tasks() -> set[asyncio.Task[object]]:
    """Return all tasks but those of the server, of which each connection that is kept has one."""
    return {task for task in asyncio.all_tasks() if "RequestHandler" not in repr(task.get_coro())}


async def others_gone(known: set[asyncio.Task[object]]) -> None:
    """Wait until no tasks are left but those known: closed generators take some turns."""
    async with asyncio.timeout(DEADLINE):
        while tasks() - known:  # noqa: ASYNC110  # they are not ours to wait for
            await asyncio.sleep(0)


async def test_a_run_cancelled_at_any_point_leaves_nothing_behind() -> None:
    chance = random.Random(23)
    server = ModelServer(script)
    async with Runtime() as runtime, server.serving() as url:
        agent = Agent(url, "scripted", [in_a_thread, on_the_loop])
        usual = await seconds_of(agent)
        await server.idle()
        known = tasks()
        for _ in range(POINTS):
            await cancel_somewhere(agent.run("Why?"), chance, usual)
        await server.idle()
        await others_gone(known)
        assert runtime.statistics().running == ()
        assert not open_connections(await agent._connection.client())
        await agent.aclose()


def open_connections(client: AsyncOpenAI) -> set[object]:
    """Return the connections that some request has taken and not given back."""
    session = client._client._transport.client  # type: ignore[attr-defined]  # aiohttp's, below the transport
    taken: set[object] = session.connector._acquired
    return taken


@pytest.mark.race
def test_races_of_cancelling_with_what_a_run_does() -> None:
    """The same, a few points at a time and with a loop and connections of its own."""
    chance = random.Random()

    async def some() -> None:
        server = ModelServer(script)
        async with Runtime(), server.agent(in_a_thread, on_the_loop) as agent:
            for _ in range(2):
                await cancel_somewhere(agent.run("Why?"), chance, 0.02)
            await server.idle()

    asyncio.run(some())


@pytest.mark.parametrize("seed", range(3))
async def test_a_consumer_cancelled_between_two_events_leaves_nothing_behind(seed: int) -> None:
    chance = random.Random(seed)
    server = ModelServer(script)
    async with Runtime(), server.agent(in_a_thread, on_the_loop) as agent:

        async def consume() -> None:
            async for _ in agent.stream("Why?"):
                await asyncio.sleep(0)

        usual = await seconds_of(agent)
        known = tasks()
        for _ in range(10):
            task = asyncio.ensure_future(consume())
            await asyncio.sleep(chance.uniform(0.0, 1.1 * usual))
            task.cancel()
            await asyncio.wait([task])
        await others_gone(known)
        assert _tools_inside == 0
        assert not open_connections(await agent._connection.client())


async def test_a_scope_of_anyio_cancels_a_run_once_while_its_tool_ends() -> None:
    scope = anyio.CancelScope()
    async with Runtime(), Gate() as gate:

        @tool
        def wait() -> None:
            """Wait until the test goes on."""
            gate()

        async def run() -> None:
            with scope:
                async for _ in call_tools({"wait": wait}, [RequestedCall("a", "wait", "{}")], 1):
                    pass

        task = asyncio.ensure_future(run())
        await gate.entered()
        await is_cancelled_once(scope, task, gate)
