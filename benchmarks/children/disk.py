"""Child: one disk load on one pool, timed, with size and bytes over time.

All jobs of a batch are submitted at once, and the next batch begins when the last of them has ended.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children.protocol import serve

__all__ = ["JOBS", "measure"]

_SIZE = 2 << 20
"""Bytes that a file job reads, and writes."""
_ROWS, _ROW = 16, 4096
"""Rows of a transaction, and bytes of one."""
_KEYS = 4096
"""Keys of the store, so that it does not grow for ever."""
_LOOK = 0.1
"""Seconds between two looks at size and bytes."""

_Job = Callable[[int], object]


def measure(*, load: str, pool: str, size: int, batches: Sequence[Sequence[Any]]) -> Mapping[str, Any]:
    """Return seconds, sizes and bytes of one run.

    Args:
        load: For the report alone.
        pool: `fixed`, or a policy: `watermark`, `throughput`, `demand`.
        size: Threads of a fixed pool; the most of another.
        batches: Name in `JOBS` and number of jobs, one after the other.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-disk-") as folder, _open(pool, size) as executor:
        watch = _Watch(executor)
        watch.start()
        begun = time.perf_counter()
        ends = []
        try:
            for name, count in batches:
                with JOBS[name](Path(folder)) as job:
                    _run(executor, job, count)
                ends.append(time.perf_counter() - begun)
        finally:
            watch.stop()
        return {"load": load, "seconds": ends[-1], "ends": ends, **watch.told(), **_decisions(executor)}


def _run(executor: Executor, job: _Job, count: int) -> None:
    futures = [executor.submit(job, number) for number in range(count)]
    wait(futures)
    for future in futures:
        future.result()


@contextmanager
def _open(pool: str, size: int) -> Iterator[Executor]:
    if pool == "fixed":
        with ThreadPoolExecutor(size) as fixed:
            yield fixed
        return
    import hybridrt
    from benchmarks.children.watermark import Watermark

    policy: Any = Watermark() if pool == "watermark" else pool
    with hybridrt.AdaptiveThreadPoolExecutor(
        size, policy=policy, min_workers=0, idle_timeout=1.0
    ) as executor:
        yield executor


def _decisions(executor: Any) -> Mapping[str, Any]:
    if not hasattr(executor, "statistics"):
        return {}
    told = executor.statistics()
    return {
        "decisions": [[round(one.at, 2), one.workers, str(one.reason)] for one in told.decisions],
        "policy_error": told.policy_error,
    }


# ---------------------------------------------------------------------- jobs


@contextmanager
def _files(folder: Path, *, sync: bool) -> Iterator[_Job]:
    """Read a file of 2 MB into memory and write it to another one, one for each thread."""
    source = folder / "source"
    source.write_bytes(os.urandom(_SIZE))

    def job(number: int) -> None:
        content = source.read_bytes()
        with open(folder / f"to-{threading.get_ident()}", "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    yield job


@contextmanager
def _sqlite(folder: Path) -> Iterator[_Job]:
    """Write 16 rows in a durable transaction and read 16 others; a connection for each thread."""
    path, own, opened = folder / "store.sqlite", threading.local(), []
    value = os.urandom(_ROW)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=120.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        opened.append(connection)
        return connection

    connect().execute("CREATE TABLE store (key INTEGER PRIMARY KEY, value BLOB)")

    def job(number: int) -> None:
        connection: sqlite3.Connection | None = getattr(own, "connection", None)
        if connection is None:
            connection = own.connection = connect()
        first = number * _ROWS % _KEYS
        rows = [(first + offset, value) for offset in range(_ROWS)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO store VALUES (?, ?)", rows)
        connection.execute("COMMIT")
        start = (first * 7 + 1) % _KEYS
        connection.execute("SELECT key, value FROM store WHERE key >= ? LIMIT ?", (start, _ROWS)).fetchall()

    try:
        yield job
    finally:
        for connection in opened:
            connection.close()


@contextmanager
def _lmdb(folder: Path) -> Iterator[_Job]:
    """The same with LMDB: one writer at a time, readers beside it."""
    import lmdb

    home = folder / "store.lmdb"
    home.mkdir()
    value = os.urandom(_ROW)
    with lmdb.open(str(home), map_size=1 << 30, max_readers=8192, max_spare_txns=64) as store:

        def job(number: int) -> None:
            first = number * _ROWS % _KEYS
            with store.begin(write=True) as writing:
                for offset in range(_ROWS):
                    writing.put((first + offset).to_bytes(4, "big"), value)
            with store.begin() as reading:
                for offset in range(_ROWS):
                    reading.get(((first * 7 + offset) % _KEYS).to_bytes(4, "big"))

        yield job


JOBS: Mapping[str, Callable[[Path], Any]] = {
    "nosync": partial(_files, sync=False),
    "sync": partial(_files, sync=True),
    "sqlite": _sqlite,
    "lmdb": _lmdb,
}
"""What opens the jobs of that name in a folder."""


# ---------------------------------------------------------------------- size and bytes


class _Watch:
    """Looks at live threads and at the bytes of the process, ten times a second."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self.looks: list[tuple[float, int, int]] = []

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more and end."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.perf_counter()
        while True:
            size = len(self._executor._threads)
            self.looks.append((round(time.perf_counter() - begun, 2), size, _moved()))
            if self._end.wait(_LOOK):
                break
        self.looks.append((round(time.perf_counter() - begun, 2), len(self._executor._threads), _moved()))

    def told(self) -> Mapping[str, Any]:
        """Return average and peak of the size, and the curves; the average is over time."""
        spans = [later[0] - now[0] for now, later in zip(self.looks, self.looks[1:], strict=False)]
        area = sum(span * look[1] for span, look in zip(spans, self.looks, strict=False))
        return {
            "average": area / max(sum(spans), 1e-9),
            "peak": max(look[1] for look in self.looks),
            "curve": self.looks,
        }


def _moved() -> int:
    """Return the bytes that the process asked to read and write so far; 0 where the kernel does not tell."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


if __name__ == "__main__":
    serve(measure)
