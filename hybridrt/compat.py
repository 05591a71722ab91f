"""Every private name of CPython that this package uses, checked when it is imported.

A Python that lacks one of them is refused by that name, at the import, and not by a call that fails later.
`tests/test_compat.py` keeps private names of the standard library out of all other modules. What may be
missing is not here but where it is asked for, with a check: anyio's and asyncio's own notes about a loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, _base
from concurrent.futures import thread as stdlib_threads
from threading import Thread
from typing import Any, NamedTuple

__all__ = [
    "CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED", "PENDING", "FuturesError", "PrivateName",
    "children_are_no_daemons", "futures_logger", "interpreter_flags", "lacking", "leave_behind",
    "register_at_exit", "stdlib_threads",
]  # fmt: skip


class PrivateName(NamedTuple):
    """A private name.

    Attributes:
        owner: What has it.
        path: Of the owner, as a reader would look for it.
        name: The name.
    """

    owner: Any
    path: str
    name: str


def _names(owner: Any, path: str, names: str) -> list[PrivateName]:
    return [PrivateName(owner, path, name) for name in names.split()]


NEEDED = (
    *_names(stdlib_threads, "concurrent.futures.thread", "_shutdown _threads_queues _global_shutdown_lock"),
    *_names(
        _base, "concurrent.futures._base", "LOGGER Error CANCELLED CANCELLED_AND_NOTIFIED FINISHED PENDING"
    ),
    *_names(Future(), "Future", "_condition _state _result _exception"),
    *_names(Future(), "Future", "_waiters _done_callbacks _invoke_callbacks"),
    *_names(threading, "threading", "_register_atexit"),
    *_names(Thread(name="never started"), "Thread", "_daemonic"),
    *_names(asyncio, "asyncio", "_get_running_loop _unregister_task"),
    *_names(sys, "sys", "_getframe _current_frames"),
)
"""All but those of modules that few programs need."""


def lacking(needed: Iterable[PrivateName] = NEEDED) -> list[str]:
    """Return those of the names that are not there, with their owners."""
    return [f"{path}.{name}" for owner, path, name in needed if not hasattr(owner, name)]


def _check(needed: Iterable[PrivateName]) -> None:
    if names := lacking(needed):
        version = ".".join(map(str, sys.version_info[:3]))
        raise ImportError(
            f"hybridrt needs private names of CPython that are known from 3.11 to 3.14; Python "
            f"{version} lacks {', '.join(names)}: use an earlier Python or a later hybridrt"
        )


_check(NEEDED)

CANCELLED: str = _base.CANCELLED
CANCELLED_AND_NOTIFIED: str = _base.CANCELLED_AND_NOTIFIED
FINISHED: str = _base.FINISHED
PENDING: str = _base.PENDING
FuturesError = _base.Error
futures_logger = _base.LOGGER
"""The logger of `concurrent.futures`."""


def register_at_exit(call: Callable[[], object]) -> None:
    """Let the interpreter call this before it joins its threads, the latest first.

    Raises:
        RuntimeError: It does that already.
    """
    threading._register_atexit(call)  # type: ignore[attr-defined]


def children_are_no_daemons(thread: Thread) -> None:
    """Let the threads that this daemon thread starts be none, although they take its flag over."""
    thread._daemonic = False  # type: ignore[attr-defined]


def leave_behind(task: asyncio.Task[Any]) -> None:
    """Let a loop end although a task of it goes on, without a warning; asyncio itself uses these names."""
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def interpreter_flags() -> list[str]:
    """Return the options with which this interpreter was started, for a child to have the same.

    Raises:
        ImportError: This Python does not say.
    """
    import subprocess

    _check(_names(subprocess, "subprocess", "_args_from_interpreter_flags"))
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags
