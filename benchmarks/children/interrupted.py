"""A program under load that waits to be interrupted: `interrupted LOOP HOW`, LOOP a loop, HOW what runs main.

It prints `ready` when calls of all kinds are under way, and at its very end `left:` with what should not be
there then: threads of the pool, and calls that are booked neither as ended nor as cancelled.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import itertools
import random
import signal
import sys
import threading
import time

import hybridrt
from benchmarks.children.protocol import run_on
from hybridrt import Runtime, offload
from hybridrt.executor.budget import shared

__all__: list[str] = []

SHUTDOWN_TIMEOUT = 2.0
_PATIENCE = 5.0
"""Seconds that threads have to end in after the last call."""
_numbers = itertools.count()
_runtimes: list[Runtime] = []


@offload
def compute(steps: int) -> int:
    """Hold the GIL for some ten to some hundred microseconds."""
    return sum(range(steps))


@offload(abandon_on_cancel=True)
def wait(seconds: float) -> None:
    """Wait without the GIL."""
    time.sleep(seconds)


@offload(lane="interrupted", timeout=0.004)
def wait_alone(seconds: float) -> None:
    """Wait in a lane, and not always in time."""
    time.sleep(seconds)


@offload(pure=True)
def tiny(text: str) -> int:
    """Take so little time that it soon runs on the loop."""
    return len(text)


async def _client(chance: random.Random) -> None:
    """Make calls, one after the other or together, and take some of them back."""
    loop = asyncio.get_running_loop()
    while True:
        match chance.randrange(7):
            case 0:
                await compute(chance.randrange(10_000))
            case 1:
                await wait(chance.random() * 0.004)
            case 2:
                with contextlib.suppress(TimeoutError):
                    await wait_alone(chance.random() * 0.006)
            case 3:
                await tiny("x" * chance.randrange(100))
            case 4:
                await asyncio.to_thread(time.sleep, chance.random() * 0.002)
            case 5:
                await asyncio.gather(*(compute(100) for _ in range(20)))
            case 6:
                tasks = [loop.create_task(wait(0.002)) for _ in range(10)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _serve() -> None:
    _runtimes.append(Runtime.current())
    clients = [asyncio.ensure_future(_client(random.Random())) for _ in range(24)]
    await compute(100)
    print("ready", flush=True)
    await asyncio.gather(*clients)


async def _serve_in_runtime() -> None:
    try:
        async with Runtime(shutdown_timeout=SHUTDOWN_TIMEOUT):
            await _serve()
    finally:  # what comes now is between Python and the loop: uvloop may raise RuntimeError instead
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _tell_what_is_left() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deadline = time.monotonic() + _PATIENCE
    while (threads := _threads()) and time.monotonic() < deadline:
        time.sleep(0.01)
    books = [_unbooked(runtime) for runtime in _runtimes]
    permits = sum(shared.permits.held)
    print("left:", *threads, *(f"{count} calls" for count in books if count), end=" ")
    print(f"{permits} permits" if permits else "", flush=True)


def _threads() -> list[str]:
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("hybridrt_")]


def _unbooked(runtime: Runtime) -> int:
    """Return how many calls have no end in the books."""
    told = runtime.statistics()
    return told.submitted - told.completed - told.failed - told.cancelled


if __name__ == "__main__":
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1)  # where a round hangs is asked for
    atexit.register(_tell_what_is_left)
    loop, how = sys.argv[1:]
    if how == "hybridrt.run":
        hybridrt.run(_serve(), loop=loop, shutdown_timeout=SHUTDOWN_TIMEOUT)  # type: ignore[arg-type]
    else:
        run_on(loop, _serve_in_runtime())  # which does what `asyncio.run` does
