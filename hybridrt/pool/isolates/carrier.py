"""The carrier: what a worker thread runs in the place of the function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridrt.errors import NotPortableError, WorkerLostError
from hybridrt.pool.isolates.child import ARGUMENTS, LOST, RAISED, REFUSED, RESULT
from hybridrt.pool.isolates.crew import Crew, interpreters, processes
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.frames import RemoteFrame, rebuild_frames
from hybridrt.pool.isolates.isolate import Isolate
from hybridrt.pool.isolates.packing import Packed, pack
from hybridrt.pool.isolates.reference import Reference
from hybridrt.pool.isolates.wire import Message

__all__ = ["Carrier", "RemoteTraceback", "crew_for", "hide_own_frames", "refuse"]

_ATTEMPTS = 5
"""New isolates to try that end before they get the call."""
_refused: set[tuple[str, str, int]] = set()
"""Places of functions that a sub-interpreter cannot run; they go to processes."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another interpreter, as text.

    Attributes:
        frames: The same as frames, which the exception shows as its own here.
    """

    def __init__(self, text: str, frames: Sequence[RemoteFrame]) -> None:
        super().__init__(text)
        self.frames = rebuild_frames(frames)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def hide_own_frames(error: BaseException | None) -> None:
    """Leave of the traceback of what an isolate has raised only the frames over there."""
    if error is not None and isinstance(error.__cause__, RemoteTraceback):
        error.__traceback__ = error.__cause__.frames


def crew_for(reference: Reference, isolation: str) -> Crew:
    """Return the crew that runs a function: sub-interpreters where there are any that can."""
    if interpreters is None or isolation == "process" or reference.place in _refused:
        return processes
    return interpreters


def refuse(reference: Reference) -> None:
    """Note that a function does not work in sub-interpreters."""
    _refused.add(reference.place)


class Carrier:
    """Runs one call in an isolate; called once, in a worker thread, in the function's place.

    Args:
        reference: The function.
        crew: Lends the isolate.
        on_crossing: Hears of what the call cost, where it has come back; not of one that was lost.
    """

    __slots__ = ("_lock", "_on_crossing", "_reference", "crew", "isolate", "stopped")

    def __init__(
        self, reference: Reference, crew: Crew, on_crossing: Callable[[Crossing], object] | None = None
    ) -> None:
        self._reference = reference
        self._on_crossing = on_crossing
        self._lock = threading.RLock()  # `stop` may interrupt itself
        self.isolate: Isolate | None = None
        self.crew = crew
        self.stopped = False

    def stop(self) -> None:
        """Stop the call, if it can be; from any thread, at any time.

        The lock keeps this from hitting a call of somebody else, to whom the isolate was lent next.
        """
        with self._lock:
            self.stopped = True
            if self.isolate is not None:
                self.isolate.kill()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the call.

        Raises:
            NotPortableError: An argument or the result cannot cross.
            WorkerLostError: The isolate ended in the middle of it.
            BaseException: What the function raised.
        """
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        message, cold = self._run(self._pack(args, kwargs))
        if self._on_crossing is not None and message.status <= RAISED:
            crossing = Crossing(
                wall_ns=time.perf_counter_ns() - wall,
                host_cpu_ns=time.thread_time_ns() - cpu,
                child_wall_ns=message.wall_ns,
                child_cpu_ns=message.cpu_ns,
                cold=cold,
            )
            self._on_crossing(crossing)
        return self._outcome(message)

    def _pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Packed:
        try:
            return pack((tuple(self._reference), args, kwargs))
        except Exception as error:
            raise NotPortableError(self._culprit(args, kwargs, error)) from error

    def _culprit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> str:
        """Say which argument cannot be packed."""
        for name, value in (*enumerate(args, 1), *kwargs.items()):
            try:
                pack(value)
            except Exception as problem:
                which = f"argument {name}" if isinstance(name, int) else f"argument {name!r}"
                return (
                    f"{which} of {self._reference} is a {type(value).__qualname__} and cannot be carried to "
                    f"another interpreter: {problem}; pass what can be pickled, or use where='thread'"
                )
        return f"the arguments of {self._reference} cannot be carried to another interpreter: {error}"

    def _run(self, packed: Packed) -> tuple[Message, bool]:
        """Run the packed call; return what came of it and whether the isolate was new.

        An isolate that had ended before the call reached it is replaced. A function that does not work in
        sub-interpreters goes on to a process.
        """
        new = 0
        while True:
            isolate = self._lease()
            cold = isolate.cold
            new += cold
            try:
                message = isolate.run(packed)
            except BaseException as error:
                self._let_go(isolate, fit=False)
                if self.stopped:
                    raise self._cancelled() from None
                if not isinstance(error, WorkerLostError):
                    raise
                fate, started, code = str(error), error.started, error.exitcode  # no traceback: it holds us
                if started or new == _ATTEMPTS:
                    break
            else:
                self._let_go(isolate, fit=message.error is None)
                if message.status != REFUSED or self.crew is not interpreters:
                    return message, cold
                refuse(self._reference)
                self.crew, new = processes, 0
        raise WorkerLostError(f"{fate} in the middle of {self._reference}", started=started, exitcode=code)

    def _lease(self) -> Isolate:
        self._raise_if_stopped()  # starting one takes long
        isolate = self.crew.lease()
        with self._lock:
            if not self.stopped:
                self.isolate = isolate
                return isolate
        self.crew.give_back(isolate)
        raise self._cancelled()

    def _raise_if_stopped(self) -> None:
        if self.stopped:
            raise self._cancelled()

    def _let_go(self, isolate: Isolate, *, fit: bool) -> None:
        with self._lock:
            self.isolate = None
            fit = fit and not self.stopped
        if fit:
            self.crew.give_back(isolate)
        else:
            self.crew.discard(isolate)

    def _cancelled(self) -> asyncio.CancelledError:
        return asyncio.CancelledError(f"nobody waits for {self._reference} any more")

    def _outcome(self, message: Message) -> Any:
        """Return the value, or raise what it says instead."""
        status, value = message.status, message.value
        if message.error is not None:
            raise NotPortableError(
                f"what {self._reference} returned or raised cannot be rebuilt here: {message.error!r}",
                started=True,
            ) from message.error
        if status == RAISED:
            error, text, frames = value
            error.__cause__ = RemoteTraceback(text, frames)
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
        if status in (REFUSED, LOST, ARGUMENTS):
            what = "the arguments of " if status == ARGUMENTS else ""
            raise NotPortableError(
                f"{what}{self._reference} could not be rebuilt in another interpreter: {value}; "
                "what it needs must be importable there, or use where='thread'"
            )
        return value
