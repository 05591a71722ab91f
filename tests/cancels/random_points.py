"""Agent runs, pipes, generators and batches are cancelled at random points; nothing may be left of them.

python -m tests.cancels.random_points --points 1000

A point is a number of turns of the loop, or a part of the time that the job usually takes. After each point
no task, call, connection or generator may be left; after all of them no thread, child process or file.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType
from typing import Any

import psutil

from hybridrt import Runtime, testing

from ..conftest import LOOPS
from .jobs import JOBS, Job

__all__ = ["cancel_at_random_points"]

DEADLINE = 60.0
"""Seconds after which what is still there counts as left."""
TURNS_MAX = 60
"""Turns of the loop after which a job is cancelled at most, where turns are counted."""
_DRIVEN = (CoroutineType, AsyncGeneratorType)
_STEP = "async_generator_asend"


class Left(AssertionError):
    """Something was left behind."""


def cancel_at_random_points(name: str, points: int, *, seed: int, loop: str = "asyncio") -> Counter[str]:
    """Start and cancel a job again and again.

    Args:
        name: One of `JOBS`.
        points: How often. A run that ended before its point is none.
        seed: Of the points.
        loop: One of `LOOPS`.

    Returns:
        How many points lay in each of the job's places.

    Raises:
        Left: Something was left; says the seed and the point.
    """
    _run(name, 1, seed, loop)  # libraries open what they keep for good with the first loop or request
    before = _Outside()
    found = _run(name, points, seed, loop)
    until = time.monotonic() + DEADLINE
    while left := _Outside().beside(before):
        if time.monotonic() > until:
            raise Left(f"{name}, seed {seed}, {loop}: {left}")
        time.sleep(0.001)
    return found


def _run(name: str, points: int, seed: int, loop: str) -> Counter[str]:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(_cancel(name, points, seed))
    testing.reset()
    return found


async def _cancel(name: str, points: int, seed: int) -> Counter[str]:
    chance, found = random.Random(seed), Counter[str]()
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unheard.append(repr(told)))
    async with Runtime() as runtime, JOBS[name]() as job:
        usual = await _usual_seconds(job)
        await _settle(job, runtime, set())
        known = asyncio.all_tasks()
        point = 0
        while point < points:
            task = asyncio.ensure_future(job.make())
            await _wait_somewhere(chance, usual)
            if not task.done():
                point += 1
                found.update(_places(job, asyncio.all_tasks() - known))
            task.cancel()
            try:
                await asyncio.wait([task], timeout=DEADLINE)
                if not task.done():
                    raise Left("the job itself")
                if not task.cancelled():
                    task.result()
                await _settle(job, runtime, known)
                if unheard:
                    raise Left(f"errors that no one took: {unheard}")
            except BaseException as error:
                error.add_note(f"{name}, seed {seed}, point {point}")
                raise
    return found


async def _usual_seconds(job: Job) -> float:
    """Return what the job takes undisturbed, once all is warm."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        await job.make()
        times.append(time.perf_counter() - begun)
    return min(times)


async def _wait_somewhere(chance: random.Random, usual: float) -> None:
    if chance.random() < 0.5:
        for _ in range(chance.randrange(TURNS_MAX)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(chance.uniform(0.0, usual))


async def _settle(job: Job, runtime: Runtime, known: set[asyncio.Task[Any]]) -> None:
    """Return when nothing of the job is left.

    Raises:
        Left: Something still is after the deadline.
    """
    until = time.monotonic() + DEADLINE
    while left := list(_left(job, runtime, known)):
        if time.monotonic() > until:
            raise Left(", ".join(left))
        await asyncio.sleep(0)
    if job.idle is not None:
        async with asyncio.timeout(DEADLINE):
            await job.idle()


def _left(job: Job, runtime: Runtime, known: set[asyncio.Task[Any]]) -> Iterator[str]:
    if known:
        ours = {task for task in asyncio.all_tasks() - known if not _is_of(task, job.servers)}
        yield from (repr(task) for task in ours)
    yield from (f"{count} {name}" for name, count in job.left().items() if count)
    now = runtime.statistics()
    yield from (f"a call that runs: {call}" for call in now.running)
    if queued := sum(now.queued.values()):
        yield f"{queued} queued calls"


def _is_of(task: asyncio.Task[Any], servers: tuple[str, ...]) -> bool:
    return any(each in repr(task.get_coro()) for each in servers)


# ---------------------------------------------------------------------- where a point lies


def _places(job: Job, tasks: set[asyncio.Task[Any]]) -> set[str]:
    """Return the job's places in which some task of it is."""
    ours = (task for task in tasks if not _is_of(task, job.servers))
    functions = {each for task in ours for each in _awaiting(task.get_coro())}
    return {place for place, function in job.places.items() if function in functions} or {"elsewhere"}


def _awaiting(awaitable: Any) -> Iterator[str]:
    """Yield the functions from a task down to what it awaits, as far as they are written in Python."""
    for _ in range(100):
        code = getattr(awaitable, "cr_code", None) or getattr(awaitable, "ag_code", None)
        if code is not None:
            yield code.co_qualname
            awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "ag_await", None)
        else:  # a step of an async generator, or a coroutine's wrapper, holds the one it drives
            held = gc.get_referents(awaitable)  # with a default or without: one more step between
            held += gc.get_referents(*(each for each in held if type(each).__name__ == _STEP))
            awaitable = next((each for each in held if isinstance(each, _DRIVEN)), None)
        if awaitable is None:
            return


# ---------------------------------------------------------------------- what outlives a loop


class _Outside:
    """Threads, child processes and open files of this process, now."""

    def __init__(self) -> None:
        self.threads = set(threading.enumerate())
        self.children = set(psutil.Process().children(recursive=True))
        self.files = _files()

    def beside(self, before: _Outside) -> list[object]:
        """Return what there is now and was not before."""
        files = (self.files - before.files).items()
        return [*(self.threads - before.threads), *(self.children - before.children), *files]


def _files() -> Counter[str]:
    """Return what is open, by what it is; sockets and pipes have a number of their own, which is left out."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return Counter()
    found = Counter[str]()
    for each in os.listdir(folder):
        try:
            target = os.readlink(folder / each)
        except FileNotFoundError:  # that of the listing
            continue
        found[target.partition(":[")[0]] += 1
    return found


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=1000, help="of each job on each loop (default 1000)")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--only", choices=list(JOBS), help="one job instead of all")
    parser.add_argument("--loop", choices=list(LOOPS), help="one loop instead of both")
    options = parser.parse_args()
    logging.disable()  # a call whose caller is gone, a server whose client is gone: as it should be
    print(f"CPython {sys.version.split()[0]}, seed {options.seed}")
    for name in [options.only] if options.only else JOBS:
        for loop in [options.loop] if options.loop else LOOPS:
            begun = time.perf_counter()
            found = cancel_at_random_points(name, options.points, seed=options.seed, loop=loop)
            where = ", ".join(f"{place} {count}" for place, count in found.most_common())
            seconds = time.perf_counter() - begun
            print(
                f"{name}, {loop}: {options.points} points, nothing left; {seconds:.0f} s; {where}", flush=True
            )


if __name__ == "__main__":
    main()
