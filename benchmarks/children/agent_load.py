"""Process: questions to a service over HTTP, each four requests at once, so many in flight at any time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from benchmarks.children.agents import stand
from benchmarks.children.protocol import serve

NAMES = ("orders", "embed", "fetch", "search")


async def _measure(port: int, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", connector=connector, timeout=timeout
    ) as session:

        async def one(name: str, question: str) -> None:
            async with session.get(f"/{name}", params={"query": question}) as response:
                response.raise_for_status()
                await response.read()

        async def ask(question: str) -> None:
            await asyncio.gather(*(one(name, question) for name in NAMES))

        return await stand(ask, int(pacing["questions"]), pacing["warmup"], pacing["seconds"])


def measure(*, port: int, pacing: Mapping[str, float]) -> Mapping[str, Any]:
    """Return the questions per second and their times."""
    begun = time.perf_counter()
    found = asyncio.run(_measure(port, pacing))
    return {**found, "took": time.perf_counter() - begun}


if __name__ == "__main__":
    serve(measure)
