"""A worker process: an isolate that can be killed, and that can crash alone.

Started by executing a new interpreter, in the worker thread that needs it, which takes a few tenths of
a second with the imports. Not `multiprocessing`: its children run the program's main module again, which
a library that starts processes by itself must not ask of a program, and its fork server and resource
tracker would be two processes more. Forking this process, with its threads, is out of the question.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hybridrt.compat import interpreter_flags
from hybridrt.errors import NotPortableError
from hybridrt.executor.budget import shared
from hybridrt.isolates.isolate import Isolate, program
from hybridrt.pool.native_limits import VARIABLES
from hybridrt.pool.priority import ISOLATE, lower

__all__ = ["WorkerProcess"]


class WorkerProcess(Isolate):
    """A child process."""

    MEMORY = 32 << 20
    """An interpreter with this package, and room for what the function imports. Taken high, not measured."""

    _held: socket.socket | None = None
    """The kernel ends the child once this process is gone, and with it this end."""

    def _start(self, there: socket.socket) -> None:
        _check_executable()
        windows = sys.platform == "win32"
        ends = [] if windows else [there]
        if sys.platform == "linux":
            self._held, watched = self._make_ends()
            ends.append(watched)
        descriptors = [end.fileno() for end in ends]
        flags = interpreter_flags()
        with _no_signals():
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", program("serve_process", *descriptors)],
                env=_environment(),
                stdin=subprocess.PIPE if windows else subprocess.DEVNULL,
                pass_fds=descriptors,
            )
        if shared.shield.goes_first():
            lower(self._process.pid, ISOLATE)
        if self._process.stdin is not None:
            with self._process.stdin as pipe:
                pipe.write(there.share(self._process.pid))  # type: ignore[attr-defined]
        for end in (there, *ends):
            end.close()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return True if the child has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the child at once."""
        self._process.kill()
        self.wire.cut()  # a child of the child may hold the other end

    def close(self) -> None:
        """Wait for its end, or bring it about."""
        self._end()
        self._close_ends()

    def forget(self) -> None:
        """Leave it to the process that has forked this one."""
        self._close_ends()
        self._process.returncode = 0  # else it would be told on as left running

    def _close_ends(self) -> None:
        self.wire.close()
        if self._held is not None:
            self._held.close()

    def _end(self) -> int:
        try:
            return self._process.wait(self.time_to_leave())
        except subprocess.TimeoutExpired:  # it has lost its wire and goes on
            self._process.kill()
            return self._process.wait()

    def _fate(self) -> tuple[str, int | None]:
        code = self._end()
        if code == 0 and sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            return f"{self} ended (its exit code is not known: this program ignores SIGCHLD)", None
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        return f"{self} {how}", code

    def __str__(self) -> str:
        return f"worker process {self.pid}"


def _environment() -> dict[str, str]:
    """Return the environment of a child: calls run in as many of them as there are cores, one thread each."""
    environment = {**os.environ}
    environment.pop("HYBRIDRT_PROFILE", None)  # this process has read it, and will write it
    if shared.native_limits.active:
        for name in VARIABLES:
            environment.setdefault(name, "1")
    return environment


def _check_executable() -> None:
    """Refuse to start what is no interpreter; a frozen program would start once more, and so without end."""
    if getattr(sys, "frozen", False) or not sys.executable:
        raise NotPortableError(
            "a worker process is started with the Python interpreter, expected it in sys.executable, got "
            f"{sys.executable!r}{' of a frozen program' if sys.executable else ''}; use where='thread'"
        )


@contextmanager
def _no_signals() -> Iterator[None]:
    """Start a child that Ctrl-C and SIGTERM do not reach before it has learned to ignore them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
