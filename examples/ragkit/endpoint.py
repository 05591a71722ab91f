"""The extractive answerer behind the OpenAI chat completions protocol, as a process of its own.

Started by `endpoint_process`, or by hand: `python -m ragkit.endpoint --onnx FILE --model DIR`. It serves
`/v1/models` and `/v1/chat/completions` (plain and SSE, tool calls, usage chunk) on 127.0.0.1, prints its
address as one line of JSON, and ends when its standard input does: the pipe closes with the parent,
however the parent ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

import hybridrt

from . import answerer
from .encoder import Encoder
from .model import find_model

__all__ = ["make_app"]

Json = dict[str, Any]

_BODY_MAX = 32 * 1024 * 1024
_ARGUMENT_PIECE = 16
_ENCODER = web.AppKey("encoder", Encoder)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the answerer says next: text, or tools to call."""

    text: str
    calls: tuple[answerer.ToolRequest, ...] = ()

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


def make_app(encoder: Encoder) -> web.Application:
    """Return the server; it keeps no state between requests."""
    app = web.Application(client_max_size=_BODY_MAX)
    app[_ENCODER] = encoder
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _completions)
    app.router.add_route("*", "/{rest:.*}", _unknown)
    return app


@hybridrt.offload
def compose(encoder: Encoder, question: str, passages: Sequence[answerer.Found]) -> str:
    """Pick the sentences; the only work here that is too long for the loop."""
    return answerer.compose(question, passages, encoder.encode)


async def _models(request: web.Request) -> web.Response:
    model = {"id": answerer.NAME, "object": "model", "created": 0, "owned_by": "hybridrt"}
    return web.json_response({"object": "list", "data": [model]})


async def _unknown(request: web.Request) -> web.Response:
    return _error(404, f"expected /v1/models or /v1/chat/completions, got {request.path}")


async def _completions(request: web.Request) -> web.StreamResponse:
    try:
        body = await request.json()
    except ValueError as error:
        return _error(400, f"expected a JSON object, got {error}")
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return _error(400, "expected a JSON object with a list of messages")
    reply = await _reply(request.app[_ENCODER], body)
    if body.get("stream"):
        return await _stream(request, body, reply)
    return web.json_response(_completion(body, reply))


async def _reply(encoder: Encoder, body: Json) -> Reply:
    messages = body["messages"]
    offered = body.get("tools") or []
    tools = offered if body.get("tool_choice") != "none" else []
    calls = answerer.requests(messages, tools)
    if calls:
        return Reply("", tuple(calls))
    question = answerer.question_of(messages)
    return Reply(await compose(encoder, question, answerer.found_passages(messages)))


def _completion(body: Json, reply: Reply) -> Json:
    calls = [_call(number, call) for number, call in enumerate(reply.calls)]
    message: Json = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    return _head("chat.completion") | {"choices": [choice], "usage": _usage(body, reply)}


async def _stream(request: web.Request, body: Json, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    head = _head("chat.completion.chunk")
    async for event in _events(head, body, reply):
        await response.write(b"data: " + event + b"\n\n")
    await response.write_eof()
    return response


async def _events(head: Json, body: Json, reply: Reply) -> AsyncIterator[bytes]:
    for delta in _deltas(reply):
        yield _chunk(head, [{"index": 0, "delta": delta, "finish_reason": None}])
    yield _chunk(head, [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield json.dumps(head | {"choices": [], "usage": _usage(body, reply)}).encode()
    yield b"[DONE]"


def _deltas(reply: Reply) -> Iterator[Json]:
    yield {"role": "assistant", "content": "" if reply.text else None}
    for word in re.findall(r"\s*\S+", reply.text):
        yield {"content": word}
    for number, call in enumerate(reply.calls):
        whole = _call(number, call)
        arguments = whole["function"]["arguments"]
        yield {"tool_calls": [whole | {"function": {"name": call.name, "arguments": ""}}]}
        for start in range(0, len(arguments), _ARGUMENT_PIECE):
            piece = {"arguments": arguments[start : start + _ARGUMENT_PIECE]}
            yield {"tool_calls": [{"index": number, "function": piece}]}


def _call(number: int, call: answerer.ToolRequest) -> Json:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"index": number, "id": f"call_{uuid.uuid4().hex[:12]}", "type": "function", "function": function}


def _chunk(head: Json, choices: list[Json]) -> bytes:
    return json.dumps(head | {"choices": choices}).encode()


def _head(kind: str) -> Json:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:16]}",
        "object": kind,
        "created": int(time.time()),
        "model": answerer.NAME,
    }


def _usage(body: Json, reply: Reply) -> Json:
    """Count words: the answerer has no tokens of its own."""
    asked = sum(len(str(message.get("content") or "").split()) for message in body["messages"])
    said = len(reply.text.split()) + sum(len(json.dumps(call.arguments).split()) for call in reply.calls)
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _error(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=status)


@contextlib.asynccontextmanager
async def _serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _parent_gone() -> asyncio.Event:
    """Return an event that is set when standard input ends.

    A thread, because not every loop can watch every kind of standard input, and `os.read`, because
    a daemon thread inside `sys.stdin` at exit would hold a lock that the interpreter wants.
    """
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return gone


async def _serve(encoder: Encoder) -> None:
    gone = _parent_gone()
    async with _serving(make_app(encoder)) as url:
        print(json.dumps({"url": url}), flush=True)
        await gone.wait()


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="ragkit.endpoint", description=__doc__)
    parser.add_argument("--onnx", type=Path, required=True, help="the model's ONNX file")
    parser.add_argument("--model", type=Path, default=None, help="the model's folder")
    options = parser.parse_args(arguments)
    encoder = Encoder(find_model(options.model), options.onnx)
    with contextlib.suppress(KeyboardInterrupt):
        hybridrt.run(_serve(encoder))


if __name__ == "__main__":
    main(sys.argv[1:])
