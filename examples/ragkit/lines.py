"""Lines from standard input without blocking the loop or its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator

__all__ = ["stdin_lines"]


async def stdin_lines() -> AsyncIterator[str]:
    """Yield lines until the input ends.

    Read by a daemon thread rather than in the pool: a terminal may stay silent for ever, and nothing
    should wait for it when the job is over.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        piece = b"-"
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while piece:
                piece = _read_or_end()
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    held = b""
    while piece := await pieces.get():
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace").strip()
    if held.strip():
        yield held.decode(errors="replace").strip()


def _read_or_end() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:  # no standard input is an empty one
        return b""
