"""Child of a child: a vector store that answers over HTTP after some tens of milliseconds.

Prints its port as a line of JSON and ends when its standard input does, however its parent ended.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading

from aiohttp import web

__all__ = ["make_app"]

_SECONDS = 0.03
_MATCHES, _DIMENSIONS, _WORDS = 20, 384, 180


def make_app() -> web.Application:
    """Return a server with one answer: twenty matches with text, metadata and embedding, some 190 kB."""
    body = json.dumps({"matches": [_match(number) for number in range(_MATCHES)]}).encode()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(_SECONDS)
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_post("/query", answer)
    return app


def _match(number: int) -> dict[str, object]:
    seeded = random.Random(number)
    words = ["".join(seeded.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(_WORDS)]
    return {
        "id": f"chunk-{number}",
        "score": seeded.random(),
        "metadata": {"source": f"page-{number % 7}.html", "section": number, "language": "en"},
        "text": " ".join(words),
        "values": [seeded.gauss(0, 1) for _ in range(_DIMENSIONS)],
    }


async def _serve() -> None:
    runner = web.AppRunner(make_app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    closed = asyncio.Event()
    threading.Thread(target=_watch, args=(asyncio.get_running_loop(), closed), daemon=True).start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await closed.wait()
    await runner.cleanup()


def _watch(loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
    sys.stdin.read()
    loop.call_soon_threadsafe(closed.set)


if __name__ == "__main__":
    asyncio.run(_serve())
