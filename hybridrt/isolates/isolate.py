"""What processes and sub-interpreters have in common: a wire, and one call at a time on it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress

from hybridrt.errors import WorkerLostError
from hybridrt.isolates.packing import Packed
from hybridrt.isolates.records import RECORDS, handle_records
from hybridrt.isolates.wire import Message, OutOfStepError, Wire, WireClosedError
from hybridrt.pool.permits import NONE
from hybridrt.pool.rebalance import exchange_permit
from hybridrt.pool.worker import current_worker

if sys.platform != "win32":
    import fcntl

__all__ = ["LEAVING", "Isolate", "program"]

_STANDARD_ERROR = 2
"""The highest descriptor of those that code prints to, whatever is behind them."""

LEAVING = 5.0
"""Seconds that an idle isolate has to end in once its wire is closed. It takes some milliseconds, but on a
busy machine it gets little of a core. Not measured."""


_forks = threading.RLock()
"""Held while a wire is made, and across a fork; reentrant, since a signal handler there may fork."""
_unlisted = set[socket.socket]()
"""Ends of the sockets of isolates that are being started. A forked child closes its copies: else the end of
such an isolate, or of this process, would not be seen, since there is another process that could write."""


def program(serve: str, *descriptors: int) -> str:
    """Return what another interpreter runs: a function of `child`, with this one's search path and limits.

    Of the path only text, as CPython itself looks at nothing else there: a `Path` is no literal.
    """
    entries: list[object] = [*sys.path]
    path = [str(entry) for entry in entries if isinstance(entry, str)]
    return (
        f"import sys; sys.path[:] = {path!r}\n"
        f"from hybridrt.isolates.child import {serve}\n"
        f"sys.setrecursionlimit(max({sys.getrecursionlimit()}, sys.getrecursionlimit()))\n"
        f"sys.set_int_max_str_digits({sys.get_int_max_str_digits()})\n"
        f"{serve}{descriptors}"
    )


def _above_standard(end: socket.socket) -> socket.socket:
    """Return the socket with a descriptor above 2. A daemon has closed those below, and may be given one."""
    if sys.platform == "win32" or end.fileno() > _STANDARD_ERROR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1))


def give_permit_back() -> None:
    """Give back the permit of the calling worker: its call computes elsewhere from now on.

    The sampler gives one to a call that packs and sends large arguments. It would notice some steps later
    that the thread waits now, and until then no other call could send its arguments to a free isolate.
    """
    worker = current_worker()
    if worker is not None and worker.permit != NONE:
        exchange_permit(worker, NONE)


class Isolate:
    """Another interpreter. One thread at a time uses it; `kill` may come from any other.

    Attributes:
        cold: It has not run a call yet: what the first one takes has the start in it.
        is_set_up: It has been prepared for calls.
        setup: What prepares it; its calls are of those who have the same. None: what all have.
        modules: Names of the modules whose functions it has run, or has been made ready for.
        search_path: `sys.path` of this program when it was started; it has the same.
    """

    is_set_up = False
    setup: object = None
    modules: frozenset[str] = frozenset()
    _ends: tuple[socket.socket, ...] = ()
    """Of its sockets, until it is listed."""
    _leaves_by: float | None = None

    MEMORY = 0
    """Bytes to reckon with for each."""

    def __init__(self) -> None:
        here, there = self._make_ends()
        self.wire = Wire(here, asks=True)
        self.cold = True
        self.search_path = [*sys.path]
        try:
            self._start(there)
        except BaseException:
            for end in self._ends:
                end.close()
            self.is_listed()
            raise

    def _make_ends(self) -> tuple[socket.socket, socket.socket]:
        with _forks:
            low = socket.socketpair()
            ends = _above_standard(low[0]), _above_standard(low[1])
            self._ends += ends
            _unlisted.update(ends)
        return ends

    def is_listed(self) -> None:
        """Take note that a pool has it in its lists by now."""
        ends, self._ends = self._ends, ()
        _unlisted.difference_update(ends)

    def run(self, packed: Packed) -> Message:
        """Run a call and wait for what comes of it.

        Raises:
            WorkerLostError: The isolate ended, or has sent what is not the answer and is to be ended.
        """
        started = False
        try:
            self.wire.send(packed)
            started = True
            give_permit_back()
            message = self.wire.receive()
            while message.status == RECORDS and message.error is None:
                handle_records(message.value)
                message = self.wire.receive()
        except OutOfStepError:
            raise WorkerLostError(f"{self} has sent what is no answer to its call, so it was ended") from None
        except WireClosedError:
            fate, code = self._fate()
            raise WorkerLostError(fate, started=started, exitcode=code) from None
        self.cold = False
        return message

    def ask_to_leave(self) -> None:
        """Close the wire to the isolate, upon which it ends; does not wait."""
        self._leaves_by = time.monotonic() + LEAVING
        self.wire.end_sending()

    def time_to_leave(self) -> float:
        """Return the seconds left for it to end in; isolates that are asked together share one limit."""
        return LEAVING if self._leaves_by is None else max(0.0, self._leaves_by - time.monotonic())

    def _start(self, there: socket.socket) -> None:
        """Start what serves the other end, which belongs to it from now on."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Return True if it can take a call."""
        raise NotImplementedError

    def kill(self) -> None:
        """Release the caller of the call that runs, and stop the call if it can be stopped."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait for the end of an isolate that was asked to leave or killed."""
        raise NotImplementedError

    @classmethod
    def await_left(cls) -> None:
        """At the end of the program: give those that were left to themselves a moment to end."""

    def forget(self) -> None:
        """Leave it to the process that has forked this one."""
        self.wire.close()

    def _fate(self) -> tuple[str, int | None]:
        """Say what became of an isolate whose wire broke, and its exit code if it had one."""
        raise NotImplementedError


def _after_fork_in_child() -> None:
    for end in tuple(_unlisted):
        with suppress(OSError):
            end.close()
    _unlisted.clear()
    _forks.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.acquire, after_in_parent=_forks.release, after_in_child=_after_fork_in_child
    )
