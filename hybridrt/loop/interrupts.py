"""Ctrl-C lets hybridrt and the loop finish the step that it strikes in.

Whatever handles SIGINT on the main thread stays the one that does: asyncio's, which cancels the main task at
the first Ctrl-C and raises `KeyboardInterrupt` at the second, or Python's, which raises at once. While a
runtime is open it is only asked a moment later, by the loop, if the signal arrives in the middle of a step
that must be done as a whole, or in code of ours or of asyncio, whose steps are, too:

    1. The loop takes a callback out of its queue, to wake a task.
    2. The second Ctrl-C raises there, and the callback is lost.
    3. `Runner.close` cancels the task and waits for it. It was told to wake already, and never will.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hybridrt.loop.watch import this_run
from hybridrt.pool.uninterrupted import is_uninterrupted

__all__ = ["Interrupts", "ctrl_c_held_back"]

_OURS = frozenset({"asyncio", __name__.partition(".")[0]})
_USED_BY_LOOPS = frozenset({"_weakrefset", "selectors", "socket", "weakref"})
"""Modules of the standard library in which loops may stand."""
Handler = Callable[[int, FrameType | None], Any]


class Interrupts:
    """Stands before the handler of SIGINT."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._handle: Handler | None = None
        self._own = self._arrived  # one object, to be known again
        self._closed = False
        self._run: object = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the handler's place for the loop of this thread, if that is the main one."""
        self._loop, self._run, handle = loop, this_run(), signal.getsignal(signal.SIGINT)
        if callable(handle) and _may_handle():  # else it is ignored, or the operating system's
            self._handle = handle
            signal.signal(signal.SIGINT, self._own)

    def close(self) -> None:
        """Give the place back, unless another handler has taken it meanwhile."""
        self._closed = True
        if self._handle is not None and signal.getsignal(signal.SIGINT) is self._own:
            signal.signal(signal.SIGINT, _standing(self._handle))

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        assert self._handle is not None
        if self._loop.is_running() and (is_uninterrupted(frame) or _is_ours(frame)):
            main = _main_of(self._handle)
            if self._run is not this_run():  # main has ended with the run in which this was opened
                main = None
            self._loop.call_soon_threadsafe(self._pass_on, number, main)
        else:
            self._handle(number, frame)

    def _pass_on(self, number: int, main: asyncio.Task[Any] | None) -> None:
        """Let the signal be handled now, or raise it again after the loop's run if that ends in this turn.

        An exception now would leave behind what stops the loop: it would stop as `Runner.close` runs it.

        Args:
            number: Of the signal.
            main: The task that the handler cancels and with which the run ends; None if there is none.
        """
        assert self._handle is not None
        if main is not None and main.done():
            if not main.cancelled():  # else `Runner.run` raises `KeyboardInterrupt` anyway
                self._loop.call_soon(signal.raise_signal, number)
            return
        try:
            self._handle(number, None)
        except KeyboardInterrupt:
            if main is not None:
                _keep_from_stopping(main)
            raise


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Let the block end before the first Ctrl-C raises `KeyboardInterrupt`; the second raises at once."""

    def hold(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) > 1:
            raise KeyboardInterrupt

    pressed: list[int] = []
    handle = signal.getsignal(signal.SIGINT)
    if not callable(handle) or not _may_handle():
        yield
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handle)
    if pressed:
        raise KeyboardInterrupt


def _may_handle() -> bool:
    """Return True in the main thread of the main interpreter."""
    try:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except (TypeError, ValueError):
        return False
    return True


def _is_ours(frame: FrameType | None) -> bool:
    """Return True if code of asyncio or of this package runs, and not what it has called of others."""
    while frame is not None and frame.f_globals.get("__name__") in _USED_BY_LOOPS:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS


def _main_of(handle: Handler) -> asyncio.Task[Any] | None:
    """Return the task that the handler of a `Runner` cancels; None if it is another handler."""
    runner = getattr(getattr(handle, "func", None), "__self__", None)
    return handle.keywords["main_task"] if isinstance(runner, asyncio.Runner) else None  # type: ignore[attr-defined]


def _keep_from_stopping(main: asyncio.Task[Any]) -> None:
    """Let the end of a task no longer stop its loop, whose run ends now.

    uvloop runs the callbacks of one more turn after an exception. If `main` ended there, it would leave
    behind what stops the loop.
    """
    for callback, _ in getattr(main, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "") == "run_until_complete.<locals>.done_cb":
            main.remove_done_callback(callback)


def _standing(handle: Handler) -> Handler:
    """Return the handler, or Python's if it is that of a `Runner.run` that has ended since.

    `Runner.run` puts Python's back where it finds its own, and so not if ours is there:

        1. `KeyboardInterrupt` or `SystemExit` ends it.
        2. `Runner.close` runs the loop again, so that the tasks end, the one with the runtime among them.

    Nor if another run closes the runtime, as that of an asynchronous fixture does.
    """
    while isinstance(owner := getattr(handle, "__self__", None), Interrupts) and owner._closed:
        assert owner._handle is not None
        handle = owner._handle  # of the runtime of another loop, which was opened first and closed first
    main = _main_of(handle)
    if main is None:
        return handle
    frame: FrameType | None = None if main.done() else sys._getframe()
    while frame is not None:
        if frame.f_code is asyncio.Runner.run.__code__:
            return handle
        frame = frame.f_back
    return signal.default_int_handler


def _start_clean() -> None:
    """Take our place from us in a forked child, in which the loop of its parent does not run."""
    found = handle = signal.getsignal(signal.SIGINT)
    while isinstance(owner := getattr(handle, "__self__", None), Interrupts):
        handle = owner._handle
    if handle is not found and callable(handle):
        signal.signal(signal.SIGINT, handle if _main_of(handle) is None else signal.default_int_handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_clean)
