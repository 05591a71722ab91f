"""Process: a model, by the chat completions protocol, and a site of documents, for the agents benchmark.

The model asks for all tools that it is offered, at once, and answers when it has their results. A document
takes 50 ms. Prints its address as one line of JSON and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

WAIT = 0.05
"""Seconds that a document takes."""
_PAGE = "<html>" + "".join(f"<h2>Part {n}</h2><p>{'some words and ' * 12}</p>" for n in range(40)) + "</html>"


async def _document(request: web.Request) -> web.Response:
    await asyncio.sleep(WAIT)
    return web.Response(text=_PAGE, content_type="text/html")


async def _complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    deltas, reason = _reply(body)
    head = {"id": "x", "created": 0, "model": "bench"}
    if not body.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for delta in deltas:
            message |= delta
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response(head | {"object": "chat.completion", "choices": [choice]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for delta, finish in (*((delta, None) for delta in deltas), ({}, reason)):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = head | {"object": "chat.completion.chunk", "choices": [choice]}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _reply(body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    if told := [message["content"] for message in body["messages"] if message["role"] == "tool"]:
        if failed := [content for content in told if not _is_number(content)]:
            raise web.HTTPBadRequest(text=f"expected a number from each tool, got {failed[0]!r}")
        return [{"content": "That is the answer."}], "stop"
    question = body["messages"][-1]["content"]
    calls = [
        {
            "index": number,
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": tool["function"]["name"], "arguments": json.dumps({"query": question})},
        }
        for number, tool in enumerate(body["tools"])
    ]
    return [{"tool_calls": calls}], "tool_calls"


def _is_number(content: str) -> bool:
    """Return True if that is what a tool returns; one that fails sends words, and is no work done."""
    try:
        float(content)
    except ValueError:
        return False
    return True


async def _serve() -> None:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/document", _document)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
