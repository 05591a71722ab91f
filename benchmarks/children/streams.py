"""Child: many short items through a pipe and through what people write by hand, in turns; and its end."""

from __future__ import annotations

import asyncio
import gc
import queue
import random
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import psutil

from benchmarks.children.protocol import run_on, serve

__all__ = ["QUEUES", "measure"]

QUEUES = [(chunk, workers) for chunk in (1, 16, 64, 256) for workers in (1, 2, 4)]
"""Items a hand-over and workers of the hand-written queue; the best of them is what a patient user finds."""
_END: Any = object()


def measure(*, job: str, loop: str, **arguments: Any) -> Mapping[str, Any]:
    """Do one job on a loop: `items`, `memory` or `ends`."""
    return run_on(loop, _JOBS[job](**arguments))


# ------------------------------------------------------------------ work


def make_work(kind: str, rounds: int) -> Callable[[int], int]:
    """Return a function of some microseconds: in Python, or with the GIL released."""
    data = bytes(rounds)

    def compute(number: int) -> int:
        total = 0
        for each in range(rounds):
            total += each * each
        return number

    def release(number: int) -> int:
        zlib.crc32(data)
        return number

    return compute if kind == "python" else release


# ------------------------------------------------------------------ ways


async def by_pipe(work: Callable[[int], int], items: int) -> int:
    import hybridrt

    return sum([1 async for _ in hybridrt.pipe(range(items), work)])


async def by_pipe_unordered(work: Callable[[int], int], items: int) -> int:
    import hybridrt

    return sum([1 async for _ in hybridrt.pipe(range(items), work, ordered=False)])


def by_queue(chunk: int, workers: int) -> Callable[[Callable[[int], int], int], Any]:
    """Return a loop of two queues and some threads, which hand over lists of this length."""

    async def run(work: Callable[[int], int], items: int) -> int:
        return await asyncio.to_thread(_run_queue, work, items, chunk, workers)

    return run


def _run_queue(work: Callable[[int], int], items: int, chunk: int, workers: int) -> int:
    todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room = threading.Semaphore(4 * workers)
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def consume() -> None:
        while (numbers := todo.get()) is not _END:
            done.put([work(number) for number in numbers])
        done.put(_END)

    def produce() -> None:
        for start in range(0, items, chunk):
            room.acquire()
            todo.put(range(start, min(items, start + chunk)))
        for _ in range(workers):
            todo.put(_END)

    threads = [threading.Thread(target=consume) for _ in range(workers)]
    threads.append(threading.Thread(target=produce))
    for thread in threads:
        thread.start()
    found = ended = 0
    while ended < workers:
        results = done.get()
        if results is _END:
            ended += 1
        else:
            room.release()
            found += sum(1 for _ in results)
    for thread in threads:
        thread.join()
    return found


async def by_aiostream(work: Callable[[int], int], items: int) -> int:
    stream: Any = import_module("aiostream").stream

    async def in_thread(number: int, *_: int) -> int:
        return await asyncio.to_thread(work, number)

    mapped = stream.map(stream.range(items), in_thread, task_limit=8)
    found = 0
    async with mapped.stream() as results:
        async for _ in results:
            found += 1
    return found


async def by_spdl(work: Callable[[int], int], items: int) -> int:
    return await asyncio.to_thread(_run_spdl, work, items)


def _run_spdl(work: Callable[[int], int], items: int) -> int:
    builder: Any = import_module("spdl.pipeline").PipelineBuilder
    pipeline = builder().add_source(range(items)).pipe(work, concurrency=2).add_sink(64).build(num_threads=2)
    with pipeline.auto_stop():
        return sum(1 for _ in pipeline)


WAYS: dict[str, Callable[[Callable[[int], int], int], Any]] = {
    "pipe": by_pipe,
    "pipe, unordered": by_pipe_unordered,
    **{f"queues, {chunk} an item, {workers} threads": by_queue(chunk, workers) for chunk, workers in QUEUES},
    "aiostream": by_aiostream,
    "spdl": by_spdl,
}


async def _items(*, ways: list[str], kind: str, rounds: int, items: int, turns: int) -> Mapping[str, Any]:
    """Return microseconds per item of each way, in turns: all ways once, and so on."""
    import hybridrt

    work = make_work(kind, rounds)
    took: dict[str, list[float]] = {way: [] for way in ways}
    async with hybridrt.Runtime():
        for turn in range(turns + 1):
            for way in ways:
                count = items if turn else min(items, 500)  # the first turn warms up
                begun = time.perf_counter()
                assert await WAYS[way](work, count) == count
                if turn:
                    took[way].append((time.perf_counter() - begun) / count * 1e6)
    return {"us": took}


# ------------------------------------------------------------------ memory


async def _memory(*, items: int, kind: str, rounds: int) -> Mapping[str, Any]:
    """Return how many bytes the process grew by from the first tenth of the items on."""
    import hybridrt

    process, work = psutil.Process(), make_work(kind, rounds)
    early = peak = 0
    async with hybridrt.Runtime():
        seen = 0
        async for _ in hybridrt.pipe((bytes(1000) for _ in range(items)), len, work):
            seen += 1
            if seen % max(1, items // 50) == 0:
                rss = process.memory_info().rss
                early, peak = (max(early, rss), peak) if seen <= items // 10 else (early, max(peak, rss))
    return {"early": early, "peak": peak, "grew": max(0, peak - early)}


# ------------------------------------------------------------------ ends


async def _ends(*, what: str, points: int, seed: int) -> Mapping[str, Any]:
    """Cancel something at random points; return what is left: tasks, threads, files, open generators."""
    import hybridrt

    opened = closed = 0

    def numbers() -> Iterator[int]:
        nonlocal opened, closed
        opened += 1
        try:
            yield from range(1_000_000)
        finally:
            closed += 1

    stream: Any = hybridrt.offload(numbers, buffer=4)
    double: Any = hybridrt.offload(lambda items: [2 * item for item in items], batch=4)

    async def generator() -> None:
        async for _ in stream():
            pass

    async def batch() -> None:
        while True:
            await asyncio.gather(*map(double, range(6)))

    async def pipe() -> None:
        async for _ in hybridrt.pipe(numbers(), abs, double, _twice):
            pass

    make = {"generator": generator, "batch": batch, "pipe": pipe}[what]
    chance, process = random.Random(seed), psutil.Process()
    async with hybridrt.Runtime():  # what it opens once, as a part of the program, is open from here on
        await _cancelled(make(), chance)
    await _at_rest()
    files, tasks = process.num_fds(), asyncio.all_tasks()
    async with hybridrt.Runtime():
        for _ in range(points):
            await _cancelled(make(), chance)
        deadline = time.monotonic() + 10.0
        while (asyncio.all_tasks() != tasks or opened != closed) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            gc.collect()
        left = {"tasks": len(asyncio.all_tasks() - tasks)}
    threads = await _at_rest()
    left |= {"files": max(0, process.num_fds() - files), "threads": threads}
    return {**left, "generators": opened - closed}


async def _at_rest() -> int:
    """Wait for threads that are on their way out, stop the governor's; return how many workers stay."""
    from hybridrt.testing import reset

    workers = [thread for thread in threading.enumerate() if thread.name.startswith("hybridrt_")]
    for thread in workers:
        await asyncio.to_thread(thread.join, 10.0)
    await asyncio.to_thread(reset)
    return sum(thread.is_alive() for thread in workers)


async def _twice(number: int) -> AsyncIterator[int]:
    yield number
    yield number


async def _cancelled(work: Any, chance: random.Random) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(chance.randrange(40)):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.002)
    task.cancel()
    await asyncio.wait([task])


_JOBS: dict[str, Callable[..., Any]] = {"items": _items, "memory": _memory, "ends": _ends}

if __name__ == "__main__":
    serve(measure)
