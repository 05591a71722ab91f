"""Grandchild: clients of a web service, each of which asks again as soon as it has an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.children.pacer import figures
from benchmarks.children.protocol import serve

__all__ = ["measure"]

_REQUEST = b"GET / HTTP/1.1\r\nHost: benchmark\r\n\r\n"


def measure(*, port: int, clients: int, warmup: float, seconds: float) -> Mapping[str, Any]:
    """Return the answers per second and their times in seconds, of requests sent after the warm-up.

    Args:
        port: Where the service listens.
        clients: How many there are, each with a connection that it keeps.
        warmup: Seconds of requests that do not count.
        seconds: Seconds of those that do.
    """
    return asyncio.run(_measure(port, clients, warmup, seconds))


async def _measure(port: int, clients: int, warmup: float, seconds: float) -> Mapping[str, Any]:
    begin = time.perf_counter() + warmup
    times: list[float] = []
    asked = [_ask(port, begin, begin + seconds, times) for _ in range(clients)]
    answered = sum(await asyncio.gather(*asked))
    return {"requests": answered / seconds, "request": figures(times)}


async def _ask(port: int, begin: float, end: float, times: list[float]) -> int:
    """Ask until the end, and once at least after the warm-up; return the answers that came in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    counted = 0
    sent = 0.0
    while sent < end:
        sent = time.perf_counter()
        writer.write(_REQUEST)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"expected 200 from the service, got {head[:60]!r}")
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        answered = time.perf_counter()
        if sent >= begin:
            times.append(answered - sent)
            counted += answered < end
    writer.close()
    return counted


if __name__ == "__main__":
    serve(measure)
