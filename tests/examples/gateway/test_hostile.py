"""Clients that send too much, too little, too slowly or nonsense leave the gateway serving, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator

import aiohttp
import pytest

from .hostile_shapes import BODY, HEAD, sized
from .servers import KEY, asking, gateway, until, upstream, well
from .test_service import post

LIMITS = {"body_max": 20_000, "bodies_max": 200_000, "body_timeout": 0.05}
BATCH = 50
"""Hostile clients at once."""


def chunked(*chunks: bytes) -> bytes:
    """Return a request whose body is sent as it stands after the head."""
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


FIXED = (
    b"",
    b"\r\n\r\n",
    b"GET",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
    b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
    HEAD,
    HEAD + b"Content-Length: -5\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 30000\r\n\r\n",
    sized(BODY, len(BODY) + 10),
    sized(b"x" * 10, 10**12),
    sized(b"x" * 30_000),
    sized(b"[" * 19_000),
    sized(b'{"a":' * 3_000),
    sized(b"\xff" * 100),
    sized(BODY) * 40,
    sized(BODY, 5) + b"garbage",
    chunked(b"zz\r\n"),
    chunked(b"ffffffffffffffffff\r\n"),
    chunked(b"5\r\nhel"),
    chunked(b"7530\r\n" + b"x" * 30_000),
    chunked(*[b"1\r\nx\r\n"] * 500),
)


def hostile(count: int) -> Iterator[bytes]:
    """Yield requests: the fixed ones, then mutations of a good one and pieces of it, by a fixed seed."""
    yield from FIXED
    chance = random.Random(24)
    good = sized(BODY)
    for _ in range(count - len(FIXED)):
        wrong = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        yield bytes(wrong[: chance.randrange(1, len(wrong) + 1)])


async def send(url: str, request: bytes, ending: str) -> bytes:
    """Send bytes, end as told, and return what came back; a reset is an answer too."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        await writer.drain()
        if ending == "half-closed":
            writer.write_eof()
        if ending in ("half-closed", "waits"):
            return await reader.read()
        if ending == "aborts":
            writer.transport.abort()
    except OSError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return b""


async def serves(url: str) -> bool:
    """Return True if a good request is answered; with limits as tight as these it may take some attempts."""
    for _ in range(50):
        with contextlib.suppress(aiohttp.ClientError, OSError):
            if (await post(url, asking()))[0] == 200:
                return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_hostile_requests_leave_it_serving_and_holding_nothing() -> None:
    server = {"idle_timeout": 0.2, "connections_max": 64}
    most = 0
    async with upstream(well) as one, gateway(one, limits=LIMITS, server=server) as (served, url):
        requests = list(hostile(300))
        endings = ("half-closed", "waits", "aborts", "closes")
        answers: list[bytes] = []
        for start in range(0, len(requests), BATCH):
            batch = enumerate(requests[start : start + BATCH])
            answers += await asyncio.gather(*(send(url, each, endings[n % 4]) for n, each in batch))
            most = max(most, served._bodies.held)
        assert await served.idle(30)
        await until(lambda: served._bodies.held == 0)
        assert await serves(url)
        await until(lambda: len(served.server.connections) <= 1)
    assert most <= LIMITS["bodies_max"]
    codes = {answer.split(b" ")[1] for answer in answers if answer.startswith(b"HTTP/1.1 ")}
    assert codes >= {b"400"}
    assert not [answer for answer in answers if KEY.encode() in answer]


async def test_a_body_that_comes_too_slowly_is_refused() -> None:
    async with upstream(well) as one, gateway(one, limits=LIMITS) as (_, url):
        answer = await send(url, sized(BODY[:10], len(BODY)), "waits")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert not one.asked


@pytest.mark.parametrize(
    "request_", [sized(b"x" * 30_000), chunked(b"7530\r\n", b"x" * 30_000, b"\r\n0\r\n\r\n")]
)
async def test_a_body_that_is_too_large_is_refused(request_: bytes) -> None:
    limits = {**LIMITS, "body_timeout": 30.0}
    async with upstream(well) as one, gateway(one, limits=limits) as (_, url):
        answer = await send(url, request_, "waits")
    assert answer.startswith(b"HTTP/1.1 413 ") or not answer  # the client may see the reset first


async def test_many_slow_bodies_together_stay_below_their_bound() -> None:
    limits = {"body_max": 20_000, "bodies_max": 50_000, "body_timeout": 30.0}
    routing = {"queue_timeout": 0.02}
    async with upstream(well) as one, gateway(one, limits=limits, routing=routing) as (served, url):
        waiting = [asyncio.create_task(send(url, sized(b"x" * 15_000, 16_000), "waits")) for _ in range(8)]
        await until(lambda: sum(task.done() for task in waiting) >= 5)
        assert served._bodies.held <= 50_000
        for task in waiting:
            task.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [a for a in answers if isinstance(a, bytes) and a.startswith(b"HTTP/1.1 503 ")]
        await until(lambda: served._bodies.held == 0)
        assert await serves(url)


async def test_a_connection_that_sends_no_request_is_closed() -> None:
    async with upstream(well) as one, gateway(one, server={"idle_timeout": 0.05}) as (_, url):
        assert await send(url, b"POST /v1/chat", "waits") == b""


async def test_more_connections_than_allowed_are_closed_at_once() -> None:
    async with upstream(well) as one, gateway(one, server={"connections_max": 2}) as (served, url):
        host, _, port = url.removeprefix("http://").partition(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        await until(lambda: len(served.server.connections) == 2)
        assert await send(url, sized(BODY), "waits") == b""
        assert served.server.refused == 1
        for _, writer in held:
            writer.close()
        await until(lambda: not served.server.connections)
        assert await serves(url)
