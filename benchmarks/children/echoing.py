"""An echo service on the running loop, and the paced clients of another process that use it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Pace", "Paced", "pace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the clients send; see `pacer`.

    Attributes:
        cpu: Which core the clients keep to; None leaves that to the system.
    """

    rate: float
    connections: int
    warmup: float
    seconds: float
    cpu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """What the clients saw, and what the service did meanwhile.

    Attributes:
        clients: Figures of the latency, and of how late the clients themselves were.
        counted: How much further the service's own counts got per second.
    """

    clients: Mapping[str, Any]
    counted: Mapping[str, float]


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def pace(pace: Pace, counts: Callable[[], Mapping[str, float]]) -> Paced:
    """Serve until the clients have all answers; `counts` is asked when they begin to count, and at the end.

    Raises:
        RuntimeError: The clients failed.
    """
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    async with server:
        arguments = {"port": server.sockets[0].getsockname()[1]}
        arguments |= {name: getattr(pace, name) for name in Pace.__slots__}
        clients = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.children.pacer", json.dumps(arguments),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert clients.stdout is not None
        await clients.stdout.readline()
        begun, before = time.perf_counter(), counts()
        printed = await clients.stdout.read()
        seconds, after = time.perf_counter() - begun, counts()
        if await clients.wait():
            raise RuntimeError("the clients failed; see above")
    counted = {name: (after[name] - before[name]) / seconds for name in before}
    return Paced(clients=json.loads(printed), counted=counted)
