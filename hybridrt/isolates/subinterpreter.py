"""A sub-interpreter of this process, on Python 3.14 and later.

It has a thread of its own, which stays in it. A thread that enters an interpreter for one call alone takes
an eighth of the time for it (`python -m benchmarks carrying`), but built into the pool, beside its other
threads, that has not been faster, and it loses what the function's modules keep for each thread.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hybridrt.control.veto import MEMORY
from hybridrt.executor.budget import shared
from hybridrt.isolates.isolate import Isolate, program
from hybridrt.pool.priority import ISOLATE, lower
from hybridrt.pool.thread import empty_context

if sys.version_info >= (3, 14):
    from concurrent import interpreters
elif TYPE_CHECKING:
    interpreters: Any

__all__ = ["AVAILABLE", "SubInterpreter"]

AVAILABLE = sys.version_info >= (3, 14)
_GRACE = 3.0
"""Seconds that the end of the program waits for interpreters whose wire was cut in the middle of a call: most
of them import what it needs. Not measured."""
_threads: WeakSet[threading.Thread] = WeakSet()
"""Those of the interpreters there are."""


class SubInterpreter(Isolate):
    """An interpreter and its thread, which ends it when the wire is closed."""

    MEMORY = 16 << 20
    """An empty one takes some 7 MB; the rest is for imports. Not measured."""

    def _start(self, there: socket.socket) -> None:
        self._problem = "it was left to itself"
        self._killed = False
        self._thread = threading.Thread(
            target=self._serve, args=(there,), name="hybridrt-interpreter", daemon=True, **empty_context()
        )
        _threads.add(self._thread)
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
            self._thread.join(self.time_to_leave())
        self.wire.close()

    @classmethod
    def await_left(cls) -> None:
        """At the end of the program: give those that were left to themselves a moment to end.

        Most of them import a module for calls that will not come. CPython warns of an interpreter that is
        still there when it ends, and may crash if its thread runs.
        """
        until = time.monotonic() + _GRACE
        for thread in tuple(_threads):
            thread.join(max(0.0, until - time.monotonic()))

    def _fate(self) -> tuple[str, int | None]:
        return f"{self} ended ({self._problem})", None

    def __str__(self) -> str:
        return "a sub-interpreter"
