"""Bytes that threads have asked the kernel to read or write, as `/proc/self/task/TID/io` counts them.

`rchar + wchar`: what passed through `read` and `write`, whether it came from a disk, a cache or a socket.
Linux alone has it; elsewhere, and where the kernel was built without, it is absent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from hybridrt.measure import kernel

__all__ = ["MovedBytes", "counts_moved"]


def counts_moved() -> bool:
    """Return True if the kernel tells of the bytes that each thread moves."""
    return _read(threading.get_native_id()) is not None


class MovedBytes:
    """What a changing set of threads has moved since the last question; to be used under one lock."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def since(self, native_ids: Iterable[int]) -> int | None:
        """Return the bytes that these threads have moved since the last question; None where nothing tells.

        A thread that was not asked about then counts from its start, and one that has ended not at all. Costs
        some 10 us a thread, and the GIL is kept.
        """
        now = {native_id: moved for native_id in native_ids if (moved := _read(native_id)) is not None}
        before, self._before = self._before, now
        if not now and not counts_moved():
            return None
        # The number of a thread that ended may be given to another one, which begins at 0.
        return sum(moved - (old if (old := before.get(id, 0)) <= moved else 0) for id, moved in now.items())


def _read(native_id: int) -> int | None:
    lines = dict(
        line.split(b": ", 1)
        for line in kernel.read(f"/proc/self/task/{native_id}/io").splitlines()
        if b": " in line
    )
    try:
        return int(lines[b"rchar"]) + int(lines[b"wchar"])
    except (KeyError, ValueError):
        return None
