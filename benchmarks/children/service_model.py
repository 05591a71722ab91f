"""The model server of the service benchmark: asks for one tool after the other, then answers.

Speaks as much of OpenAI's protocol as the client needs, over aiohttp. Prints its port, and ends with its
standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

from benchmarks.children.service_tools import TOOLS, make_page

__all__ = ["main"]

_THINKING = 0.02
"""Seconds that the model takes for an answer."""


async def main() -> None:
    """Serve until standard input ends."""
    page = make_page()
    app = web.Application()

    async def complete(request: web.Request) -> web.Response:
        return await _complete(request)

    async def show_page(request: web.Request) -> web.Response:
        await asyncio.sleep(_THINKING)
        return web.Response(text=page, content_type="text/html")

    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/page", show_page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def _complete(request: web.Request) -> web.Response:
    asked = await request.json()
    await asyncio.sleep(_THINKING)
    done = sum(message["role"] == "tool" for message in asked["messages"])
    return web.json_response(_answer(done))


def _answer(done: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if done < len(TOOLS) else "All done."}
    if done < len(TOOLS):
        function = {"name": list(TOOLS)[done], "arguments": "{}"}
        message["tool_calls"] = [{"id": f"call_{done}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if done < len(TOOLS) else "stop"}
    return {"id": "chat", "object": "chat.completion", "created": 0, "model": "local", "choices": [choice]}


if __name__ == "__main__":
    asyncio.run(main())
