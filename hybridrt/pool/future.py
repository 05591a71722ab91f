"""The future that `submit` returns: a `concurrent.futures.Future` that is also the call."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import Future
from typing import Any

from hybridrt.pool.call import ASSIGNED, QUEUED, Call
from hybridrt.pool.worker import current_worker

__all__ = ["ThreadCall"]

logger = logging.getLogger("hybridrt")


class ThreadCall(Call, Future[Any]):
    """A submitted call.

    Everything is as in the standard library, but for two things. Cancelling it takes it out of the
    queue at once. And a worker that waits for it without a timeout while it is still queued in the
    worker's own pool runs it itself, so that nested waits get through even with one worker.
    """

    def cancel(self) -> bool:
        """Cancel the call if it has not started; return whether it is cancelled."""
        if self.state in (QUEUED, ASSIGNED) and self.pool.withdraw(self):
            self.drop()
            return True
        self.cancel_requested = self.cancel_requested or not self.done()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        """Return the value, waiting for it; see the class for a wait inside a worker."""
        if timeout is None and self.state == QUEUED:
            worker = current_worker()
            if worker is not None and worker.pool is self.pool:
                worker.help(self)
        return super().result(timeout)

    @property
    def quick(self) -> bool:  # type: ignore[override]
        """Tell whether nobody's code runs when the result is set: asyncio's only wakes a loop."""
        callbacks: list[Any] = self._done_callbacks  # type: ignore[attr-defined]
        return all(getattr(callback, "__module__", None) == "asyncio.futures" for callback in callbacks)

    if sys.version_info < (3, 12):

        def exception(self, timeout: float | None = None) -> BaseException | None:
            """Return what the call raised, waiting for it.

            asyncio before 3.12 copies it into a loop's future, which refuses `StopIteration`, and
            whoever awaits it hangs. So it is wrapped here; `result()` still raises the original.
            """
            error = super().exception(timeout)
            if not isinstance(error, StopIteration):
                return error
            wrapped = RuntimeError(
                "StopIteration interacts badly with generators and cannot be raised into a Future"
            )
            wrapped.__cause__ = error
            return wrapped

    def begin(self) -> None:
        """Go over to "running"."""
        self.set_running_or_notify_cancel()

    def deliver(self) -> None:
        """Set value or error; done-callbacks run here, in the worker's thread."""
        error, value = self.error, self.value
        self.error = self.value = None
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def drop(self) -> None:
        """Go over to "cancelled", and wake `wait` and `as_completed`."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def refuse(self, error: BaseException) -> None:
        """Fail, without having run."""
        if not self.done():
            self.set_exception(error)
