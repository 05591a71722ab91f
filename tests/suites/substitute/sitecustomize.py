"""Event loops get our executor as their default one; Python imports this at its start.

asyncio's make theirs when they first need it, and find ours in its place; uvloop's begin with ours.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from types import SimpleNamespace
from typing import Any


class _Substitute(type):
    """Makes our executors, and takes every thread pool for its own, as the stdlib's class does."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        import hybridrt

        return hybridrt.AdaptiveThreadPoolExecutor(*args, **kwargs)

    def __instancecheck__(cls, executor: object) -> bool:
        return isinstance(executor, concurrent.futures.ThreadPoolExecutor)


class ThreadPoolExecutor(metaclass=_Substitute):
    """What asyncio finds under this name."""


class _Futures(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(concurrent.futures, name)


found: Any = asyncio.base_events
found.concurrent = SimpleNamespace(futures=_Futures(ThreadPoolExecutor=ThreadPoolExecutor))


def _equip(loop_class: type[Any]) -> None:
    """Let loops of a class begin with our executor."""
    make = loop_class.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.set_default_executor(ThreadPoolExecutor())

    loop_class.__init__ = __init__  # type: ignore[misc]


try:
    import uvloop
except ImportError:  # on Windows
    pass
else:
    _equip(uvloop.Loop)
