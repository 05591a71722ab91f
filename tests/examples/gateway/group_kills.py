"""The gateway's whole process group is killed under load, again and again; every answer has its record.

PYTHONPATH=.:examples python -m tests.examples.gateway.group_kills --rounds 100
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp
from gateway.audit.recovery import recover
from gateway.audit.scan import chain_folders, records_of, scan

import hybridrt

from .servers import asking, authorized, upstream, well
from .test_process import ROOT, command, write

CLIENTS = 8


async def kill_under_load(folder: Path, config: Path, seed: int, workers: int) -> int:
    """Start the gateway, ask it from some clients, kill its group, and check its logs.

    Returns:
        How many requests it had answered to the end.
    """
    dice, answered = random.Random(seed), list[str]()
    started = await hybridrt.offload(subprocess.Popen)(
        command("--config", str(config), "--port", "0", "--workers", str(workers)),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        lines = [await hybridrt.offload(started.stdout.readline)() for _ in range(workers)]
        url = lines[0].strip().rpartition(" ")[2]
        clients = [asyncio.create_task(_ask_on(url, answered)) for _ in range(CLIENTS)]
        wanted = dice.randrange(1, 150)
        while len(answered) < wanted and not all(client.done() for client in clients):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(dice.random() * 0.02)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        await hybridrt.offload(started.wait)()
        started.stdout.close()
    await asyncio.gather(*clients)
    recorded = await hybridrt.offload(_recorded)(folder / "audit")
    lost = set(answered) - recorded
    assert not lost, f"seed {seed}: {len(lost)} of {len(answered)} answers have no record"
    return len(answered)


async def _ask_on(url: str, answered: list[str]) -> None:
    """Ask until the gateway is gone; note the number of each answer that came to its end."""
    async with aiohttp.ClientSession(headers=authorized()) as session:
        while True:
            try:
                async with session.post(f"{url}/v1/chat/completions", json=asking(stream=True)) as answer:
                    text = await answer.text()
            except (aiohttp.ClientError, OSError):
                return
            if text.endswith("data: [DONE]\n\n"):
                answered.append(answer.headers["X-Request-Id"])


def _recorded(folder: Path) -> set[str]:
    """Return the numbers of all requests that have a record, after the logs have been opened again."""
    found = set[str]()
    for chain in chain_folders(folder):
        recover(chain)
        assert scan(chain).fault is None
        found.update(json.loads(payload)["body"]["request_id"] for payload in records_of(chain))
    return found


async def run(rounds: int, workers: int, seed: int) -> tuple[int, int]:
    """Kill it so many times, always on the logs that the time before left; return kills and answers."""
    answers = 0
    with tempfile.TemporaryDirectory() as home:
        async with hybridrt.Runtime(), upstream(well) as one:
            config = write(Path(home), one)
            for number in range(rounds):
                answers += await kill_under_load(Path(home), config, seed + number, workers)
                if sys.stderr.isatty():
                    print(f"\r{number + 1} of {rounds} kills, {answers} answers", end="", file=sys.stderr)
    return rounds, answers


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kills, answers = asyncio.run(run(options.rounds, options.workers, options.seed))
    print(f"{kills} kills of the whole group, {answers} answers, every one with its record")


if __name__ == "__main__":
    main()
