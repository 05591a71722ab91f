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
from hybridrt.loop.call import LoopCall
from hybridrt.loop.placing import keep_all
from hybridrt.loop.port import Port
from hybridrt.pool.closing import close, closed_error
from hybridrt.pool.roster import all_threads, all_workers, when_empty
from hybridrt.pool.state import Call, Worker
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
        port: Where they run.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._given_up: set[Call] = set()

    async def wait(self, timeout: float) -> None:
        """Take no more calls, and wait for those there are, and for their threads."""
        loop, pool = self._port.loop, self._port.pool
        for warming in tuple(self._port.warming):
            warming.abandon_on_cancel = True
            warming.cancel()
        if self._port.held:  # they are under way, and in no queue yet
            self._port.held.let_all_go()
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
        self._port.outlet.settle_all()  # the loop may end before it would look by itself
        if not empty.done():
            empty.set_result(None)

    async def give_up_all(self) -> None:
        """Give up what is left, and let whoever awaits it hear of that before the loop may end, too.

        A worker that has claimed a call and one that idles look alike:

            1. A worker takes a call out of its batch; it does not hold the GIL then, or has no core.
            2. We take back what is queued or unclaimed and give up what runs. That call is neither.
            3. The worker says what it runs, and runs it.

        So as long as a stint is open and shows no call, we look again.
        """
        self.give_up()
        loop, pool = self._port.loop, self._port.pool
        until = loop.time() + LAST_STEP
        while any(stint.serving and not stint.calls() for stint in all_workers(pool)) and loop.time() < until:
            await asyncio.sleep(BETWEEN_LOOKS)
            self.give_up()
        self._port.outlet.settle_all()
        await asyncio.sleep(0)

    @uninterrupted
    def give_up(self) -> None:
        """Fail what is queued, give up what runs, and say what that is."""
        close(self._port.pool, closed_error, cancel_queued=True, cancel_given=True)
        for stint in all_workers(self._port.pool):
            stint.leave_behind()
            for call in stint.calls():
                if call not in self._given_up:
                    self._given_up.add(call)
                    self._give_up(call, stint)

    def _give_up(self, call: Call, stint: Worker) -> None:
        age = (call.pool.crew.wall_ns() - call.started_ns) / 1e9
        logger.warning(
            "%s still runs after %.3g s, %s; the runtime closes and leaves %s behind",
            call.profile.name, age, stint.position(), stint.bearer,
        )  # fmt: skip
        if not isinstance(call, LoopCall):
            return
        error = RuntimeClosedError(f"the runtime closed while {call.profile.name} ran", started=True)
        if call.get_loop() is self._port.loop:
            call.give_up(error)
        else:
            _call_soon(call.get_loop(), call.give_up, error)


async def keep(kept: Remembered, port: Port, *, last: bool) -> None:
    """Note what a runtime has learned that has closed, and write it, in a thread, if it was the last."""
    port.pool.profiles.keep(kept)
    keep_all(kept)
    if not last:
        return
    written = threading.Thread(target=kept.save, name="hybridrt-profile", daemon=True)
    written.start()
    while written.is_alive():  # noqa: ASYNC110  # it is over in milliseconds, and knows no loop
        await asyncio.sleep(BETWEEN_LOOKS)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # closed meanwhile
        logger.debug("a call ended after its event loop was closed")
