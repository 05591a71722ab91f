"""A FastAPI service whose loop stays awake while its endpoints compute.

    uv run --extra frameworks examples/fastapi_app.py             # serves, asks itself, ends
    uv run --extra frameworks uvicorn --app-dir examples fastapi_app:app

`lifespan=lifespan()` is all that hybridrt needs. The endpoint that is a plain `def` knows nothing of it:
it runs on the runtime's threads instead of anyio's. `/words` says by a decorator that it may run in another
process, which is what protects the loop from one long call that keeps the GIL. No other process can import
functions of the script that is started: with the first command `/words` stays in threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Annotated

try:
    import httpx
    import uvicorn
    from fastapi import Body, FastAPI
except ModuleNotFoundError as error:
    message = f"expected the packages of the extra `frameworks`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra frameworks examples/fastapi_app.py`")

import hybridrt
from hybridrt import offload
from hybridrt.integrations.starlette import lifespan

app = FastAPI(lifespan=lifespan(shutdown_timeout=10))
REQUESTS = 32
RECORDS = json.dumps([{"id": n, "name": f"record {n}", "tags": ["a", "b"]} for n in range(2_000)])


def fetch_records() -> str:
    """Stand for a database driver that waits 50 ms for its answer."""
    time.sleep(0.05)
    return RECORDS


@app.get("/records/{count}")
def records(count: int) -> dict[str, int]:
    """Wait for the database, then parse what it sent: a plain function, as FastAPI's own guide has it."""
    found = json.loads(fetch_records())[:count]
    return {"records": len(found), "tags": sum(len(record["tags"]) for record in found)}


@offload(pure=True)
def count_words(text: str) -> int:
    """Compute alone: no shared state, so it may run in another process that can import this module."""
    return len(set(text.lower().split()))


@app.post("/words")
async def words(text: Annotated[str, Body(embed=True)]) -> int:
    """Offload from a coroutine."""
    return await count_words(text)


@app.get("/statistics")
async def statistics() -> dict[str, object]:
    """Say what the runtime knows: functions, places, delays, decisions."""
    return hybridrt.Runtime.current().statistics().to_dict()


async def ask(url: str) -> None:
    """Send requests at once and print what came back."""
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        asked = [client.get(f"/records/{n}") for n in range(REQUESTS)]
        answers = await asyncio.gather(*asked, client.post("/words", json={"text": "To be or not to be"}))
        counts = [answer.json()["records"] for answer in answers[:REQUESTS]]
        print(f"{len(counts)} requests at once: {sum(counts)} records; {answers[-1].json()} different words")
        seen = (await client.get("/statistics")).json()
        for function in seen["functions"]:
            print(f"{function['name']:<40} {function['calls']:>3} calls")


async def main() -> None:
    """Serve on a free port of this machine, ask, and stop."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        if not serving.done():
            await ask(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    asyncio.run(main())
