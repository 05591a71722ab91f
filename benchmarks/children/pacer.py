"""Grandchild: echo clients that send on time, whatever comes back.

Requests have their times before the first is sent, and latency counts from there: a server that
stands still for a second is charged for every request of that second, not for the one that a client
who waits for answers would have sent. The times are evenly spread, each moved within its slot by
chance (with a fixed seed), so that they cannot march in step with the server.

Prints `go` when the warm-up is over, and the figures at the end.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from benchmarks.children.protocol import serve

__all__ = ["SIZE", "figures", "measure", "schedule"]

SIZE = 64
"""Bytes of a request and of its answer."""
_PATIENCE = 60.0
"""Seconds without any answer after which the server counts as hung."""


def measure(
    *, port: int, rate: float, connections: int, warmup: float, seconds: float, cpu: int | None = None
) -> Mapping[str, Any]:
    """Return the latencies of the requests that were due after the warm-up, in seconds.

    Args:
        port: Where the server listens.
        rate: Requests per second over all connections.
        connections: How many there are; they take turns.
        warmup: Seconds of requests that do not count.
        seconds: Seconds of those that do.
        cpu: Which core to keep to.
    """
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    clients = [_Client(port) for _ in range(connections)]
    begin = time.perf_counter() + 0.05
    times = [begin + at for at in schedule(rate, warmup + seconds)]
    late = _exchange(clients, times, begin + warmup)
    counted = [taken for client in clients for due, taken in client.answers if due >= begin + warmup]
    return {"latency": figures(counted), "sent_late": figures(late)}


def schedule(rate: float, seconds: float) -> list[float]:
    """Return when to send: one request in each slot of 1/rate seconds, at random within it."""
    chance = Random(1)
    return [(slot + chance.random()) / rate for slot in range(round(rate * seconds))]


def _exchange(clients: Sequence[_Client], times: Sequence[float], counts_from: float) -> list[float]:
    """Send every request at its time and take all answers; return how late the counted ones left."""
    late: list[float] = []
    sent = answered = 0
    warm = False
    while answered < len(times):
        now = time.perf_counter()
        while sent < len(times) and times[sent] <= now:
            clients[sent % len(clients)].send(times[sent])
            if times[sent] >= counts_from:
                late.append(now - times[sent])
            sent += 1
        if not warm and now >= counts_from:
            warm = True
            print("go", flush=True)
        wait = max(0.0, times[sent] - time.perf_counter()) if sent < len(times) else _PATIENCE
        ready, _, _ = select.select(clients, [], [], wait)
        if not ready and sent == len(times):
            raise TimeoutError(f"the server left {sent - answered} of {sent} requests unanswered")
        answered += sum(client.receive() for client in ready)
    return late


class _Client:
    """One connection; answers come in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open: deque[float] = deque()
        self._bytes = 0
        self.answers: list[tuple[float, float]] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, due: float) -> None:
        self._socket.sendall(b"x" * SIZE)
        self._open.append(due)

    def receive(self) -> int:
        """Take what has come; return how many answers that completed."""
        received = len(self._socket.recv(1 << 16))
        if not received:
            raise ConnectionError("the server closed a connection")
        now = time.perf_counter()
        count, self._bytes = divmod(self._bytes + received, SIZE)
        for _ in range(count):
            due = self._open.popleft()
            self.answers.append((due, now - due))
        return count


def figures(values: Sequence[float]) -> Mapping[str, float]:
    """Return count and quantiles."""
    ordered = sorted(values)
    last = len(ordered) - 1
    quantiles = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {"count": len(ordered)} | {name: ordered[round(share * last)] for name, share in quantiles.items()}


if __name__ == "__main__":
    serve(measure)
