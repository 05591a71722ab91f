"""A sub-interpreter of this process, on Python 3.14 and later.

It has a thread of its own, which stays in it. A thread that enters an interpreter for one call alone takes
an eighth of the time for it (`python -m benchmarks carrying`), but built into the pool, beside its other
threads, that has not been faster, and it loses what the function's modules keep for each thread.
"""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from hybridrt.control.veto import MEMORY
from hybridrt.executor.budget import shared
from hybridrt.isolates.isolate import LEAVING, Isolate, program
from hybridrt.pool.priority import ISOLATE, lower

if sys.version_info >= (3, 14):
    from concurrent import interpreters
elif TYPE_CHECKING:
    interpreters: Any

__all__ = ["AVAILABLE", "SubInterpreter"]

AVAILABLE = sys.version_info >= (3, 14)


class SubInterpreter(Isolate):
    """An interpreter and its thread, which ends it when the wire is closed."""

    MEMORY = 16 << 20
    """An empty one takes some 7 MB; the rest is for imports. Not measured."""

    def _start(self, there: socket.socket) -> None:
        self._problem = "it was left to itself"
        self._killed = False
        self._thread = threading.Thread(
            target=self._serve, args=(there,), name="hybridrt-interpreter", daemon=True
        )
        self._thread.start()

    def _serve(self, there: socket.socket) -> None:
        if shared.shield.goes_first():
            lower(threading.get_native_id(), ISOLATE)
        try:
            interpreter = interpreters.create()
            try:
                interpreter.exec(program("serve_thread", there.fileno()))
            finally:
                interpreter.close()
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
        finally:
            there.close()

    def is_alive(self) -> bool:
        """Return True if its thread has not ended."""
        return self._thread.is_alive()

    def kill(self) -> None:
        """Leave the call that runs to itself; the interpreter ends after it, and another takes its place.

        Where memory is short nothing happens: the call keeps its worker and its place until it ends.
        """
        used = shared.memory.share
        if used is None or used < MEMORY:
            self._killed = True
            self.wire.cut()

    def close(self) -> None:
        """Wait for its end, unless a call was left behind in it."""
        if not self._killed:
            self._thread.join(LEAVING)
        self.wire.close()

    def _fate(self) -> tuple[str, int | None]:
        return f"{self} ended: {self._problem}", None

    def __str__(self) -> str:
        return "a sub-interpreter"
