"""Hooks: what a user may watch. One that raises is logged once and removed, and no call fails by it."""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from hybridrt.clock import Clock
from hybridrt.placements import Placement
from hybridrt.pool.state import Call, Submission
from hybridrt.values import CallEvent, EventKind

__all__ = ["HookRunner", "Hooks"]

logger = logging.getLogger("hybridrt")

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions to call; each is optional and must be fast.

    Attributes:
        on_thread_start: Called in each worker thread before its first call.
        on_thread_stop: Called in each worker thread after its last call.
        on_event: Called with each `CallEvent`, in whatever thread it happens, the loop's own included: it
            must not block. Each call has one first and one last event, those that run on the loop included,
            so that a tracer can build spans of them; see `docs/tracing.md`. It never sees arguments or
            results. Costs some microseconds an event; nothing where there is no hook.

    Raises:
        TypeError: One of them is no function, or an asynchronous one.
    """

    on_thread_start: Callable[[], object] | None = None
    on_thread_stop: Callable[[], object] | None = None
    on_event: Callable[[CallEvent], object] | None = None

    def __post_init__(self) -> None:
        for name in Hooks.__slots__:
            hook = getattr(self, name)
            if hook is None:
                continue
            if not callable(hook) or any(map(inspect.iscoroutinefunction, (hook, type(hook).__call__))):
                raise TypeError(f"{name} must be a synchronous function or None, got {hook!r}")


class HookRunner:
    """Calls the hooks of one pool, and drops those that raise."""

    def __init__(self, hooks: Hooks | None) -> None:
        hooks = Hooks() if hooks is None else hooks
        self.on_thread_start = hooks.on_thread_start
        self.on_thread_stop = hooks.on_thread_stop
        self.on_event = hooks.on_event
        self.removed = 0

    def thread_started(self) -> None:
        """Tell about a new worker, in its thread."""
        self._call("on_thread_start")

    def thread_stopped(self) -> None:
        """Tell about a worker that leaves, in its thread."""
        self._call("on_thread_stop")

    def submitted(self, call: Call, place: Placement = "thread") -> None:
        """Tell about a call that is about to be submitted, in the context of the submitter."""
        place = "isolate" if call.isolated else place
        call.submission = Submission(next(_numbers), copy_context(), place)
        self._tell(call, "submitted")

    def rejected(self, call: Call, error: BaseException) -> None:
        """Tell about a call that was not accepted."""
        self._tell(call, "rejected", error=type(error).__name__)

    def withdrawn(self, call: Call, error: str) -> None:
        """Tell about an accepted call that never runs."""
        self._tell(call, "withdrawn", error=error)

    def started(self, call: Call) -> None:
        """Tell about a call that begins."""
        self._tell(call, "started", call.started_ns, queue_wait=_queue_wait(call))

    def abandoned(self, call: Call, error: str) -> None:
        """Tell about a call that runs on without its caller."""
        self._tell(call, "abandoned", error=error)

    def finished(self, call: Call, at_ns: int = 0) -> None:
        """Tell about a call that ended, at a time or now."""
        self._tell(
            call,
            "finished",
            at_ns,
            queue_wait=_queue_wait(call),
            wall=call.wall_ns / 1e9,
            cpu=call.cpu_ns / 1e9,
            error=None if call.error is None else type(call.error).__name__,
            cancel_requested=call.cancel_requested or call.abandoned,
        )

    def lost(self, call: Call) -> None:
        """Tell about a call that its worker took with it."""
        self._tell(call, "finished", error=type(call.error).__name__)

    def inline(self, fn: Callable[..., Any], name: str, clock: Clock) -> Callable[..., Any]:
        """Return `fn` so that a call of it here and now is told about."""

        def run(*args: Any, **kwargs: Any) -> Any:
            submission = Submission(next(_numbers), copy_context(), "inline")
            begun, cpu_begun, error = clock.wall_ns(), clock.cpu_ns(), None
            self._event(submission, name, "submitted", begun)
            self._event(submission, name, "started", begun, queue_wait=0.0)
            try:
                return fn(*args, **kwargs)
            except BaseException as raised:
                error = type(raised).__name__
                raise
            finally:
                ended = clock.wall_ns()
                wall, cpu = (ended - begun) / 1e9, (clock.cpu_ns() - cpu_begun) / 1e9
                self._event(
                    submission, name, "finished", ended, queue_wait=0.0, wall=wall, cpu=cpu, error=error
                )

        return run

    def _tell(self, call: Call, kind: EventKind, at_ns: int = 0, **figures: Any) -> None:
        if call.submission is not None:
            now = at_ns or call.pool.budget.clock.wall_ns()
            self._event(call.submission, call.profile.name, kind, now, **figures)

    def _event(self, submission: Submission, name: str, kind: EventKind, at_ns: int, **figures: Any) -> None:
        if self.on_event is None:
            return
        event = CallEvent(
            kind=kind,
            id=submission.id,
            name=name,
            at_ns=at_ns,
            place=submission.place,
            context=submission.context.copy(),  # two threads may not be in one at a time
            **figures,
        )
        self._call("on_event", event)

    def _call(self, name: str, *args: Any) -> None:
        hook = getattr(self, name)
        if hook is None:
            return
        try:
            hook(*args)
        except BaseException as error:
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C, most likely, and that is not the hook's
            setattr(self, name, None)
            self.removed += 1
            logger.exception("the hook %s raised and was removed", name)


def _queue_wait(call: Call) -> float:
    return (call.started_ns - call.queued_ns) / 1e9
