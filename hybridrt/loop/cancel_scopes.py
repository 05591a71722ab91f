"""anyio's cancel scopes around what cannot end before a call that runs has ended.

A scope that is cancelled cancels its tasks in each turn of the loop until they have left it or are shielded.
So a task of one waits in a scope of its own, which is shielded once the wait has been cancelled. When the
call has ended, that scope is left, and anyio cancels the task again.

Nothing is imported: without anyio's backend there are no scopes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from contextlib import AbstractContextManager, nullcontext
from sys import modules
from typing import Any

from hybridrt.loop.call import LoopCall

__all__ = ["BACKEND", "new_scope", "shielded", "wait_or_shield", "wait_out", "within_scope"]

BACKEND = "anyio._backends._asyncio"


def new_scope() -> Any:
    """Return a cancel scope for the running task to enter; None if it is in none now."""
    module, task = modules.get(BACKEND), asyncio.current_task()
    states = getattr(module, "_task_states", None)  # one that is just being imported has none yet
    state = None if states is None or task is None else states.get(task)
    return None if getattr(state, "cancel_scope", None) is None else module.CancelScope()  # type: ignore[union-attr]


def within_scope(call: LoopCall) -> Awaitable[Any]:
    """Return what to await of a call that has been submitted."""
    scope = new_scope()
    return call if scope is None else call.wait_within(scope)


def shielded() -> AbstractContextManager[Any]:
    """Return what to wait in for the end of something that has been cancelled."""
    scope = new_scope()
    if scope is None:
        return nullcontext()
    scope.shield = True
    return scope  # type: ignore[no-any-return]


async def wait_out(tasks: Collection[asyncio.Task[Any]]) -> asyncio.CancelledError | None:
    """Wait until all tasks have ended, even if that is cancelled; return what has cancelled it last."""
    cancelled = None
    with shielded():
        while rest := [task for task in tasks if not task.done()]:
            try:
                await asyncio.wait(rest)
            except asyncio.CancelledError as error:
                cancelled = error
    return cancelled


async def wait_or_shield(scope: Any, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for tasks in a scope, which is shielded once that is cancelled: the tasks may take their time."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        scope.shield = True
        raise
