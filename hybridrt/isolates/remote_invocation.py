"""The remote invocation: what a worker thread runs in the place of the function."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any

from hybridrt.errors import (
    IsolateInitializerError,
    IsolateStartError,
    NotPortableError,
    WorkerLostError,
)
from hybridrt.isolates.child import ARGUMENTS, LOST, RAISED, REFUSED, RESULT
from hybridrt.isolates.context import Variables, carry
from hybridrt.isolates.frames import remote_error
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.isolate_pool import IsolatePool, interpreters, processes
from hybridrt.isolates.packing import Packed, pack
from hybridrt.isolates.reference import Reference, refer
from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.isolates.setup import DEFAULT_SETUP, READY, Setup
from hybridrt.isolates.wire import Message

__all__ = ["RemoteInvocation", "WarmingInvocation", "isolate_pool_for", "refuse"]

logger = logging.getLogger("hybridrt")

_ATTEMPTS = 5
"""New isolates to try that end before they get the call."""
_NOT_BEGUN = (REFUSED, LOST, ARGUMENTS)
_refused: set[tuple[str, str, int]] = set()
"""Places of functions that a sub-interpreter cannot run; they go to processes."""


def isolate_pool_for(reference: Reference, isolation: str) -> IsolatePool:
    """Return the pool of isolates that runs a function: sub-interpreters where there are any that can."""
    if interpreters is None or isolation == "process" or reference.place in _refused:
        return processes
    return interpreters


def refuse(reference: Reference) -> None:
    """Note that a function does not work in sub-interpreters."""
    _refused.add(reference.place)


class RemoteInvocation:
    """Runs one call in an isolate; called once, in a worker thread, in the function's place.

    Args:
        reference: The function.
        isolate_pool: Lends the isolate.
        on_round_trip: Hears of what the call cost, where it has come back; not of one that was lost.
        setup: Prepares the isolate; None for what all have.
        variables: Context variables that cross.
        context: The caller's, if anything of it is to cross.

    Attributes:
        took_ns: What the function itself took; 0 if it has not come back.
        cpu_ns: CPU time of that.
        unready: It was stopped while its isolate was made ready for it.
    """

    def __init__(
        self,
        reference: Reference,
        isolate_pool: IsolatePool,
        on_round_trip: Callable[[RoundTrip], object] | None = None,
        setup: Setup | None = None,
        variables: Variables = (),
        context: Context | None = None,
    ) -> None:
        self._setup, self._variables, self._context = setup, variables, context
        self._reference = reference
        self._on_round_trip = on_round_trip
        self._lock = threading.RLock()  # `stop` may interrupt itself
        self.isolate: Isolate | None = None
        self.isolate_pool = isolate_pool
        self.stopped = self.unready = False
        self.took_ns = self.cpu_ns = 0

    def stop(self) -> None:
        """Stop the call, if it can be; from any thread, at any time.

        The lock keeps this from hitting another caller's call, to which the isolate was lent next.
        """
        with self._lock:
            self.stopped = True
            if self.isolate is not None:
                self.unready = self._reference.module not in self.isolate.modules
                self.isolate.kill()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the call.

        Raises:
            NotPortableError: An argument or the result cannot cross.
            WorkerLostError: The isolate ended in the middle of it.
            BaseException: What the function raised.
        """
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        message, cold = self._run(self._pack(args, kwargs))
        self.took_ns, self.cpu_ns = message.wall_ns, message.cpu_ns
        if self._on_round_trip is not None and message.status <= RAISED:
            round_trip = RoundTrip(
                wall_ns=time.perf_counter_ns() - wall,
                host_cpu_ns=time.thread_time_ns() - cpu,
                child_wall_ns=message.wall_ns,
                child_cpu_ns=message.cpu_ns,
                cold=cold,
            )
            self._on_round_trip(round_trip)
        return self._outcome(message)

    def _pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Packed:
        return self._pack_call(self._reference, args, kwargs, (args, kwargs))

    def _pack_call(
        self,
        reference: Reference,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
    ) -> Packed:
        """Pack what the isolate is to run; `given` are the user's arguments, one of which may not be fit."""
        carried = () if self._context is None else (self._context.run(carry, self._variables),)
        try:
            return pack((tuple(reference), args, kwargs, *carried))
        except MemoryError as error:
            raise IsolateStartError(
                errno.ENOMEM,
                f"memory was lacking to carry the arguments of {self._reference}, so the call has not begun; "
                "free some, or use where='thread'",
            ) from error
        except Exception as error:
            raise NotPortableError(self._culprit(*given, error)) from error

    def _culprit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> str:
        """Say which argument or context variable cannot be packed.

        Raises:
            NotPortableError: The function itself cannot be.
        """
        if (fn := self._reference.pickled) is not None:
            refer(fn)
        for name, value in (*enumerate(args, 1), *kwargs.items()):
            try:
                pack(value)
            except Exception as problem:
                which = f"argument {name!r}"
                return (
                    f"{which} of {self._reference} is a {type(value).__qualname__} and cannot be carried to "
                    f"another interpreter: {problem}; pass what can be pickled, or use where='thread'"
                )
        for _, name, variable in self._variables:
            value = self._context and self._context.get(variable)
            try:
                pack(value)
            except Exception as problem:
                return (
                    f"the context variable {name!r} is a {type(value).__qualname__} and cannot be carried to "
                    f"another interpreter with {self._reference}: {problem}; leave it out of isolate_context"
                )
        return f"the arguments of {self._reference} cannot be carried to another interpreter: {error}"

    def _run(self, packed: Packed) -> tuple[Message, bool]:
        """Run the packed call; return what came of it and whether the isolate was new.

        An isolate that had ended before the call reached it is replaced, and so is one that cannot put the
        call together and has another search path than this program by now. A function that does not work in
        sub-interpreters goes on to a process.
        """
        new = 0
        while True:
            isolate = self._lease()
            cold = isolate.cold
            new += cold
            try:
                message = self._make_ready(isolate) or isolate.run(packed)
            except BaseException as error:
                self._let_go(isolate, fit=False)
                if self.stopped:
                    raise self._cancelled() from None
                if not isinstance(error, WorkerLostError):
                    self._note_failure(error)
                    raise
                fate, started, code = str(error), error.started, error.exitcode  # no traceback: it holds us
                if started or new == _ATTEMPTS:
                    break
            else:
                outdated = message.status in _NOT_BEGUN and isolate.search_path != sys.path
                self._let_go(isolate, fit=message.error is None and isolate.is_set_up and not outdated)
                if outdated:
                    continue
                if message.status != REFUSED or self.isolate_pool is not interpreters:
                    return message, cold
                refuse(self._reference)
                self.isolate_pool, new = processes, 0
        when = "while it ran" if started else "before it had the call of"
        raise WorkerLostError(f"{fate} {when} {self._reference}", started=started, exitcode=code)

    def _make_ready(self, isolate: Isolate) -> Message | None:
        """Prepare an isolate, and have it import the function's module; return what it answers if it refuses.

        Apart from the call, so that `stop` knows whether that has begun.
        """
        if not isolate.is_set_up and (refused := (self._setup or DEFAULT_SETUP).apply(isolate)):
            return refused
        if (module := self._reference.module) not in isolate.modules:
            message = isolate.run(pack((READY, ((*self._reference.place, None),), {})))
            isolate.modules |= {module}
            return message if message.status == REFUSED else None  # the call tells of another failure
        return None

    def _lease(self) -> Isolate:
        self._raise_if_stopped()  # starting one takes long
        if self._setup is not None:
            self._setup.check()
        isolate = self._take()
        with self._lock:
            if not self.stopped:
                self.isolate = isolate
                return isolate
        self.isolate_pool.give_back(isolate)
        raise self._cancelled()

    def _take(self) -> Isolate:
        """Take an isolate from the pool of isolates."""
        return self.isolate_pool.lease(self._setup)

    def _note_failure(self, error: BaseException) -> None:
        if self._setup is not None and isinstance(error, IsolateInitializerError):
            self._setup.failures += 1
            logger.error("%s", error, exc_info=error)  # a call under "auto" goes on in a thread

    def _raise_if_stopped(self) -> None:
        if self.stopped:
            raise self._cancelled()

    def _let_go(self, isolate: Isolate, *, fit: bool) -> None:
        with self._lock:
            self.isolate = None
            fit = fit and not self.stopped
        if fit:
            self.isolate_pool.give_back(isolate)
        else:
            self.isolate_pool.discard(isolate)

    def _cancelled(self) -> asyncio.CancelledError:
        return asyncio.CancelledError(f"no caller waits for {self._reference} any more")

    def _outcome(self, message: Message) -> Any:
        """Return the value, or raise what it says instead."""
        status, value = message.status, message.value
        if isinstance(message.error, MemoryError):
            raise message.error
        if message.error is not None:
            raise NotPortableError(
                f"what {self._reference} returned or raised cannot be rebuilt here: {message.error!r}",
                started=True,
            ) from message.error
        if status == RAISED:
            error = remote_error(value)
            try:
                raise error
            finally:
                del error, value, message  # the traceback holds this frame
        if status == RESULT:
            raise NotPortableError(
                f"the result of {self._reference} cannot be carried back: {value}; "
                "return what can be pickled, or use where='thread'",
                started=True,
            )
        if status in _NOT_BEGUN:
            what = "the arguments of " if status == ARGUMENTS and self._reference.pickled is None else ""
            raise NotPortableError(
                f"{what}{self._reference} could not be rebuilt in another interpreter: {value}; "
                "what it needs must be importable there, or use where='thread'"
            )
        return value


class WarmingInvocation(RemoteInvocation):
    """Makes one isolate ready for a function's calls: starts it, and imports the function's module there."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Do so, unless all are ready; what the import raises is left to the first call."""
        with suppress(_AllReady):
            self._run(pack((READY, (tuple(self._reference),), {})))

    def _take(self) -> Isolate:
        isolate = self.isolate_pool.lease_for(self._reference.module, self._setup)
        if isolate is None:
            raise _AllReady
        return isolate


class _AllReady(Exception):
    """No isolate is to be made ready any more."""
