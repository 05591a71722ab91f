"""What is cancelled: a job makes a coroutine, says what is to be zero when none runs, and names its places.

Functions stand at the top level, so that an isolate finds them.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hybridrt import offload, pipe, stage
from hybridrt.isolates import isolate_pool

__all__ = ["JOBS", "Job"]


@dataclass(frozen=True)
class Job:
    """Something to start and cancel.

    Attributes:
        make: Returns a coroutine that ends by itself after some milliseconds, or never.
        left: What should be zero, by name, when none of them runs.
        idle: Waits for what others, as a server, still do.
        places: Where a point may lie: a name, and a function on the way to what is awaited.
        servers: Parts of the names of tasks of a server, which are not ours.
    """

    make: Callable[[], Coroutine[Any, Any, object]]
    left: Callable[[], Mapping[str, int]] = dict
    idle: Callable[[], Coroutine[Any, Any, None]] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    servers: tuple[str, ...] = ()


class Open:
    """Counts what is inside a block, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.count -= 1


async def exhaust(items: AsyncIterator[object]) -> None:
    """Take all items; the consumer closes nothing itself, as most do not."""
    async for _ in items:
        pass


# ---------------------------------------------------------------------- streams


@asynccontextmanager
async def generator() -> AsyncGenerator[Job, None]:
    """A generator in a thread, with a buffer that is soon full."""
    opened = Open()

    def count() -> Iterator[int]:
        with opened:
            yield from range(200)

    counted = offload(count, buffer=3)
    yield Job(lambda: exhaust(counted()), lambda: {"generators": opened.count})


def squares() -> Iterator[int]:
    """Yield what an isolate computes."""
    for number in range(200):
        yield sum(each * each for each in range(number))


@asynccontextmanager
async def isolated() -> AsyncGenerator[Job, None]:
    """A pure generator in an isolate."""
    computed = offload(squares, pure=True, where="isolate", buffer=3)
    yield Job(lambda: exhaust(computed()), lambda: {"isolates lent": lent()})


def lent() -> int:
    """Return how many isolates are held by a generator."""
    return sum(len(each._lent) for each in isolate_pool._isolate_pools)


@asynccontextmanager
async def batch() -> AsyncGenerator[Job, None]:
    """Calls that are gathered into batches, from several callers."""
    running = Open()

    def double(numbers: list[int]) -> list[int]:
        with running:
            return [2 * number for number in numbers]

    batched = offload(double, batch=3)

    async def ask() -> None:
        for _ in range(10):
            await asyncio.gather(*map(batched, range(5)))

    def left() -> Mapping[str, int]:
        gatherers = sum(map(len, batched._gatherers.values()))
        return {"batches": running.count, "gatherers": gatherers}

    yield Job(ask, left)


def double(number: int) -> int:
    """Compute a little."""
    return 2 * number


async def add_one(number: int) -> int:
    """Take a turn of the loop."""
    await asyncio.sleep(0)
    return number + 1


def same(numbers: list[int]) -> list[int]:
    """Return a batch as it came."""
    return numbers


@asynccontextmanager
async def pipe_of_all() -> AsyncGenerator[Job, None]:
    """A pipe of all kinds of stages, in order and as completed in turn."""
    opened, batched = Open(), offload(same, batch=4)
    orders = itertools.cycle((True, False))

    def numbers() -> Iterator[int]:
        with opened:
            yield from range(50)

    def twice(number: int) -> Iterator[int]:
        with opened:
            yield number
            yield number

    def make() -> Coroutine[Any, Any, None]:
        stages = (double, stage(twice, buffer=3), add_one, batched)
        return exhaust(pipe(numbers(), *stages, ordered=next(orders)))

    yield Job(make, lambda: {"generators": opened.count})


# ---------------------------------------------------------------------- agents

PLACES = {
    "HTTP connect": "BaseConnector.connect",
    "head of the answer": "ClientResponse.start",
    "body of the answer": "StreamReader._wait",
    "a tool": "Tool._invoke",
    "wait for a retry": "sleep",
}


@asynccontextmanager
async def agent(*, pure: bool = False, connects: bool = False) -> AsyncGenerator[Job, None]:
    """A run of two rounds of tools: offloaded ones that are tried again, and some on the loop.

    Args:
        pure: One of the tools runs in an isolate.
        connects: Each run opens a connection of its own.
    """
    from tests.agents.examples import process_id  # which need the extra `agents`
    from tests.agents.server import ModelServer

    running = Open()
    tools = [_flaky(running), _looping(running)]
    names = [each.name for each in tools] * 2
    if pure:
        tools.append(process_id)
        names.append(process_id.name)
    server = ModelServer(_script(names))
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(server.agent(*tools, retries=1))
        connector = ours._connection
        client = await connector.client()
        await ours.run("Why?")  # opens the session

        def left() -> Mapping[str, int]:
            pool = client._client._transport.client.connector  # type: ignore[attr-defined]  # aiohttp's
            return {"tools": running.count, "connections": len(pool._acquired), "requests": server.open}

        async def idle() -> None:
            await server.idle()
            if connects:
                for kept in client._client._transport.client.connector._conns.values():  # type: ignore[attr-defined]
                    for protocol, _ in kept:
                        protocol.close()

        async def run() -> None:
            await ours.run("Why?")

        yield Job(run, left, idle, PLACES, servers=("RequestHandler",))


def _flaky(running: Open) -> Any:
    from hybridrt import tool

    @tool(retries=3, retry_on=OSError, backoff=0.002)
    def in_a_thread(number: int) -> int:
        """Compute a little, and fail now and then."""
        with running:
            if sum(range(500)) and running.count % 2:
                raise OSError("not yet")
            return number

    return in_a_thread


def _looping(running: Open) -> Any:
    from hybridrt import tool

    @tool(limit=1)
    async def on_the_loop(number: int) -> int:
        """Take some turns of the loop."""
        with running:
            for _ in range(number % 4):
                await asyncio.sleep(0)
            return number

    return on_the_loop


def _script(names: list[str]) -> Callable[[int, Any], Any]:
    """Ask for all tools, twice, then answer."""
    from tests.agents.server import call, end, spent, text

    def script(number: int, body: Any) -> Any:
        if len(body["messages"]) > 2 * len(names):
            return [*map(text, ("That ", "is ", "all.")), end(), spent(1, 1)]
        calls = []
        for index, name in enumerate(names):
            arguments = '{"text": "x"}' if name == "process_id" else f'{{"number": {index}}}'
            calls.append(call(name, arguments, index=index, id=f"{number}-{index}"))
        return [text("Let me see. "), *calls, end("tool_calls"), spent(1, 1)]

    return script


JOBS: Mapping[str, Callable[[], Any]] = {
    "generator": generator,
    "generator in an isolate": isolated,
    "batch": batch,
    "pipe": pipe_of_all,
    "agent": agent,
    "agent that connects": lambda: agent(connects=True),
    "agent with a tool in an isolate": lambda: agent(pure=True),
}
"""Each by its name: opens what the job needs, within a `Runtime`."""
