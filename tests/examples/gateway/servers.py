"""Real servers for the tests: upstreams that speak the protocol or break it, and the gateway before them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from gateway.config import parse
from gateway.service import Gateway
from gateway.serving import bind, serving

import hybridrt

KEY = "key-of-team-a-DO-NOT-SHOW"
PROMPT = "prompt-DO-NOT-SHOW"
WORDS = ("Foxes ", "live ", "in ", "dens.")
HEAD = {"id": "chatcmpl-1", "created": 0, "model": "small"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}

Behaviour = Callable[["Upstream", web.Request], Awaitable[web.StreamResponse]]


class Upstream:
    """A server that answers as `behave` says, and remembers what it was asked."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.came, self.gone, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Take note, then behave."""
        self.headers.append(request.headers.copy())
        self.asked.append(json.loads(await request.read()))
        self.came.set()
        try:
            return await self.behave(self, request)
        except asyncio.CancelledError:
            self.gone.set()
            raise
        except ConnectionError:
            self.gone.set()
            return web.Response()  # goes nowhere


@asynccontextmanager
async def upstream(behave: Behaviour) -> AsyncIterator[Upstream]:
    """Serve one on 127.0.0.1."""
    one = Upstream(behave)
    app = web.Application(client_max_size=8 << 20)
    app.router.add_post("/v1/{rest:.*}", one.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield one
    finally:
        one.go.set()
        await runner.cleanup()


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one event of a stream."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return (
        b"data: "
        + json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": choices}).encode()
        + b"\n\n"
    )


async def begin(request: web.Request) -> web.StreamResponse:
    """Begin a stream of events."""
    out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await out.prepare(request)
    return out


async def well(self: Upstream, request: web.Request) -> web.StreamResponse:
    """Answer as it should: a stream or not, tools if there are some."""
    asked = self.asked[-1]
    if not asked.get("stream"):
        message = {"role": "assistant", "content": "".join(WORDS)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return web.json_response({**HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE})
    out = await begin(request)
    if asked.get("tools"):
        call = {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "look_up", "arguments": ""},
        }
        await out.write(chunk({"role": "assistant", "tool_calls": [call]}))
        for piece in ('{"word": ', '"fox"}'):
            await out.write(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
        await out.write(chunk({}, "tool_calls"))
    else:
        for word in WORDS:
            await out.write(chunk({"content": word}))
        await out.write(chunk({}, "stop"))
    await out.write(b"data: [DONE]\n\n")
    return out


def status(number: int, **headers: str) -> Behaviour:
    """Return what answers with a status; the text repeats the request's key, as some upstreams do."""

    async def behave(self: Upstream, request: web.Request) -> web.StreamResponse:
        text = json.dumps({"error": {"message": f"bad key {request.headers.get('Authorization')}"}})
        return web.Response(status=number, text=text, headers=headers, content_type="application/json")

    return behave


async def reset(self: Upstream, request: web.Request) -> web.StreamResponse:
    """Reset the connection instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError


async def stall(self: Upstream, request: web.Request) -> web.StreamResponse:
    """Answer nothing until `go`, then well."""
    await self.go.wait()
    return await well(self, request)


async def stall_inside(self: Upstream, request: web.Request) -> web.StreamResponse:
    """Send one word, the rest after `go`."""
    out = await begin(request)
    await out.write(chunk({"content": WORDS[0]}))
    await self.go.wait()
    for word in WORDS[1:]:
        await out.write(chunk({"content": word}))
    await out.write(b"data: [DONE]\n\n")
    return out


async def break_inside(self: Upstream, request: web.Request) -> web.StreamResponse:
    """Send one word, and break off after `go`."""
    out = await begin(request)
    await out.write(chunk({"content": WORDS[0]}))
    await self.go.wait()
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError


def settings(*upstreams: Upstream, **tables: Any) -> dict[str, Any]:
    """Return a configuration with a key for everything, and the upstreams under the names a, b, ..."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    options = tables.pop("upstream", {})
    return {
        "keys": [{"name": "team-a", "sha256": digest, "rate": 1e6, "burst": 1e6}],
        "upstreams": [
            {"name": name, "url": each.url, **options}
            for name, each in zip("abcdef", upstreams, strict=False)
        ],
        **tables,
    }


@asynccontextmanager
async def gateway(*upstreams: Upstream, **tables: Any) -> AsyncIterator[tuple[Gateway, str]]:
    """Serve the gateway before some upstreams; give it and its address."""
    config = parse(settings(*upstreams, **tables))
    listener = bind("127.0.0.1", 0, shared=False)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with hybridrt.Runtime(), serving(config, listener) as served:
        yield served, address


def asking(**more: Any) -> dict[str, Any]:
    """Return what a client sends."""
    return {"model": "small", "messages": [{"role": "user", "content": PROMPT}], **more}


def authorized(key: str = KEY) -> dict[str, str]:
    """Return the header with a key."""
    return {"Authorization": f"Bearer {key}"}


def audit_in(folder: Path, durability: str = "strict") -> dict[str, str]:
    """Return the table of an audit log."""
    return {"folder": str(folder), "durability": durability}


async def until(told: Callable[[], object]) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(30):
        while True:
            if told():
                return
            await asyncio.sleep(0)
