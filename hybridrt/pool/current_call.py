"""What code that runs inside of a call may say and ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from hybridrt.pool.phases import computes_between_waits, enter, leave
from hybridrt.pool.worker import current_worker

__all__ = ["blocking", "check_cancelled"]


def check_cancelled() -> None:
    """Raise if the caller no longer waits for the result of the current call.

    Call it now and then in long offloaded code. Does nothing outside of an offloaded call, and nothing in
    an isolate.

    Raises:
        asyncio.CancelledError: The awaiting task was cancelled, the call timed out, or the runtime
            closed and left it behind (calls of `submit` are not told of that). Let it pass: the call then
            ends as cancelled.
    """
    worker = current_worker()
    call = None if worker is None else worker.call
    if call is not None and (call.cancel_requested or call.abandoned):
        raise asyncio.CancelledError(f"no caller waits for {call.profile.name} any more")


def blocking() -> AbstractContextManager[None]:
    """Say "I wait now" inside offloaded code: the permit to compute goes to another call at once.

    The runtime finds out by itself where calls wait; this tells it on every version of Python, and for
    waits that are no call, as `with lock:`. Leaving the block asks for a permit again and waits for its
    turn, ahead of the calls that are queued: for 2.8 s at most, and for 0.35 to 0.7 s in which no call
    gives a permit back; then the call goes on anyway, which counts as an overdraft. Does nothing
    outside of an offloaded call, and nothing in an isolate, which has no permit.
    """
    return _blocking()


@contextmanager
def _blocking() -> Iterator[None]:
    worker = current_worker()
    call = None if worker is None else worker.call
    if worker is None or call is None:
        yield
        return
    permit = worker.permit
    leave(worker, call)
    try:
        yield
    finally:
        if current_worker() is not worker or worker.call is not call:
            pass  # a generator: its next step has left the block, in another call
        elif permit or computes_between_waits(call.profile):
            enter(worker, call, permit)
