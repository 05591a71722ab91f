"""Nesting: a call asks for a lane that the call which waits for it holds.

Directly, in the same thread, that is seen at once. Through the loop it takes several threads:

    1. A call in worker W holds the lane and starts a coroutine on the loop, with
       `asyncio.run_coroutine_threadsafe` for example.
    2. The coroutine awaits a function of the same lane. That call queues behind the first one.
    3. W waits for the coroutine, which waits for W.

The steps 2 and 3 may come in either order. Only 3 makes it a dead-lock: a coroutine that W merely starts
gets its turn when W's call has ended. So the call of step 2 is queued, and fails when W is seen to wait,
which is looked at in the next turn of the loop and every `LOOK` seconds from then on.

What links 2 to 1 is the context: a call that holds a lane sets a context variable while it runs, and asyncio
and uvloop copy the context into the coroutines that it starts. That holds on executors with
`context="none"`, too, whose threads then have the variable in their own context. Executors with
`context="copy"` copy it into the calls that it submits. What is handed to another thread without the
context, by the standard library's pool or an executor with `context="none"`, is not recognised.
"""

from __future__ import annotations

import asyncio
from concurrent import futures
from contextvars import ContextVar
from threading import get_ident
from typing import Any

from hybridrt.errors import LaneNestingError
from hybridrt.executor.future import chained_to
from hybridrt.loop.call import LoopCall
from hybridrt.measure.frames import stack_of
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.state import QUEUED, Call
from hybridrt.pool.worker import current_worker

__all__ = ["NestingWatch", "note_holder", "refuse_nesting", "watch_nesting"]

LOOK = 0.02
"""Seconds between two looks at what the holder waits for. Not tuned."""
_WAITS = frozenset(
    wait.__code__
    for wait in (futures.Future.result, futures.Future.exception, futures.wait, futures.as_completed)
)


class _Held:
    """A lane that a running call holds; `limiter` is None once the call has ended."""

    __slots__ = ("limiter", "thread")

    def __init__(self, limiter: Limiter[Any]) -> None:
        self.limiter: Limiter[Any] | None = limiter
        self.thread = get_ident()

    def waits_for(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if the holder's thread waits for a future, and that may be the one of the task.

        It may not if the task has a future that no thread waits for. A task without any belongs to another
        one, and is taken to be waited for.
        """
        if not _waits_for_a_future(self.thread):
            return False
        own = _futures_of(task)
        return not own or any(map(_is_waited_for, own))


_held: ContextVar[tuple[_Held, ...]] = ContextVar("hybridrt_held_lanes", default=())


def note_holder(call: Call, limiter: Limiter[Any]) -> None:
    """Let what the call starts know that it holds the lane; nothing can be started from an isolate."""
    if call.isolated:
        return
    fn = call.fn
    assert fn is not None

    def hold(*args: Any, **kwargs: Any) -> Any:
        held = _Held(limiter)
        token = _held.set((*(other for other in _held.get() if other.limiter is not None), held))
        try:
            return fn(*args, **kwargs)
        finally:
            held.limiter = None  # contexts that were copied from ours may live on
            _held.reset(token)

    call.fn = hold


def refuse_nesting(limiter: Limiter[Any], name: str) -> None:
    """Raise if the thread that asks for the lane is the one that holds it.

    Raises:
        LaneNestingError: A call of this worker holds the lane.
    """
    worker = current_worker()
    if worker is not None and any(limiter in call.limiters for call in worker.calls()):
        raise _nesting_error(limiter, name)


def watch_nesting(call: LoopCall, limiter: Limiter[Any]) -> NestingWatch | None:
    """Watch a queued call, if it was asked for from inside of a call that holds its lane."""
    held = next((held for held in _held.get() if held.limiter is limiter), None)
    return None if held is None else NestingWatch(call, limiter, held)


class NestingWatch:
    """Looks whether the holder of a lane waits for a call that is queued for it, and fails that one then.

    Like a timer of the loop it is over when it is cancelled.
    """

    def __init__(self, call: LoopCall, limiter: Limiter[Any], held: _Held) -> None:
        self._call, self._limiter, self._held = call, limiter, held
        self._loop = call.get_loop()
        self._task = asyncio.current_task(self._loop)
        self._timer: asyncio.Handle = self._loop.call_soon(self._look)  # once asyncio has chained the task

    def _look(self) -> None:
        if self._held.limiter is None or self._call.state != QUEUED:
            return
        if self._held.waits_for(self._task):
            self._call.fail_in_queue(_nesting_error(self._limiter, self._call.profile.name))
        else:
            self._timer = self._loop.call_later(LOOK, self._look)

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()
        del self._call, self._task  # an error's traceback holds us


def _nesting_error(limiter: Limiter[Any], name: str) -> LaneNestingError:
    return LaneNestingError(
        f"{name} asks for the lane {limiter.name} inside a call that holds it and would wait for itself; "
        "call it with .sync(...) there"
    )


def _waits_for_a_future(thread: int) -> bool:
    return any(frame.f_code in _WAITS for frame in stack_of(thread))


def _futures_of(task: asyncio.Task[Any] | None) -> list[futures.Future[Any]]:
    """Return what `run_coroutine_threadsafe` returned when it made the task; else none."""
    callbacks = getattr(task, "_callbacks", None) or ()
    chained = (chained_to(callback) for callback, _ in callbacks)
    return [future for future in chained if isinstance(future, futures.Future)]


def _is_waited_for(future: Any) -> bool:
    return bool(future._condition._waiters or future._waiters)
