"""A server on loopback that speaks the chat completions protocol and follows a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from openai import AsyncOpenAI, DefaultAioHttpClient

from hybridrt import Agent

__all__ = [
    "CUT",
    "END",
    "KEEP_ALIVE",
    "STALL",
    "Json",
    "ModelServer",
    "Status",
    "Wait",
    "call",
    "end",
    "spent",
    "text",
]

Json = dict[str, Any]


class Act:
    """Something else than a chunk that the server does."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Wait:
    """Go on when something has happened: a reset may overtake what was sent before it."""

    event: asyncio.Event


CUT = Act("resets the connection")
END = Act("ends the stream before its end was said")
KEEP_ALIVE = Act("sends comments that keep the connection alive, and nothing more")
STALL = Act("says nothing more and keeps the connection")


@dataclass(frozen=True)
class Status:
    """An answer that is no stream."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "no"
    body: Json | None = None


def text(content: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}


def call(name: str | None, arguments: str, *, index: int | None = 0, id: str | None = "a") -> Json:
    """Return a piece of a tool call."""
    function = {"name": name, "arguments": arguments}
    delta = {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def end(reason: str = "stop") -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def spent(prompt: int, completion: int) -> Json:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"choices": [], "usage": usage}


Piece = Json | str | Act | Wait
Answer = Status | Iterable[Piece]
Script = Callable[[int, Json], Answer]
"""Returns what the n-th request is answered with."""


class ModelServer:
    """Plays a script and keeps what it was sent.

    Args:
        script: The answers in the order of the requests, or a function that makes them.
    """

    def __init__(self, *script: Answer | Script) -> None:
        self._script = script
        self.requests: list[Json] = []
        self.content_type = "text/event-stream"
        self.open = 0
        """Requests that are answered now."""
        self._changed = asyncio.Event()

    async def stalled(self) -> None:
        """Wait until a request stands still."""
        while not self._changed.is_set():
            await self._changed.wait()
        self._changed.clear()

    async def idle(self) -> None:
        """Wait until no request is open, as after the client has closed its connections."""
        while self.open:  # noqa: ASYNC110  # handlers end when aiohttp finds the connection closed
            await asyncio.sleep(0.001)

    def tool_messages(self) -> list[Json]:
        """Return what the last request said that tools returned."""
        return [message for message in self.requests[-1]["messages"] if message["role"] == "tool"]

    def _next(self, body: Json) -> Answer:
        number = len(self.requests) - 1
        if len(self._script) == 1 and callable(self._script[0]):
            return self._script[0](number, body)
        answer = self._script[min(number, len(self._script) - 1)]
        assert not callable(answer)
        return answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.open += 1
        try:
            asked = await request.json()
            self.requests.append(asked)
            answer = self._next(asked)
            if isinstance(answer, Status):
                body = answer.body or {"error": {"message": answer.message}}
                return web.json_response(body, status=answer.code, headers=answer.headers)
            return await self._stream(request, answer)
        finally:
            self.open -= 1

    async def _stream(self, request: web.Request, pieces: Iterable[Piece]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.content_type})
        await response.prepare(request)
        for piece in pieces:
            if isinstance(piece, Wait):
                await piece.event.wait()
                continue
            if piece is CUT:
                assert request.transport is not None
                request.transport.abort()
                return response
            if piece is END:
                return response
            while piece is KEEP_ALIVE:
                await response.write(b": still here\n\n")
                await asyncio.sleep(0.001)
            if piece is STALL:
                self._changed.set()
                await asyncio.Event().wait()  # until the client goes
            head = {"id": "x", "object": "chat.completion.chunk", "model": "scripted"}
            line = piece if isinstance(piece, str) else json.dumps(head | piece)  # type: ignore[operator]
            await response.write(f"data: {line}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve within the block; gives the address up to `/v1`."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def agent(self, *tools: Any, **options: Any) -> AsyncIterator[Agent]:
        """Serve and give an agent that asks this server.

        Its client reads no certificates, which would take longer than most tests.
        """
        http_client = DefaultAioHttpClient(verify=False, trust_env=False)
        retries = options.get("retries", 2)
        async with self.serving() as url:
            async with AsyncOpenAI(
                base_url=url, api_key="x", max_retries=retries, http_client=http_client
            ) as client:
                yield Agent(client, "scripted", tools, **options)
