"""What runs inside an isolate: take a call, run it, send back what came of it.

Nothing that the function raises ends the isolate, `SystemExit` and `KeyboardInterrupt` included: they
are results. A worker process ignores Ctrl-C, which a terminal sends to all processes at once, and SIGTERM,
which a service manager does; its parent decides. It ends when its parent closes the wire, and at once, even
in the middle of a call, when the parent is gone; one that keeps the GIL ends first, except on Linux.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any

from hybridrt.isolates.context import run_within
from hybridrt.isolates.frames import name_frames
from hybridrt.isolates.packing import Packed, pack, unpack
from hybridrt.isolates.records import RecordSender
from hybridrt.isolates.reference import NotFoundHereError, resolve
from hybridrt.isolates.wire import Wire, WireClosedError

if sys.platform == "linux":
    import fcntl

__all__ = [
    "ARGUMENTS", "LOST", "RAISED", "REFUSED", "RESULT", "VALUE", "Status", "inside", "serve_process",
    "serve_thread",
]  # fmt: skip


class Status(IntEnum):
    """What a reply holds.

    The value; the exception, its traceback as text, and its frames; or the reason, as text, why a module does
    not work in this interpreter, the function was not found, the arguments could not be put together, or the
    result could not be taken apart.
    """

    VALUE = 0
    RAISED = 1
    REFUSED = 2
    LOST = 3
    ARGUMENTS = 4
    RESULT = 5


VALUE, RAISED, REFUSED, LOST, ARGUMENTS, RESULT = Status
_NO_TERMINAL = (
    "its process has no terminal: run the program with HYBRIDRT_WHERE=thread or HYBRIDRT_WHERE=inline in its "
    "environment, or give the function where='thread'; PYTHONBREAKPOINT may name a debugger that needs none"
)
_REFUSALS = ("subinterpreter", "daemon threads are disabled")
"""What CPython says in a sub-interpreter of extensions and forks, and of daemon threads."""
_OWN = "hybridrt.isolates."
_DEBUGGER = frozenset({"bdb", "pdb"})

Reply = tuple[int, int, int, Packed]
_Clock = Callable[[], int]
_inside = False


def inside() -> bool:
    """Return True if this interpreter is an isolate."""
    return _inside


def serve_process(descriptor: int | None = None, watched: int | None = None) -> None:
    """Run calls until the wire closes; the main program of a worker process.

    Args:
        descriptor: The wire; None where it arrives on standard input (Windows).
        watched: A socket whose other end the parent keeps as long as it lives (Linux).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _go_on)
    if hasattr(signal, "pthread_sigmask"):  # the parent has blocked them until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGIO})
        os.register_at_fork(after_in_child=_end_on_sigterm)
    if watched is not None:
        _end_with_parent(watched)
    if os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace"):
        sys.breakpointhook = _refuse_debugger
    _serve(_open(descriptor), time.process_time_ns)


def serve_thread(descriptor: int) -> None:
    """Run calls until the wire closes; the main program of a sub-interpreter, in a thread of its own."""
    # A copy, because the socket that it belongs to is closed by who made it.
    _serve(socket.socket(fileno=os.dup(descriptor)), time.thread_time_ns)


def _serve(end: socket.socket, clock: _Clock) -> None:
    global _inside
    _inside = True
    wire = Wire(end)
    sender = RecordSender(wire)
    try:
        while True:
            message = wire.receive()
            sender.live = True
            status, wall_ns, cpu_ns, packed = _run(message.value, message.error, clock)
            sender.live = False
            with suppress(Exception):  # it may be closed, or None
                sys.stdout.flush()  # a kill would take along what earlier calls have printed
            del message  # an idle isolate keeps nothing of a call alive
            if sender.waiting:
                sender.send_waiting()
            wire.send(packed, status, wall_ns, cpu_ns)
            del packed
    except WireClosedError:
        pass
    finally:
        wire.close()


def _open(descriptor: int | None) -> socket.socket:
    if descriptor is None:
        return socket.fromshare(sys.stdin.buffer.read())  # type: ignore[attr-defined, no-any-return]
    os.set_inheritable(descriptor, False)
    end = socket.socket(fileno=descriptor)
    # A process that the function forks would keep the wire open after the end of this process.
    os.register_at_fork(after_in_child=end.close)
    threading.Thread(target=_leave_with_parent, args=(end,), daemon=True).start()
    return end


def _end_with_parent(watched: int) -> None:
    """Have the kernel end this process once the parent is gone, also while a call keeps the GIL."""
    if sys.platform == "linux":
        os.set_inheritable(watched, False)
        signal.signal(signal.SIGIO, signal.SIG_DFL)  # the parent may ignore it, and so would this process
        with suppress(OSError):  # where the kernel knows no such thing, the thread that watches ends it
            fcntl.fcntl(watched, fcntl.F_SETOWN, os.getpid())  # not a process that the function forks
            fcntl.fcntl(watched, fcntl.F_SETFL, os.O_ASYNC)
        _leave_with_parent(watched, 0)  # it may have gone before


def _go_on(*_: object) -> None:
    """Ignore SIGTERM by a handler, which programs that the function starts do not inherit."""


def _end_on_sigterm() -> None:
    """Give SIGTERM its effect back in a process that the function forks, unless it has set another one."""
    if signal.getsignal(signal.SIGTERM) is _go_on:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _refuse_debugger(*args: Any, **kwargs: Any) -> None:
    """Take the place of pdb, which would find an empty input and end the call in its own ways."""
    raise _no_terminal("breakpoint() was called")


def _no_terminal(what: str) -> RuntimeError:
    return RuntimeError(f"{what} in an isolate; {_NO_TERMINAL}")


def _leave_with_parent(end: socket.socket | int, timeout: int | None = None) -> None:
    """End this process once the parent has none of its end of a socket; needs the GIL for that.

    Where this process has closed its own end it is on its way out, and its exit handlers have their time.

    Args:
        end: The other end.
        timeout: Milliseconds to wait for that; None for any number.
    """
    watch = select.poll()
    watch.register(end, 0)  # errors and hang-ups are always told
    if any(event != select.POLLNVAL for _, event in watch.poll(timeout)):
        os._exit(1)


def _run(call: Any, problem: BaseException | None, clock: _Clock) -> Reply:
    """Run a call and pack what came of it.

    Args:
        call: Reference, arguments, keyword arguments, and what is carried of the caller's context if there
            is any.
        problem: Why they could not be put together.
        clock: The CPU time of who runs it.
    """
    if isinstance(problem, MemoryError):  # with which the function may still be carried another time
        return RAISED, 0, 0, _pack_error(problem)
    if problem is not None:
        return _excuse(REFUSED if _refuses(problem) else ARGUMENTS, problem)
    reference, args, kwargs, *carried = call
    try:
        fn = resolve(*reference)
        if carried:
            fn = partial(run_within, carried[0], fn)
    except BaseException as error:  # a module may want to end the program
        return _not_found(error)
    cpu, wall = clock(), time.perf_counter_ns()
    try:
        value = fn(*args, **kwargs)
    except NotFoundHereError as error:
        return _not_found(error.__cause__ or error)
    except BaseException as error:
        spent = time.perf_counter_ns() - wall, max(0, clock() - cpu)
        return _excuse(REFUSED, error) if _refuses(error) else (RAISED, *spent, _pack_error(error))
    spent = time.perf_counter_ns() - wall, max(0, clock() - cpu)  # the clock of a forked child begins anew
    try:
        return VALUE, *spent, pack(value)
    except MemoryError as error:
        return RAISED, *spent, _pack_error(error)
    except BaseException as error:  # as the panic of an extension written in Rust
        return RESULT, *spent, pack(f"{_type_name(value)}: {_text_of(error)}")


def _not_found(error: BaseException) -> Reply:
    return _excuse(REFUSED if isinstance(error, ImportError) or _refuses(error) else LOST, error)


def _excuse(status: int, error: BaseException) -> Reply:
    return status, 0, 0, pack(_told(error))


def _refuses(error: BaseException) -> bool:
    """Return True if this needs a process: an extension module that does not load in sub-interpreters, a
    fork or a daemon thread; some packages wrap the error.
    """
    link: BaseException | None = error
    seen = set[int]()  # an error may be its own cause
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, (ImportError, RuntimeError)):
            text = _text_of(link)
            if any(refusal in text for refusal in _REFUSALS):
                return True
        link = link.__cause__ or link.__context__
    return False


def _pack_error(error: BaseException) -> Packed:
    """Pack an exception that can be rebuilt, or else one that tells its type and text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OWN):
        trace = trace.tb_next  # the frames above the function's own
    text = "".join(traceback.format_exception(type(error), error, trace))
    frames = name_frames(trace)
    if sys.breakpointhook is _refuse_debugger and any(module in _DEBUGGER for *_, module, _, _ in frames):
        error = _no_terminal("a debugger was started")  # it ends in `BdbQuit`, from 3.14 on in `SystemExit`
    possible: Packed | None = None
    for take_apart in (pack, _pack_by_state):
        with suppress(BaseException):
            packed = take_apart((error, text, frames))
            rebuilt = unpack(b"".join(packed.pieces), packed.buffers)[0]
            possible = possible or packed
            # The constructor of one that formats its text would format that text again.
            if _texts(rebuilt) == _texts(error):
                return packed
    return possible or pack((RuntimeError(_told(error)), text, frames))


def _texts(error: Any) -> list[str]:
    """Return the text of an exception and of those in it; its `repr` may have all that was decoded in it."""
    return [str(error), *(text for each in getattr(error, "exceptions", ()) for text in _texts(each))]


def _pack_by_state(value: Any) -> Packed:
    """Take something apart with exceptions in it whose constructors want other arguments than they keep."""
    file = io.BytesIO()
    _ErrorPickler(file, 5).dump(value)
    return Packed((file.getvalue(),))


class _ErrorPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            _, args, *state = _built_in(type(value)).__reduce__(value)
            return _rebuild_error, (type(value), args, *state)
        return NotImplemented


def _rebuild_error(kind: type, args: tuple[Any, ...], state: Mapping[str, Any] = {}) -> BaseException:
    """Make an exception without its own constructor, which has run already."""
    error: BaseException = kind.__new__(kind, *args)
    _built_in(kind).__init__(error, *args)
    for name, value in state.items():
        object.__setattr__(error, name, value)  # its own may refuse
    return error


def _built_in(kind: Any) -> Any:
    """Return the class of CPython's own that keeps what is not in an exception's `__dict__`."""
    while kind.__module__ != "builtins":
        kind = kind.__base__
    return kind


def _told(error: BaseException) -> str:
    return f"{_type_name(error)}: {_text_of(error)}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:
        return f"<no text: its __str__ raised {type(raised).__name__}>"


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
