"""Grandchild: clients of the gateway, each of which sends its next request when it has its answer.

Half of the requests ask for a stream; one in 64 has a prompt of 200 kB. A request that is not answered
with 200 counts as an error and not as a request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.children.pacer import figures
from benchmarks.children.protocol import serve

__all__ = ["LARGE_EVERY", "measure"]

LARGE_EVERY = 64
_LARGE = 200_000
_WORDS = "the quick brown fox jumps over the lazy dog "


def measure(
    *, port: int, key: str, model: str, concurrency: int, warmup: float, seconds: float
) -> Mapping[str, Any]:
    """Return requests per second and latencies of the requests that ended after the warm-up, in seconds."""
    load = _Load(port, key, model, warmup, seconds)
    return asyncio.run(load.run(concurrency))


class _Load:
    def __init__(self, port: int, key: str, model: str, warmup: float, seconds: float) -> None:
        self._port, self._warmup, self._seconds = port, warmup, seconds
        self._requests = [
            _request(key, model, large=n % LARGE_EVERY == 7, stream=n % 2 == 0) for n in range(LARGE_EVERY)
        ]
        self._sent = self._errors = 0
        self._taken: list[float] = []
        self._counts_from = self._ends = 0.0

    async def run(self, concurrency: int) -> Mapping[str, Any]:
        begin = time.perf_counter()
        self._counts_from = begin + self._warmup
        self._ends = self._counts_from + self._seconds
        await asyncio.gather(*(self._client() for _ in range(concurrency)))
        rate = len(self._taken) / (time.perf_counter() - self._counts_from)
        if not self._taken:
            raise RuntimeError(f"no request was answered with 200, {self._errors} were not")
        return {"rate": rate, "errors": self._errors, "latency": figures(self._taken)}

    async def _client(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        while (began := time.perf_counter()) < self._ends:
            self._sent += 1
            writer.write(self._requests[self._sent % LARGE_EVERY])
            status = await _answer(reader)
            ended = time.perf_counter()
            if ended >= self._counts_from:
                if status == 200:
                    self._taken.append(ended - began)
                else:
                    self._errors += 1
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read a whole answer and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" in head:
        await reader.readuntil(b"\r\n0\r\n\r\n")
    else:
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    return status


def _request(key: str, model: str, *, large: bool, stream: bool) -> bytes:
    content = (_WORDS * (_LARGE // len(_WORDS) + 1))[:_LARGE] if large else _WORDS * 3
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": content}], "stream": stream}
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    serve(measure)
