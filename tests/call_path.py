"""The way of one call through the package: which functions it enters, in which files, in which order.

    python -m tests.call_path

prints it for a call of each kind. `files` counts the files that a call enters, `hops` how often its way goes
on in another file. The governor's thread is left out. So is the shield, which a call enters only as the first
one after a rest.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import hybridrt

__all__ = ["KINDS", "Way", "trace"]

PACKAGE = str(Path(hybridrt.__file__).parent)
WARM = 51
"""Calls before the one that is traced. The function is known then, and no window of its calls ends."""


class Way(NamedTuple):
    """What one call entered: file and function, in the order of time."""

    steps: tuple[tuple[str, str], ...]

    @property
    def files(self) -> set[str]:
        """The files."""
        return {file for file, _ in self.steps}

    @property
    def hops(self) -> int:
        """How often the way goes on in another file."""
        return len(list(groupby(self.steps, key=lambda step: step[0]))) - 1


def nothing(x: int) -> int:
    """Return the argument."""
    return x


def _in_thread() -> Callable[[int], Awaitable[int]]:
    return hybridrt.offload(nothing)


def _inline() -> Callable[[int], Awaitable[int]]:
    return hybridrt.offload(nothing, pure=True, where="inline")


def _run_in_executor() -> Callable[[int], Awaitable[int]]:
    loop = asyncio.get_running_loop()
    return lambda x: loop.run_in_executor(None, nothing, x)


KINDS: dict[str, Callable[[], Callable[[int], Awaitable[int]]]] = {
    "thread": _in_thread,
    "inline": _inline,
    "run_in_executor": _run_in_executor,
}


async def trace(kind: str) -> Way:
    """Return the way of a call of one kind, when its function is known and a worker waits for it.

    Use it before any worker thread of the process has started: only threads that start later are seen.
    """
    steps: list[tuple[str, str]] = []
    watching = False

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        ours = event == "call" and watching and code.co_filename.startswith(PACKAGE)
        if ours and threading.current_thread().name != "hybridrt-governor":
            steps.append((code.co_filename.removeprefix(PACKAGE + "/"), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        async with hybridrt.Runtime():
            call = KINDS[kind]()
            for _ in range(WARM):
                await call(1)
            watching = True
            await call(1)
            await asyncio.sleep(0)
            watching = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Way(tuple(step for step in steps if step[0] != "governor/shield.py"))


def _print() -> None:
    for kind in KINDS:
        way = asyncio.run(trace(kind))
        print(f"{kind}: {len(way.files)} files, {way.hops} hops between them")
        for file, function in way.steps:
            print(f"    {file} {function}")


if __name__ == "__main__":
    _print()
