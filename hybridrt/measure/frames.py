"""Python frames of other threads, read without their help.

CPython 3.11 makes the frame objects that this asks for while the threads stand between two instructions, and
may collect garbage in the middle of that. A finalizer that runs then may switch threads: the other thread
goes on, the frame object points at what is gone, and the interpreter crashes. So no garbage is collected
meanwhile, for some microseconds. Later versions collect garbage between instructions only.

A program that switches the collector off in just those microseconds, in another thread, finds it on again.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

__all__ = ["COLLECTS_ANYWHERE", "stack_of", "top_frames"]

COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Whether this Python may collect garbage at any allocation."""

T = TypeVar("T")


def top_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each other thread, by the thread's `ident`.

    With the caller's own frame, which leads to the variable that the result is kept in, the frames of all
    threads and what their variables refer to would stay until garbage is collected.
    """
    frames = _uncollected(sys._current_frames)
    frames.pop(threading.get_ident(), None)
    return frames


def stack_of(thread: int) -> list[FrameType]:
    """Return the frames of a thread, the innermost first; none if it has no Python frame."""
    return _uncollected(lambda: _stack(sys._current_frames().get(thread)))


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


class _Collector:
    """What is known of the garbage collector; the lock may be taken again by its owner's signal handlers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.paused = False

    def start_clean(self) -> None:
        """Let a forked child collect garbage, although another thread of its parent was reading."""
        self.lock = threading.RLock()
        if self.paused:
            self.paused = False
            gc.enable()


_collector = _Collector()
if COLLECTS_ANYWHERE and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collector.start_clean)


def _uncollected(read: Callable[[], T]) -> T:
    """Return what `read` returns while no garbage is collected."""
    if not COLLECTS_ANYWHERE:
        return read()
    with _collector.lock:
        if not gc.isenabled():
            return read()
        _collector.paused = True
        gc.disable()
        try:
            return read()
        finally:
            gc.enable()
            _collector.paused = False
