"""Light calls to isolates, carried by the loop itself.

The way through a worker thread wakes four threads for a call: the worker, the isolate, the worker, the loop.
Where arguments and result are light, the loop writes and reads some hundred bytes faster than it wakes
anybody to do it, and two are left. All else takes the way through a thread: what is large, what takes long,
an isolate that has to be started or is gone, and everything where the loop cannot be told what an isolate
answers (there is no epoll but on Linux).

Who sees to the reply of a call is who gets the courier's one token for it:

    1. The loop writes the call, lays the token out, and arms the isolate's descriptor for one event.
    2. The event comes: the loop takes the token, and reads.
    3. Or it does not come for long, or the loop does not turn: the governor takes the token, disarms the
       descriptor, and starts a thread that reads.

    Taking is atomic, so exactly one of 2 and 3 does the rest. The isolate stays lent until then, so nobody
    else's call can be awaited under its descriptor; and the loop asks for one event at a time, so it is
    never told of one from before.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from hybridrt.loop.call import LoopCall
from hybridrt.loop.outlet import forget_closed
from hybridrt.pool.call import Call
from hybridrt.pool.errand import Errand, begin_errand, finish_errand
from hybridrt.pool.isolates.child import LIGHT_VALUE, UNMEASURED
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.pool.isolates.wire import Message, WireClosedError

if TYPE_CHECKING:
    from hybridrt.loop.isolated import IsolatedCall

__all__ = ["Courier", "Replies", "replies_of", "send_out"]


class Replies:
    """Tells one loop when isolates answer.

    The isolates' descriptors are in a set of their own, and the loop watches only that: a loop that watched
    them itself might change them (uvloop makes them non-blocking), and would have to be told at each call.

    Args:
        loop: The loop, which runs in this thread.

    Raises:
        NotImplementedError: The loop watches no descriptors.
        OSError: There are no descriptors left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ready = select.epoll()
        self._once = select.EPOLLIN | select.EPOLLONESHOT
        self._awaited: dict[int, Courier] = {}
        loop.add_reader(self._ready.fileno(), self._arrived)

    def expect(self, courier: Courier) -> None:
        """Wait for one reply."""
        descriptor = courier.descriptor
        self._awaited[descriptor] = courier
        try:
            self._ready.modify(descriptor, self._once)
        except FileNotFoundError:  # the first time
            self._ready.register(descriptor, self._once)

    def forget(self, courier: Courier) -> None:
        """Wait for a reply no more; from any thread that has the courier's token."""
        self._awaited.pop(courier.descriptor, None)
        with suppress(OSError):
            self._ready.unregister(courier.descriptor)

    def _arrived(self) -> None:
        for descriptor, _ in self._ready.poll(0, 1):
            courier = self._awaited.pop(descriptor, None)
            if courier is not None and courier.takes_token():
                courier.arrive()


class Courier(Errand):
    """Carries one light call after the other.

    Args:
        replies: Of the loop in whose thread everything happens but what says otherwise.
    """

    __slots__ = ("_cpu_ns", "_isolate", "_measured", "_replies", "_sent", "_token", "descriptor")

    call: IsolatedCall

    def __init__(self, replies: Replies) -> None:
        super().__init__()
        self._replies = replies
        self._token: list[None] = []

    @property
    def name(self) -> str:
        """Say that there is no thread."""
        return "event loop"

    def takes(self, call: Call) -> bool:
        """Tell whether a queued call is as light, of the same loop, and for isolates of the same kind."""
        if getattr(call, "replies", None) is not self._replies:
            return False
        return call.carrier.crew is self.call.carrier.crew  # type: ignore[attr-defined]  # it is one of ours

    def set_out(self) -> None:
        """Send the call, which has begun, to an isolate that is lent now, when it has its place."""
        call, carrier, clock = self.call, self.call.carrier, self.call.pool.interpreter.clock
        measured = self._measured = call.line.is_measured
        cpu = clock.cpu_ns() if measured else 0
        self._sent: bytes | None = None
        try:
            sent = carrier.pack_light(call.args, call.kwargs)
            isolate = carrier.crew.lease_warm()
            if isolate is None:
                return self._leave_loop()
            carrier.isolate = self._isolate = isolate
            isolate.wire.send_light(sent, 0 if measured else UNMEASURED)
            self._sent, self.descriptor = sent, isolate.wire.fileno()
            self._token.append(None)
            self._replies.expect(self)
        except BaseException as error:  # a thread goes on, and says what is wrong
            if self._sent is None or self.takes_token():
                self._leave_loop()
            if not isinstance(error, Exception):
                raise
        if measured:
            self._cpu_ns = clock.cpu_ns() - cpu

    def takes_token(self) -> bool:
        """Tell whether it is the caller's to see to the reply; True only once."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True

    def arrive(self) -> None:
        """Take in what the isolate has answered, and carry the next call."""
        call, line, carrier, sent = self.call, self.call.line, self.call.carrier, self._sent
        clock, measured = call.pool.interpreter.clock, self._measured
        cpu = clock.cpu_ns() if measured else 0
        message = self._read()
        if message is None or sent is None:
            return self._leave_loop()
        call.value, call.error = message.value, message.error
        call.wall_ns = clock.wall_ns() - call.started_ns
        if measured:
            line.cpu_ns = self._cpu_ns + clock.cpu_ns() - cpu
        call.cpu_ns = line.cpu_ns
        try:
            carrier.isolate = None
            # Back before the place of the call, so that whoever gets that finds it.
            if not carrier.crew.keep(self._isolate):
                _at_leisure(partial(carrier.crew.end, self._isolate))
            if finish_errand(self, call, goes_on=True) is not None:
                self.set_out()
            elif call.pool.crew.stopping():
                _at_leisure(call.pool.crew.gone)
            if measured:
                carrier.crossed(message, len(sent), call.wall_ns, call.cpu_ns, cold=False)
                line.came_back(carrier.crossing)
            else:
                carrier.tell(None)
                line.came_again(message.wall_ns)
        finally:
            LoopCall.settle(call)

    def _read(self) -> Message | None:
        """Read the reply; None if it is a thread's to see to."""
        try:
            if not self.call.carrier.stopped:
                return self._isolate.wire.receive_light(LIGHT, LIGHT_VALUE)
        except WireClosedError:
            pass
        except BaseException:  # Ctrl-C
            self._sent = None  # who knows how much has been read: a thread begins anew
            self._leave_loop()
            raise
        return None

    def hand_over(self) -> None:
        """Let a thread wait for the reply, if nobody has heard of it yet; from any thread."""
        if not self.takes_token():
            return
        self._replies.forget(self)
        if not _in_thread(self._complete):
            self._token.append(None)
            self._replies.expect(self)

    def _leave_loop(self) -> None:
        """Let a thread do the rest: wait, unpack what is large, find out what has become of an isolate."""
        _at_leisure(self._complete)

    def _complete(self) -> None:
        call = self.call
        try:
            call.value = call.carrier.complete(self._sent, call.args, call.kwargs)
        except BaseException as error:
            call.error = error
        call.wall_ns = call.pool.crew.wall_ns() - call.started_ns
        try:
            finish_errand(self, call, goes_on=False)
        finally:
            call.deliver()
        if call.pool.crew.stopping():
            call.pool.crew.gone()
        del call  # an error's traceback holds this frame


def send_out(call: IsolatedCall, replies: Replies) -> bool:
    """Let the loop carry a call if it may start at once and an isolate is warm; else do nothing."""
    if call.pool.queued or not call.carrier.crew.has_warm():
        return False
    courier = Courier(replies)
    if not begin_errand(courier, call):
        return False
    courier.set_out()
    return True


def _at_leisure(work: Callable[[], object]) -> None:
    """Have something done that takes too long for a loop."""
    if not _in_thread(work):  # the program ends, or has too many
        work()


def _in_thread(work: Callable[[], object]) -> bool:
    try:
        Thread(target=work, name="hybridrt-courier", daemon=True).start()
    except RuntimeError:
        return False
    return True


_replies: dict[asyncio.AbstractEventLoop, Replies | None] = {}


def replies_of(loop: asyncio.AbstractEventLoop) -> Replies | None:
    """Return what tells the running loop of replies, or None where nothing can."""
    if loop not in _replies:
        forget_closed(_replies)
        try:
            _replies[loop] = Replies(loop)
        except (AttributeError, NotImplementedError, OSError):
            _replies[loop] = None
    return _replies[loop]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replies.clear)
