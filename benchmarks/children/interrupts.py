"""Child: runs programs under load, presses Ctrl-C in each at a random instant, and sees how they end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.children.protocol import serve

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
AT_ONCE = 2
FIRST, SECOND = 0.1, 0.03
"""Seconds within which Ctrl-C is pressed, after the program is ready and after the first time."""
DEADLINE = 10.0
"""Seconds from the last Ctrl-C to the program's end; its runtime has 2 to close in, and the program takes
some tenths to end on a busy machine."""


def measure(*, rounds: int, seed: int, loop: str, how: str, presses: int) -> Mapping[str, Any]:
    """Return how the programs ended, how long the slowest took, and what those said that ended otherwise."""
    chance = random.Random(seed)
    delays = [[chance.random() * FIRST, *_more(chance, presses)] for _ in range(rounds)]
    with ThreadPoolExecutor(AT_ONCE) as executor:
        ended = list(executor.map(lambda delay: _round(loop, how, delay), delays))
    return {
        "ends": Counter(end for end, _, _ in ended),
        "slowest_s": max(seconds for _, seconds, _ in ended),
        "told": [said for end, _, said in ended if end != "interrupted"],
    }


def _more(chance: random.Random, presses: int) -> list[float]:
    return [chance.random() * SECOND for _ in range(presses - 1)]


def _round(loop: str, how: str, delays: list[float]) -> tuple[str, float, str]:
    """Return how a program ended, after how many seconds, and what it said."""
    program = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.children.interrupted", loop, how],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    if program.stdout.readline() != "ready\n":
        program.kill()
        return "never began", 0.0, "".join(program.communicate())
    for delay in delays:
        time.sleep(delay)
        program.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    try:
        told, errors = program.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(AttributeError):
            program.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        program.kill()
        told, errors = program.communicate()
        return "hung", DEADLINE, told + errors
    seconds = time.monotonic() - pressed
    if program.returncode != -signal.SIGINT:
        return f"exit code {program.returncode}", seconds, told + errors
    if told.split() != ["left:"]:
        return "something left", seconds, told + errors
    return "interrupted", seconds, ""


if __name__ == "__main__":
    os.setpgrp()  # a Ctrl-C of the terminal is not for the programs
    serve(measure)
