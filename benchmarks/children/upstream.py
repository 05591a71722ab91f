"""Grandchild: the service that a tool asks. It waits, then sends some 100 kB of JSON.

It prints its port and serves until its standard input is closed, as by the end of the process above it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

__all__ = ["RECORDS", "serving"]

RECORDS = 1_100
"""Records of an answer, which is 100 kB of JSON then."""


def _answer() -> bytes:
    records = [
        {"id": n, "title": f"record {n} of the answer", "score": n / 7, "tags": ["first", "second"]}
        for n in range(RECORDS)
    ]
    body = json.dumps(records).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


async def _handle(
    answer: bytes, pause: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(pause)
        writer.write(answer)
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):  # the measurement is over
        pass
    finally:
        writer.close()


async def _main(pause: float) -> None:
    server = await asyncio.start_server(partial(_handle, _answer(), pause), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@asynccontextmanager
async def serving(pause: float) -> AsyncIterator[str]:
    """Give the address of such a service, which waits `pause` seconds before each answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.children.upstream", str(pause),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/"
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
