"""Child: bytes that go to another interpreter, one way after the other, and come back as their length."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from statistics import median
from typing import Any

from benchmarks.children.functions import length
from benchmarks.children.protocol import serve
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.packing import pack
from hybridrt.isolates.process import WorkerProcess
from hybridrt.isolates.reference import refer
from hybridrt.isolates.subinterpreter import SubInterpreter

__all__ = ["WAYS", "measure"]

Carry = Callable[[bytes], int]


def measure(*, way: str, size: int, calls: int) -> Mapping[str, Any]:
    """Return microseconds per call, the median of some after a few that do not count.

    Args:
        way: A name in `WAYS`.
        size: Bytes of the argument.
        calls: How many count.
    """
    took: list[float] = []
    # As a pool does it: not on the main thread, for which entering an interpreter costs more.
    thread = threading.Thread(target=_run, args=(way, size, calls, took))
    thread.start()
    thread.join()
    return {"us": median(took)}


def _run(way: str, size: int, calls: int, took: list[float]) -> None:
    data = bytes(size)
    with WAYS[way](size) as carry:
        for call in range(calls + 10):
            begun = time.perf_counter()
            found = carry(data)
            if call >= 10:
                took.append((time.perf_counter() - begun) * 1e6)
            assert found == size


# ------------------------------------------------------------------ the wire


@contextmanager
def _through(kind: type[Isolate]) -> Iterator[Carry]:
    isolate, reference = kind(), tuple(refer(length))

    def carry(data: bytes) -> int:
        value: int = isolate.run(pack((reference, (data,), {}))).value
        return value

    yield carry
    isolate.ask_to_leave()
    isolate.close()


# ------------------------------------------------------------------ shared memory


@contextmanager
def _shared(size: int, *, kept: bool, copied: bool) -> Iterator[Carry]:
    """Through a segment: made for each call or `kept`, and `copied` over there or read where it lies."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_read_segments, args=(there, kept, copied))
    child.start()
    with closing(_Segment(size if kept else 0)) as always:

        def carry(data: bytes) -> int:
            segment = always if kept else _Segment(len(data))
            segment.view[: len(data)] = data
            here.send((segment.memory.name, len(data)))
            found: int = here.recv()
            if not kept:
                segment.close()
            return found

        yield carry
        here.send(None)
        child.join()


class _Segment:
    """Shared memory that is gone once it is closed."""

    def __init__(self, size: int) -> None:
        self.memory = SharedMemory(create=True, size=max(1, size))
        self.view = _view(self.memory)

    def close(self) -> None:
        self.memory.close()
        self.memory.unlink()


def _view(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None  # as it is once closed
    return memory.buf


def _read_segments(wire: Connection, kept: bool, copied: bool) -> None:
    known: dict[str, SharedMemory] = {}
    while (message := wire.recv()) is not None:
        name, size = message
        segment = known.get(name) or SharedMemory(name)
        view = _view(segment)[:size]
        wire.send(length(bytes(view) if copied else view))
        view.release()
        if kept:
            known[name] = segment
        else:
            segment.close()
    for segment in known.values():
        segment.close()


# ------------------------------------------------------------------ others


@contextmanager
def _process_pool(size: int) -> Iterator[Carry]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda data: pool.submit(length, data).result()


@contextmanager
def _entering(size: int) -> Iterator[Carry]:
    interpreters = import_module("concurrent.interpreters")
    with closing(interpreters.create()) as interpreter:
        yield lambda data: interpreter.call(length, data)


WAYS: dict[str, Callable[[int], AbstractContextManager[Carry]]] = {
    "wire": lambda size: _through(WorkerProcess),
    "segment": lambda size: _shared(size, kept=False, copied=True),
    "kept": lambda size: _shared(size, kept=True, copied=True),
    "in_place": lambda size: _shared(size, kept=True, copied=False),
    "process_pool": _process_pool,
    "interpreter": lambda size: _through(SubInterpreter),
    "entering": _entering,
}


if __name__ == "__main__":
    serve(measure)
