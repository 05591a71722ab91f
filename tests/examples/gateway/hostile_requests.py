"""Hostile clients by the thousand: the gateway goes on serving, with bounded memory, and shows no secret.

PYTHONPATH=.:examples python -m tests.examples.gateway.hostile_requests --requests 2000

The gateway is a process of its own. A hundred clients at once send what is malformed, smuggled, oversized or
too deep, send it slowly, close half of the connection, leave in mid-stream, or take nothing of their answer.
After each hundred a good request must be answered.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil
from aiohttp import web

import hybridrt

from .hostile_shapes import ENDLESS, MARK, SMUGGLED, WAYS, Way, make
from .servers import KEY, PROMPT, Upstream, asking, authorized, begin, chunk, upstream, well
from .test_process import running, write
from .test_service import post

__all__ = ["Found", "attack"]

AT_ONCE = 100
DEADLINE = 120.0
"""Seconds in which a client must have come to its end, and the gateway to rest."""
GROWTH_MAX = 64 << 20
"""Bytes that the process may grow by after its first hundreds; the bodies it holds are bounded by 8 MiB."""
UPSTREAM_KEY = "upstream-key-DO-NOT-SHOW"
SETTINGS = """
[limits]
body_max = 262144
bodies_max = 8388608
body_timeout = 0.3
"""


@dataclass
class Found:
    """What was seen.

    Attributes:
        ends: How many requests ended in which way: a status, or no answer.
        resident: Bytes of the gateway's memory, after each hundred.
        left: Requests whose upstream saw the client leave.
        answers: All that was sent to clients.
    """

    ends: Counter[str] = field(default_factory=Counter)
    resident: list[int] = field(default_factory=list)
    left: int = 0
    answers: list[bytes] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """Bytes of memory that came after the first tenth of the hundreds."""
        settled = self.resident[len(self.resident) // 10 :]
        return settled[-1] - settled[0]


async def attack(count: int, *, seed: int, folder: Path) -> Found:
    """Send so many hostile requests to a gateway whose files lie in a folder.

    Raises:
        AssertionError: It stopped serving, held something at the end, or showed a secret; says the seed.
    """
    found, dice, answers = Found(), random.Random(seed), _Answers()
    async with hybridrt.Runtime(), upstream(answers) as one, _gateway(folder, one) as (process, url):
        seen = psutil.Process(process.pid)
        for start in range(0, count, AT_ONCE):
            clients = [_client(url, dice, found) for _ in range(min(AT_ONCE, count - start))]
            await asyncio.gather(*clients)
            assert await _serves(url), f"seed {seed}: no good answer after {start + AT_ONCE} requests"
            found.resident.append(seen.memory_info().rss)
        metrics = await _at_rest(url)
        assert SMUGGLED not in {each.get("model") for each in one.asked}, f"seed {seed}: smuggled"
        found.left = answers.left
        process.send_signal(signal.SIGTERM)
        assert await hybridrt.offload(process.wait)(DEADLINE) == 0, await hybridrt.offload(_log)(folder)
    shown = [*found.answers, metrics.encode(), *await hybridrt.offload(_written)(folder)]
    for secret in (KEY, PROMPT, UPSTREAM_KEY, MARK):
        assert not [each for each in shown if secret.encode() in each], f"seed {seed}: shows {secret}"
    return found


class _Answers:
    """Answers well, or on and on until the client leaves; counts the latter."""

    def __init__(self) -> None:
        self.left = 0

    async def __call__(self, one: Upstream, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if one.asked[-1].get("model") != ENDLESS:
            return await well(one, request)
        try:
            out = await begin(request)
            while True:
                await out.write(chunk({"content": "on and on " * 100}))
                await asyncio.sleep(0.001)
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            raise


@asynccontextmanager
async def _gateway(folder: Path, one: Upstream) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """Run it; its log goes to a file, which never fills up as a pipe does."""
    config = await hybridrt.offload(write)(folder, one, idle_timeout=1.0, connections_max=2 * AT_ONCE)
    await hybridrt.offload(_add_settings)(config)
    with await hybridrt.offload(open)(folder / "log", "wb") as log:
        async with running(config, stderr=log, GATEWAY_HOSTILE_KEY=UPSTREAM_KEY) as started:
            yield started


def _add_settings(config: Path) -> None:
    text = config.read_text().replace(
        "[[upstreams]]", '[[upstreams]]\nkey_env = "GATEWAY_HOSTILE_KEY"\nstall_timeout = 0.5'
    )
    config.write_text(text + SETTINGS)


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


def _written(folder: Path) -> list[bytes]:
    """Return what the gateway wrote: its log and the audit log."""
    return [each.read_bytes() for each in [folder / "log", *(folder / "audit").rglob("*")] if each.is_file()]


# ---------------------------------------------------------------------- clients


async def _client(url: str, dice: random.Random, found: Found) -> None:
    """Send one hostile request in one of the ways, to its end."""
    request, way, cut = make(dice), dice.choice(WAYS), dice.random()
    if way is Way.LEAVES or way is Way.READS_NOTHING:
        request = make(dice, endless=True)
    host, _, port = url.removeprefix("http://").partition(":")
    answer = b""
    async with asyncio.timeout(DEADLINE):
        try:
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
        except OSError:
            found.ends["refused"] += 1
            return
        try:
            answer = await _converse(reader, writer, request, way, cut)
        except OSError:
            answer = answer or b"reset"
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
    found.answers.append(answer)
    status = re.match(rb"HTTP/1\.[01] (\d+)", answer)
    found.ends[f"{way.value}: {status[1].decode() if status else 'no answer'}"] += 1


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, way: Way, cut: float
) -> bytes:
    if way is Way.SLOW:
        at = int(cut * len(request))
        writer.write(request[:at])
        for number in range(at, min(at + 30, len(request))):
            writer.write(request[number : number + 1])
            await asyncio.sleep(0.02)
        return await reader.read()
    writer.write(request[: int(cut * len(request))] if way is Way.CUT else request)
    if way is Way.READS_NOTHING:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(1.0)
        return b""
    if way is Way.LEAVES:
        return await reader.read(100)
    if way is Way.ABORTS:
        return b""
    await writer.drain()
    if way in (Way.HALF_CLOSED, Way.CUT):
        writer.write_eof()
    return await reader.read()


async def _serves(url: str) -> bool:
    """Return True if a good request is answered; what is overloaded says so, and is asked again."""
    until = asyncio.get_running_loop().time() + DEADLINE
    while asyncio.get_running_loop().time() < until:
        with suppress(aiohttp.ClientError, OSError):
            if (await post(url, asking()))[0] == 200:
                return True
        await asyncio.sleep(0.05)
    return False


async def _at_rest(url: str) -> str:
    """Return the metrics once no body is held and no connection is open but this one."""
    async with asyncio.timeout(DEADLINE):
        while True:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{url}/metrics", headers=authorized()) as answer:
                    text = await answer.text()
            gauges = dict(re.findall(r"^gateway_(body_bytes|connections) (\S+)$", text, re.MULTILINE))
            running = re.findall(r"^gateway_upstream_(?:running|waiting)\{.*\} (\S+)$", text, re.MULTILINE)
            if float(gauges["body_bytes"]) == 0.0 and float(gauges["connections"]) <= 1.0:
                assert set(map(float, running)) == {0.0}, text
                return text
            await asyncio.sleep(0.05)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=24)
    options = parser.parse_args()
    logging.disable()  # the upstream's clients leave, as they should
    print(f"CPython {sys.version.split()[0]}, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        found = asyncio.run(attack(options.requests, seed=options.seed, folder=Path(home)))
    for end, count in sorted(found.ends.items()):
        print(f"{count:6} {end}")
    print(f"{found.left} endless answers were ended when their client left or took nothing")
    print("resident MiB after each hundred:", *(size >> 20 for size in found.resident))
    assert found.growth <= GROWTH_MAX, f"seed {options.seed}: grew by {found.growth} bytes"
    print(f"{options.requests} hostile requests; it serves, holds nothing, shows no key and no prompt")


if __name__ == "__main__":
    main()
