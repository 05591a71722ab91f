"""The record of the interpreter's end, while the main thread waits for the last calls."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

__all__ = ["Ending"]


class Ending:
    """The main thread waits for the last calls; see `exiting`.

    Attributes:
        bell: Rung when a worker is gone or left behind, or brings one that could not be started; what is
            put there is that worker, else None.
        free: The main thread can take the place of a worker now.
    """

    __slots__ = ("bell", "free")

    def __init__(self) -> None:
        self.bell: SimpleQueue[Any] = SimpleQueue()
        self.free = True
