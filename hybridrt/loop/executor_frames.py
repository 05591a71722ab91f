"""How a loop's `run_in_executor` is told from a `submit` of the program's own: by its frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from types import MethodType
from typing import Any

__all__ = ["RUN_IN_EXECUTOR", "make_recognisable"]


def _run_in_executor(
    self: asyncio.AbstractEventLoop, executor: Executor | None, func: Callable[..., Any], *args: Any
) -> asyncio.Future[Any]:
    """Run the loop's own method, which has no frame, from one that can be recognised."""
    return type(self).run_in_executor(self, executor, func, *args)


RUN_IN_EXECUTOR = (asyncio.BaseEventLoop.run_in_executor.__code__, _run_in_executor.__code__)
"""The code of the frames from which a loop submits; the loop is their `self`."""


def make_recognisable(loop: asyncio.AbstractEventLoop) -> bool:
    """Let the `run_in_executor` of a loop be told by its frame; return False if it cannot be.

    A loop whose method is compiled gets an attribute of that name, which calls the method. One that the
    program has set stays.
    """
    if isinstance(loop, asyncio.BaseEventLoop):
        return True
    own = getattr(loop, "__dict__", {}).get("run_in_executor")
    if own is not None:
        return getattr(own, "__func__", None) is _run_in_executor
    try:
        loop.run_in_executor = MethodType(_run_in_executor, loop)  # type: ignore[method-assign, assignment]
    except AttributeError:  # it has no room for attributes of others
        return False
    return True
