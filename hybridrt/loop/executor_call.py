"""Calls submitted from a loop's thread: the loop hears of their end once a turn, in batches.

`loop.run_in_executor` submits and then wraps what it gets into a future of the loop, a second one
that has to be told of the end of the first. asyncio and uvloop leave a future of asyncio's as it is, so
here they get one right away: a `LoopCall`. Besides being cheaper, a call that is cancelled while it is
queued is withdrawn in that instant, and one that finds the queue full waits for space. All other code that
submits gets a `concurrent.futures.Future`, as `submit` promises, and a full queue refuses it.

Which of the two a `submit` is can be told by the frame that it was called from. A method that is compiled,
as uvloop's, has no frame; `executor_frames` gives such loops one.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent import futures

from hybridrt.executor.executor import use_calls
from hybridrt.executor.future import ThreadCall
from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.loop.call import LoopCall
from hybridrt.loop.completions import current_completions
from hybridrt.loop.executor_frames import RUN_IN_EXECUTOR
from hybridrt.loop.submitters import watch_submitter
from hybridrt.pool.state import Call

__all__: list[str] = []


_TRANSLATED: dict[type[BaseException], type[BaseException]] = {
    futures.CancelledError: asyncio.CancelledError,
    futures.InvalidStateError: asyncio.InvalidStateError,
}
"""What asyncio makes of errors that a future of `concurrent.futures` has."""


class ExecutorCall(LoopCall):
    """A call of `run_in_executor`: as there, cancelling ends the wait at once."""

    abandon_on_cancel = True

    drop_work = Call.drop_work  # its submitter may keep the future for long

    def settle(self) -> None:
        """Complete the future, and keep nothing besides."""
        error = self.error
        if error is not None and (kind := _TRANSLATED.get(type(error))) is not None:
            self.error = kind(*error.args).with_traceback(error.__traceback__)
        del error
        super().settle()
        self.drop_work()
        self.value = None

    def drop(self) -> None:
        """Send the call to its loop to be cancelled there, as `shutdown(cancel_futures=True)` does."""
        self.cancel_requested = True
        self.completions.put(self)


def _make_call(pool: ThreadPool) -> Call:
    loop = asyncio._get_running_loop()
    completions = None if loop is None else current_completions(loop)
    if completions is not None and not completions.governed and loop not in pool.loops:
        watch_submitter(completions, pool)
    if completions is not None and completions.recognisable:
        caller = sys._getframe(2)  # of `submit`, which has called this
        if caller.f_code in RUN_IN_EXECUTOR and caller.f_locals["self"] is loop:
            awaited = ExecutorCall(loop=loop)
            awaited.completions = completions
            return awaited
    call = ThreadCall()
    call.completions = completions
    return call


use_calls(_make_call)
