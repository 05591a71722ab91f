"""How an isolate is prepared before its first call: logging, and the program's own initializer."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

from hybridrt.errors import IsolateInitializerError, NotPortableError, WorkerLostError
from hybridrt.isolates.child import RAISED, REFUSED, VALUE
from hybridrt.isolates.frames import remote_error
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.packing import pack
from hybridrt.isolates.records import attach_sender, logger_levels
from hybridrt.isolates.reference import Reference, refer, resolve, without_thread
from hybridrt.isolates.wire import Message

__all__ = ["DEFAULT_SETUP", "READY", "Setup", "make_setup"]

_FAILURES_MAX = 3
"""Isolates in a row in which the initializer fails until no more are started. Not measured: one may be
unlucky."""


class Setup:
    """Prepares isolates, which then are lent to the calls of those with the same setup alone.

    Attributes:
        failures: Isolates in a row in which the initializer has failed; counted without a lock.

    Args:
        initializer: Runs once in each isolate.
        initargs: Its arguments.
        forwards: Records of `logging` are sent here.

    Raises:
        TypeError: The initializer cannot be called, or `initargs` is no tuple.
        ValueError: Another interpreter cannot find the initializer, or its arguments cannot be pickled.
    """

    def __init__(
        self,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        forwards: bool = True,
    ) -> None:
        _check(initializer, initargs)
        self.failures = 0
        self._reference = None if initializer is None else _refer(initializer)
        self._args = initargs
        self._forwards = forwards and os.environ.get("HYBRIDRT_ISOLATE_LOGGING", "1") != "0"

    def check(self) -> None:
        """Raise an `IsolateInitializerError` if the initializer has failed too often."""
        if self.failures >= _FAILURES_MAX:
            raise IsolateInitializerError(
                f"isolate_initializer {self._reference} failed in {self.failures} isolates in a row and is "
                "not run again, so the call has not begun; make a new Runtime once it works"
            )

    def apply(self, isolate: Isolate) -> Message | None:
        """Prepare an isolate; return what it answers instead if the initializer needs a process.

        Raises:
            IsolateInitializerError: The initializer failed.
            WorkerLostError: The isolate ended without one.
        """
        levels = (logger_levels(), int(logging.root.manager.disable)) if self._forwards else None
        initializer = None if self._reference is None else (tuple(self._reference), self._args)
        try:
            message = isolate.run(pack((_SET_UP, (levels, initializer), {})))
        except WorkerLostError as error:
            if self._reference is None:
                raise WorkerLostError(str(error), started=False, exitcode=error.exitcode) from None
            raise self._failed(f"ended its isolate: {error}") from None
        isolate.cold = True  # what its first call takes has the start in it
        if message.status == REFUSED:
            return message
        if message.status == RAISED and message.error is None:
            cause = remote_error(message.value)
            raise self._failed(f"raised in an isolate: {cause!r}") from cause
        if message.status != VALUE:
            raise self._failed(f"could not be run in an isolate: {message.error or message.value}")
        isolate.is_set_up, self.failures = True, 0
        return None

    def _failed(self, how: str) -> IsolateInitializerError:
        what = "the setup" if self._reference is None else f"isolate_initializer {self._reference}"
        return IsolateInitializerError(f"{what} {how}; the call has not begun, and that isolate is ended")


def set_up(levels: tuple[dict[str, int], int] | None, initializer: tuple[Any, Any] | None) -> None:
    """Prepare this isolate."""
    if levels is not None:
        attach_sender(*levels)
    if initializer is not None:
        reference, args = initializer
        resolve(*reference)(*args)


def get_ready(reference: tuple[str, str, int, bytes | None]) -> None:
    """Import what a function needs."""
    resolve(*reference)


_SET_UP = tuple(Reference(__name__, "set_up"))
READY = tuple(Reference(__name__, "get_ready"))
"""What a call refers to that makes an isolate ready for a function."""


def make_setup(
    initializer: Callable[..., object] | None, initargs: tuple[Any, ...], *, forwards: bool
) -> Setup | None:
    """Return what prepares the isolates of a runtime; None if that is nothing of its own."""
    setup = Setup(initializer, initargs, forwards=forwards)
    return None if initializer is None and forwards else setup


def _check(initializer: object, initargs: object) -> None:
    if initializer is not None and (not callable(initializer) or inspect.iscoroutinefunction(initializer)):
        raise TypeError(f"isolate_initializer must be a synchronous callable or None, got {initializer!r}")
    if not isinstance(initargs, tuple):
        raise TypeError(f"isolate_initargs must be a tuple, got {initargs!r}")
    if initargs and initializer is None:
        raise ValueError(f"isolate_initargs needs an isolate_initializer, got {initargs!r} without one")
    for number, value in enumerate(initargs):
        try:
            pack(value)
        except Exception as error:
            raise ValueError(
                f"isolate_initargs[{number}] is a {type(value).__qualname__} and cannot be carried to an "
                f"isolate: {error}; pass what can be pickled"
            ) from error


def _refer(initializer: Callable[..., object]) -> Reference:
    try:
        return refer(initializer)
    except NotPortableError as error:
        raise ValueError(f"isolate_initializer {without_thread(error)}") from error


DEFAULT_SETUP = Setup()
"""What all isolates have whose runtime asks for nothing of its own."""
