"""Steps that are done as a whole: no exception of a signal handler ends them half-way.

A signal handler runs between any two bytecodes of the main thread, and Python's own for Ctrl-C raises there.
A call could then be counted and not queued, a worker added and not started, a future never completed. So
these functions are marked, and `loop.interrupts` sees in the frames of the thread whether one of them is
under way. A mark costs a call nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

__all__ = ["is_uninterrupted", "uninterrupted"]

F = TypeVar("F", bound=Callable[..., Any])

_marked: set[CodeType] = set()


def uninterrupted(step: F) -> F:
    """Mark a function that must be done as a whole and never waits for anything but the lock."""
    _marked.add(step.__code__)
    return step


def is_uninterrupted(frame: FrameType | None) -> bool:
    """Return True if a frame, or one that has led to it, is that of a marked function."""
    while frame is not None:
        if frame.f_code in _marked:
            return True
        frame = frame.f_back
    return False
