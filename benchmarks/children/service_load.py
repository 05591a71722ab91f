"""Asks a service from outside: so many chats at once, or /health at a steady rate; prints what came when."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp

__all__ = ["main"]

_TIMEOUT = aiohttp.ClientTimeout(total=300)


async def _chats(session: aiohttp.ClientSession, url: str, seconds: float, at_once: int) -> list[list[float]]:
    """Keep so many chats under way; return the end and the length of each that ended in time."""
    begun = time.perf_counter()
    ended: list[list[float]] = []
    numbers = iter(range(1 << 30))

    async def ask() -> None:
        while True:
            start = time.perf_counter()
            async with session.post(f"{url}/chat/{next(numbers)}") as answer:
                answer.raise_for_status()
                await answer.read()
            now = time.perf_counter()
            ended.append([now - begun, now - start])

    asking = [asyncio.ensure_future(ask()) for _ in range(at_once)]
    done, _ = await asyncio.wait(asking, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    for task in done:
        task.result()  # only an error ends one
    return ended


async def _health(session: aiohttp.ClientSession, url: str, seconds: float, rate: float) -> list[list[float]]:
    """Ask at a steady rate whatever comes back; return when each was due, and how long after that it came."""
    begun = time.perf_counter()
    came: list[list[float]] = []

    async def ask(due: float) -> None:
        async with session.get(f"{url}/health") as answer:
            await answer.read()
        came.append([due, time.perf_counter() - begun - due])

    asking = []
    for number in range(int(seconds * rate)):
        due = number / rate
        await asyncio.sleep(max(0.0, begun + due - time.perf_counter()))
        asking.append(asyncio.ensure_future(ask(due)))
    await asyncio.gather(*asking)
    return came


async def main(kind: str, url: str, seconds: float, amount: float) -> list[list[float]]:
    """Ask, from the moment at which standard input says so."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as session:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if kind == "chats":
            return await _chats(session, url, seconds, int(amount))
        return await _health(session, url, seconds, amount)


def _start(**asked: Any) -> None:
    print(json.dumps(asyncio.run(main(**asked))), flush=True)


if __name__ == "__main__":
    _start(**json.loads(sys.argv[1]))
