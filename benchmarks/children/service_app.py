"""The service: FastAPI on uvicorn, an agent behind /chat that calls its synchronous tools one way or another.

Prints its port when it has started, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from fastapi import FastAPI
from openai import AsyncOpenAI

from benchmarks.children.service_tools import PURE, TOOLS, arguments

__all__ = ["main"]

Run = Callable[..., Awaitable[Any]]


async def _to_thread(tool: str, *args: Any) -> Any:
    return await asyncio.to_thread(TOOLS[tool], *args)


def _pure() -> Run:
    from hybridrt import offload

    placed = {name: offload(TOOLS[name], pure=True) for name in PURE}

    async def run(tool: str, *args: Any) -> Any:
        return await (placed[tool](*args) if tool in placed else _to_thread(tool, *args))

    return run


def _runtime(way: str) -> AbstractAsyncContextManager[object]:
    if way == "to_thread":
        return nullcontext()
    import hybridrt

    return hybridrt.Runtime()


def _make_app(way: str, model: str, database: str, started: Callable[[], None]) -> FastAPI:
    run: Run = _pure() if way == "pure" else _to_thread

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncOpenAI(base_url=f"{model}/v1", api_key="none", timeout=300.0) as client:
            app.state.client = client
            # What the client imports with its first request is no part of what is measured.
            await client.chat.completions.create(model="local", messages=[{"role": "user", "content": "-"}])
            async with _runtime(way):
                started()
                yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/chat/{number}")
    async def chat(number: int) -> dict[str, Any]:
        messages: list[Any] = [{"role": "user", "content": f"question {number}"}]
        while True:
            answer = await app.state.client.chat.completions.create(model="local", messages=messages)
            message = answer.choices[0].message
            if not message.tool_calls:
                return {"answer": message.content}
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                name = call.function.name
                value = await run(name, *arguments(name, number, model, database))
                content = json.dumps(value)[:1000]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    return app


def main(way: str, model: str, database: str) -> None:
    """Serve until standard input ends."""
    for tool in TOOLS:  # the documents are made before anything is measured
        if tool in PURE:
            arguments(tool, 0, model, database)
    listening = socket.create_server(("127.0.0.1", 0))

    def started() -> None:
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)

    app = _make_app(way, model, database, started)
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)

    def end_with_input() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end_with_input, daemon=True).start()
    server.run(sockets=[listening])


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
