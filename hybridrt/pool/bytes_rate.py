"""Bytes that a pool's threads read and write, as a rate; for policies that ask for it.

The interpreter's lock protects it. A reading costs some 5 us a thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from hybridrt.pool.state import Worker

__all__ = ["BytesMeter"]


class BytesMeter:
    """Remembers how many bytes each thread had read and written at the last reading."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: dict[Worker, int] = {}

    def rate(self, workers: Iterable[Worker], seconds: float) -> float | None:
        """Return bytes per second since the last reading; None where the platform does not count them.

        Threads that came since count from 0; those that have ended count no more, as in the paper.
        """
        now = {
            worker: count
            for worker in workers
            if worker.probe is not None and (count := worker.probe.io_bytes()) is not None
        }
        moved = sum(count - self._before.get(worker, 0) for worker, count in now.items())
        self._before = now
        return moved / seconds if now else None
