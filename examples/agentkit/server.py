"""A process that stands in for a model, by the chat completions protocol, and for the shop's warehouse.

The model calls every tool that it is offered, side by side, with arguments made of the tool's JSON schema
and the last word of the question, and then repeats what the tools said. It prints its address as one line
of JSON, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

from aiohttp import web

__all__ = ["make_app"]

Json = dict[str, Any]

_WAIT = 0.05
"""Seconds that the warehouse takes."""
_requests = itertools.count(1)


def make_app() -> web.Application:
    """Return the server."""
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/stock/{thing}", _stock)
    return app


async def _stock(request: web.Request) -> web.Response:
    await asyncio.sleep(_WAIT)
    if next(_requests) % 3 == 0:
        return web.Response(status=503)
    thing = request.match_info["thing"]
    return web.json_response({"thing": thing, "pieces": 7 * len(thing)})


async def _complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    head = {"id": "local", "object": "chat.completion.chunk", "created": 0, "model": body.get("model")}
    for chunk in _chunks(body):
        await response.write(b"data: " + json.dumps(head | chunk).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _chunks(body: Json) -> Iterator[Json]:
    messages = body["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    tools = body.get("tools") or []
    if tools and not results:
        question, reason = messages[-1]["content"], "tool_calls"
        deltas = [_call(number, tool, question) for number, tool in enumerate(tools)]
    else:
        deltas, reason = [{"content": f"{result}\n"} for result in results], "stop"
    for delta in deltas:
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    read, said = len(json.dumps(messages).split()), len(json.dumps(deltas).split())
    usage = {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}
    yield {"choices": [], "usage": usage}


def _call(number: int, tool: Json, question: str) -> Json:
    schema = tool["function"]["parameters"]
    word = (question.split() or ["nothing"])[-1].strip("?.!")
    arguments = {name: word for name in schema["required"] if schema["properties"][name]["type"] == "string"}
    function = {"name": tool["function"]["name"], "arguments": json.dumps(arguments)}
    return {
        "tool_calls": [{"index": number, "id": f"call_{number}", "type": "function", "function": function}]
    }


async def _serve() -> None:
    runner = web.AppRunner(make_app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
