"""The end of a runtime's calls: they get their time, and what is left then is given up and named.

Works on the loop of the runtime. Calls of other loops, and of no loop, may run in the same pool.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from hybridrt.errors import RuntimeClosedError
from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.call import LoopCall
from hybridrt.loop.router import keep_all
from hybridrt.pool.roster import all_threads, all_workers, when_empty
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.state import Call
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.remembered import Remembered

__all__ = ["Draining", "keep"]

logger = logging.getLogger("hybridrt")

LAST_STEP = 0.1
"""Seconds that a thread has to end in after it has said that it is about to, and to say which call it has
taken; either takes microseconds."""
BETWEEN_LOOKS = 0.001
"""Seconds between two looks at a thread that is about to end, or has taken a call and has not said so."""


class Draining:
    """Ends the calls of one runtime.

    Args:
        loop_binding: Where they run.
    """

    def __init__(self, loop_binding: LoopBinding) -> None:
        self._loop_binding = loop_binding
        self._given_up: set[Call] = set()

    async def wait(self, timeout: float) -> None:
        """Take no more calls, and wait for those there are, and for their threads."""
        loop, pool = self._loop_binding.loop, self._loop_binding.pool
        for warming in tuple(self._loop_binding.warming):
            warming.abandon_on_cancel = True
            warming.cancel()
        if self._loop_binding.held:  # they are under way, and in no queue yet
            self._loop_binding.held.let_all_go()
            await asyncio.sleep(0)
        empty = loop.create_future()
        close(pool, closed_error, cancel_queued=False)
        when_empty(pool, lambda: _call_soon(loop, self._emptied, empty))
        await asyncio.wait({empty}, timeout=timeout)
        until = loop.time() + LAST_STEP
        while empty.done() and any(thread.is_alive() for thread in all_threads(pool)):
            if loop.time() >= until:
                break
            await asyncio.sleep(BETWEEN_LOOKS)

    def _emptied(self, empty: asyncio.Future[None]) -> None:
        self._loop_binding.completions.settle_all()  # the loop may end before it would look by itself
        if not empty.done():
            empty.set_result(None)

    async def give_up_all(self) -> None:
        """Give up what is left, and tell its callers before the loop may end.

        A worker that has claimed a call and one that idles look alike:

            1. A worker takes a call out of its batch; it does not hold the GIL then, or has no core.
            2. We take back what is queued or unclaimed and give up what runs. That call is neither.
            3. The worker says what it runs, and runs it.

        So as long as an assignment is open and shows no call, we look again.
        """
        self.give_up()
        loop, pool = self._loop_binding.loop, self._loop_binding.pool
        until = loop.time() + LAST_STEP
        while (
            any(worker.serving and not worker.calls() for worker in all_workers(pool)) and loop.time() < until
        ):
            await asyncio.sleep(BETWEEN_LOOKS)
            self.give_up()
        self._loop_binding.completions.settle_all()
        await asyncio.sleep(0)

    @uninterrupted
    def give_up(self) -> None:
        """Fail what is queued, give up what runs, and say what that is."""
        close(self._loop_binding.pool, closed_error, cancel_queued=True, cancel_given=True)
        left: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for worker in all_workers(self._loop_binding.pool):
            worker.leave_behind()
            for call in worker.calls():
                if call not in self._given_up:
                    self._given_up.add(call)
                    age = (call.pool.roster.wall_ns() - call.started_ns) / 1e9
                    where = call.profile.name, worker.position()
                    left.setdefault(where, []).append((age, worker.bearer))
                    self._give_up(call)
        for (name, position), calls in left.items():
            _say_left(name, position, calls)

    def _give_up(self, call: Call) -> None:
        if not isinstance(call, LoopCall):
            return
        error = RuntimeClosedError(f"the runtime closed while {call.profile.name} ran", started=True)
        if call.get_loop() is self._loop_binding.loop:
            call.give_up(error)
        else:
            _call_soon(call.get_loop(), call.give_up, error)


def _say_left(name: str, position: str, calls: list[tuple[float, str]]) -> None:
    """Name the calls of a function that are left behind at one place, with their ages and what runs them."""
    age, bearer = max(calls)
    if len(calls) == 1:
        logger.warning(
            "%s still runs after %.3g s, %s; the runtime closes and leaves %s behind",
            name, age, position, bearer,
        )  # fmt: skip
    else:
        logger.warning(
            "%d calls of %s still run, the oldest after %.3g s, %s; "
            "the runtime closes and leaves them behind",
            len(calls), name, age, position,
        )  # fmt: skip


async def keep(kept: Remembered, loop_binding: LoopBinding, is_last: Callable[[], bool]) -> None:
    """Note what a runtime has learned that has closed, and write it, in a thread, if it was the last.

    That is asked last: a runtime that closes meanwhile, in another thread, then writes what is noted here.
    """
    loop_binding.pool.profiles.keep(kept)
    keep_all(kept)
    if not is_last():
        return
    written = threading.Thread(target=kept.save, name="hybridrt-profile", daemon=True)
    try:
        written.start()
    except (RuntimeError, MemoryError) as error:  # the system has no more threads
        logger.warning("HYBRIDRT_PROFILE could not be written: %s", error)
        return
    while written.is_alive():  # noqa: ASYNC110  # it is over in milliseconds, and knows no loop
        await asyncio.sleep(BETWEEN_LOOKS)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # closed meanwhile
        logger.debug("a call ended after its event loop was closed")
