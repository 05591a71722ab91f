"""Hooks: what a user may watch. One that raises is logged once, removed, and hurts nobody."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybridrt.pool.call import Call
from hybridrt.values import CallEvent

__all__ = ["HookRunner", "Hooks"]

logger = logging.getLogger("hybridrt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions to call; each is optional and must be fast.

    Attributes:
        on_thread_start: Called in each worker thread before its first call.
        on_thread_stop: Called in each worker thread after its last call.
        on_event: Called with each `CallEvent`, in whatever thread it happens, so that `submitted` may be told
            after `started`. A call that is withdrawn from the queue (cancelled, too late, dropped at close)
            has no more events; the statistics count it. It never sees arguments or results. Costs a few
            microseconds a call.

    Raises:
        TypeError: One of them is no function, or an asynchronous one.
    """

    on_thread_start: Callable[[], object] | None = None
    on_thread_stop: Callable[[], object] | None = None
    on_event: Callable[[CallEvent], object] | None = None

    def __post_init__(self) -> None:
        for name in Hooks.__slots__:
            hook = getattr(self, name)
            if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
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

    def submitted(self, call: Call) -> None:
        """Tell about an accepted call."""
        self._call("on_event", CallEvent(kind="submitted", name=call.profile.name))

    def started(self, call: Call) -> None:
        """Tell about a call that begins."""
        wait = (call.started_ns - call.queued_ns) / 1e9
        self._call("on_event", CallEvent(kind="started", name=call.profile.name, queue_wait=wait))

    def finished(self, call: Call) -> None:
        """Tell about a call that ended."""
        event = CallEvent(
            kind="finished",
            name=call.profile.name,
            queue_wait=(call.started_ns - call.queued_ns) / 1e9,
            wall=call.wall_ns / 1e9,
            cpu=call.cpu_ns / 1e9,
            error=None if call.error is None else type(call.error).__name__,
        )
        self._call("on_event", event)

    def _call(self, name: str, *args: Any) -> None:
        hook = getattr(self, name)
        if hook is None:
            return
        try:
            hook(*args)
        except Exception:
            setattr(self, name, None)
            self.removed += 1
            logger.exception("the hook %s raised and was removed", name)
