"""Completions in batches: one wake-up of the loop per turn, not one per call.

Workers append ended calls to their loop's port; the first of them since the last turn wakes the
loop, which then settles all that have gathered. Why no wake-up is lost, workers W, loop L:

    1. W appends its call.
    2. W reads `scheduled`. True: somebody's wake-up is on its way, done. False: W sets it, and wakes.
    a. L sets `scheduled` to False.
    b. L settles everything in the queue.

    If W reads True in 2, L has not done a yet, so b comes after 1 and takes W's call with it. If two
    workers both read False, L is woken twice and finds nothing the second time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import Protocol
from weakref import WeakKeyDictionary

from hybridrt.pool.executor import AdaptiveThreadPoolExecutor
from hybridrt.pool.pool import Pool

__all__ = ["Port", "current_port", "private_executor"]

logger = logging.getLogger("hybridrt")


class Settles(Protocol):
    """A call whose future lives on a loop."""

    def settle(self) -> None:
        """Complete the future; called on its loop."""
        ...


class Port:
    """Where the calls of one loop go out and come back.

    Args:
        loop: The loop.
        executor: Runs its calls.
        pool: The pool to use instead of the executor's own; for tests.
    """

    __slots__ = ("__weakref__", "_done", "_drain", "_scheduled", "copies_context", "executor", "loop", "pool")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: AdaptiveThreadPoolExecutor, pool: Pool | None = None
    ) -> None:
        self.loop = loop
        self.executor = executor
        self.pool: Pool = executor._pool if pool is None else pool
        self.copies_context = executor._copies_context
        self._done: deque[Settles] = deque()
        self._scheduled = False
        self._drain = self._settle_all

    def put(self, call: Settles) -> None:
        """Hand over an ended call, from any thread."""
        self._done.append(call)
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody can wait any more
                logger.debug("a call ended after its event loop was closed")

    def _settle_all(self) -> None:
        self._scheduled = False
        done = self._done
        for _ in range(len(done)):
            done.popleft().settle()


class _Here(threading.local):
    port: Port | None = None


_here = _Here()
_ports: WeakKeyDictionary[asyncio.AbstractEventLoop, Port] = WeakKeyDictionary()
_private: AdaptiveThreadPoolExecutor | None = None
_private_lock = threading.Lock()


def current_port() -> Port:
    """Return the port of the running loop; without a runtime, one to the private executor.

    Raises:
        RuntimeError: No event loop is running.
    """
    loop = asyncio.get_running_loop()
    port = _here.port
    if port is None or port.loop is not loop:
        port = _ports.get(loop)
        if port is None:
            port = _ports[loop] = Port(loop, private_executor())
        _here.port = port
    return port


def set_port(loop: asyncio.AbstractEventLoop, port: Port | None) -> None:
    """Let the loop's calls go through `port`; None goes back to the private executor."""
    if port is None:
        _ports.pop(loop, None)
    else:
        _ports[loop] = port
    _here.port = None


def has_port(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether a runtime serves the loop."""
    port = _ports.get(loop)
    return port is not None and port.executor is not _private


def private_executor() -> AdaptiveThreadPoolExecutor:
    """Return the executor of `@offload` where no runtime is; shared by all loops."""
    global _private
    with _private_lock:
        if _private is None:
            _private = AdaptiveThreadPoolExecutor(thread_name_prefix="hybridrt-private")
        return _private


def close_private_executor() -> None:
    """Let the private executor's calls end and drop it; the next use makes a new one."""
    global _private
    with _private_lock:
        executor, _private = _private, None
    _here.port = None
    _ports.clear()
    if executor is not None:
        executor.shutdown()
