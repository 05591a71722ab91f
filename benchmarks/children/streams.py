"""Child: many short items through a pipe and through what people write by hand."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import psutil

from benchmarks.children.protocol import run_on, serve

__all__ = ["QUEUES", "measure"]

QUEUES = [(chunk, workers) for chunk in (1, 16, 64, 256) for workers in (1, 2, 4)]
"""Items a hand-over and workers of the hand-written queue; the best of them is what a patient user finds."""
_END: Any = object()


def measure(*, job: str, loop: str, **arguments: Any) -> Mapping[str, Any]:
    """Do one job on a loop: `items` or `memory`."""
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


async def _items(*, ways: list[str], kind: str, rounds: int, items: int) -> Mapping[str, Any]:
    """Return microseconds per item of each way; 500 items of it warm it up. Only a pipe has a runtime."""
    import hybridrt

    work = make_work(kind, rounds)
    took: dict[str, float] = {}
    for way in ways:
        async with hybridrt.Runtime() if way.startswith("pipe") else nullcontext():
            await WAYS[way](work, min(items, 500))
            begun = time.perf_counter()
            found = await WAYS[way](work, items)
            took[way] = (time.perf_counter() - begun) / items * 1e6
        if found != items:
            raise RuntimeError(f"{way} must return {items} items, got {found}")
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


_JOBS: dict[str, Callable[..., Any]] = {"items": _items, "memory": _memory}

if __name__ == "__main__":
    serve(measure)
