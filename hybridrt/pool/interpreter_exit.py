"""The record of the interpreter's end, while the main thread waits for the last calls."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

__all__ = ["InterpreterExit"]


class InterpreterExit:
    """The main thread waits for the last calls; see `exit`.

    Attributes:
        wakeup: Rung when a worker is gone or left behind, or brings one that could not be started; what is
            put there is that worker, else None.
        free: The main thread can take the place of a worker now.
    """

    __slots__ = ("free", "wakeup")

    def __init__(self) -> None:
        self.wakeup: SimpleQueue[Any] = SimpleQueue()
        self.free = True
