"""A pool whose calls are watched: each has a first event and a last one. Others pay nothing for that."""

from __future__ import annotations

from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.pool.state import Call

__all__ = ["WatchedPool"]


class WatchedPool(ThreadPool):
    """A pool with an `on_event` hook."""

    def push(self, call: Call) -> None:
        """Tell about a call, queue it, and tell if it was not accepted."""
        try:
            self.hooks.submitted(call)
            super().push(call)
        except BaseException as error:
            self.hooks.rejected(call, error)
            raise
