"""Completions in batches: one wake-up of the loop per turn, not one per call.

Workers append ended calls to their loop's completion queue; the first of them since the last turn wakes the
loop, which then settles all that have gathered. Why no wake-up is lost, worker W, loop L:

    1. W appends its call.
    2. W reads `scheduled`. True: another wake-up is on its way, done. False: W sets it, and wakes.
    a. L sets `scheduled` to False.
    b. L settles everything in the queue.

    If W reads True in 2, L has not done a yet, so b comes after 1 and takes W's call with it. If two
    workers both read False, L is woken twice and finds nothing the second time.

Under the GIL each wake-up interrupts a call that computes. So while calls queue before they start, and end
in quick succession, the loop gathers what ends, as network cards do under load (interrupt coalescing): it
looks by itself after a pause, and no worker wakes it until then, but for a call that took so little time that
this would be felt. The pause is a part of the time that calls queue, so the queue keeps the workers busy
meanwhile.

    c. L arms its timer, sets `gathers`, and then `scheduled`.
    3. W, which read True in 2, reads `gathers`. True, and its call cannot wait: W clears it, and wakes.

    W's call is settled at the latest when the timer fires: if W read what L had set in c, that is still to
    come, and if it read what another worker had set, that one wakes. A wake-up takes the timer back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from hybridrt.loop.executor_frames import make_recognisable
from hybridrt.pool.state import DONE, Call
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = [
    "CROWD",
    "PAUSE_MAX_MS",
    "PAUSE_MIN_MS",
    "CompletionQueue",
    "completions_of",
    "forget_closed",
    "forget_idle",
]

logger = logging.getLogger("hybridrt")

CROWD = 4
"""Pauses for which calls queue on average, so that the queue outlasts one. And pauses since it was submitted
from which a call can be gathered, which makes it a quarter longer at most."""
PAUSE_MIN_MS, PAUSE_MAX_MS = 2, 10
"""For how long the loop gathers ended calls: at least so that a good part of its turns are saved, at most two
of the interpreter's own switch intervals. Whole numbers, because loops round their timers up to them. The
least is not tuned."""
_IDLE_MAX = 16
"""Loops that do not run and were not closed, of which something is kept. Not tuned."""
V = TypeVar("V")


class CompletionQueue:
    """Where ended calls wait for one loop to settle them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.recognisable = make_recognisable(loop)
        """Its `run_in_executor` can be told by its frame."""
        self.abandon_on_cancel = False
        """What cancelling does to a running call whose function does not say."""
        self.governed = False
        """A runtime is open on the loop, and measures it."""
        self._done: deque[Call] = deque()
        self._scheduled = self._gathers = False
        self._timer: asyncio.TimerHandle | None = None
        self._settled_at = 0.0
        self._patience_ns = 0
        self._settle = self.settle_all

    @uninterrupted
    def put(self, call: Call) -> None:
        """Hand over an ended call, from any thread."""
        self._done.append(call)
        if not self._scheduled:
            self._scheduled = True
            self._wake()
        elif self._gathers and call.age_ns() < self._patience_ns:
            self._gathers = False
            self._wake()

    def settle_soon(self) -> None:
        """Settle in the loop's next turn; on the loop, for a call that was cancelled and goes on.

        1. A signal handler raises `SystemExit`, as many for SIGTERM do, where `settle_all` begins. Nothing
           wakes the loop any more, because that is scheduled.
        2. The end of the loop cancels its tasks, and waits for those whose calls run or have ended.
        """
        self.loop.call_soon(self._settle)

    def _wake(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # the loop is closed: no task can wait any more
            self._scheduled = False
            self._forget()
        except BaseException:  # the next call that ends wakes it
            self._scheduled = False
            raise

    def _forget(self) -> None:
        """Drop what nobody will settle, and log what would be lost with it."""
        while self._done:
            try:
                call = self._done.popleft()
            except IndexError:  # another worker was faster
                return
            quiet = call.error is None or isinstance(call.error, asyncio.CancelledError)
            if call.state == DONE and not quiet and isinstance(call, asyncio.Future):
                name = call.profile.name
                logger.warning("%s raised after its event loop was closed", name, exc_info=call.error)
            else:
                logger.debug("a call ended after its event loop was closed")

    @uninterrupted
    def settle_all(self) -> None:
        """Settle what has ended; on the loop."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._gathers = self._scheduled = False
        done, started, queued_ns = self._done, 0, 0
        try:
            for _ in range(len(done)):
                call = done[0]
                if call.state == DONE:
                    started += 1
                    queued_ns += call.started_ns - call.queued_ns
                call.settle()
                done.popleft()  # not before: settled twice is settled, and not at all would be waited for
        except BaseException as error:
            if isinstance(error, Exception):  # not Ctrl-C: the call would raise it again and again
                done.popleft()
            self._scheduled = True
            self._wake()
            raise
        before, self._settled_at = self._settled_at, self.loop.time()
        pause_ms = min(PAUSE_MAX_MS, queued_ns // (started * CROWD * 1_000_000)) if started else 0
        if pause_ms >= PAUSE_MIN_MS and (timer is not None or self._settled_at - before < pause_ms / 1e3):
            self._patience_ns = CROWD * pause_ms * 1_000_000
            self._timer = self.loop.call_later(pause_ms / 1e3, self._settle)
            self._gathers = True
            self._scheduled = True


class _Here(threading.local):
    completions: CompletionQueue | None = None


_here = _Here()
_queues: dict[asyncio.AbstractEventLoop, CompletionQueue] = {}


def completions_of(loop: asyncio.AbstractEventLoop) -> CompletionQueue:
    """Return the completion queue of a loop."""
    completions = _queues.get(loop)
    if completions is None:
        forget_idle(_queues, lambda queue: queue.governed)
        completions = _queues[loop] = CompletionQueue(loop)
    return completions


def forget_closed(table: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Drop what belongs to closed loops. Weak keys would not do: the values refer to their loops."""
    for loop in list(table):
        if loop.is_closed():
            table.pop(loop, None)


def forget_idle(table: dict[asyncio.AbstractEventLoop, V], in_use: Callable[[V], bool]) -> None:
    """Drop what belongs to closed loops, and to loops that do not run: programs drop those without a close.

    The last few of those are kept, and those in use. What the others need is made anew if they run again.
    """
    forget_closed(table)
    idle = [loop for loop, kept in tuple(table.items()) if not (loop.is_running() or in_use(kept))]
    for loop in idle[:-_IDLE_MAX]:
        table.pop(loop, None)


def current_completions(loop: asyncio.AbstractEventLoop) -> CompletionQueue:
    """Return the completion queue of the loop that runs in this thread; faster than `completions_of`."""
    completions = _here.completions
    if completions is None or completions.loop is not loop:
        completions = _here.completions = completions_of(loop)
    return completions
