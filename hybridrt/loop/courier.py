"""Light calls to isolates, carried by the loop itself.

The way through a worker thread wakes four threads for a call: the worker, the isolate, the worker, the loop.
Where arguments and result are light, the loop writes and reads some hundred bytes faster than it wakes
anybody to do it, and two are left. All else takes the way through a thread: what is large, what takes long,
an isolate that has to be started or is gone, and everything where the loop cannot be told what an isolate
answers (there is no epoll but on Linux).

Of calls that come in a crowd, several go in one message: those that wait at the gate, and those that are made
while a courier *lingers* for one turn of the loop. Where calls take no time it lingers on while another
courier of the function is out, whose callers will call again (Nagle's algorithm, RFC 896): else those who
once called apart would do so for ever. They are of one function, which is pure, so they may run twice. That
makes it simple: a batch comes back with light values of all its calls, or what is missing is sent back to the
queue and goes one by one, which fails who has to fail.

Who sees to the reply of a call is who gets the courier's one token for it:

    1. The loop writes the call, lays the token out, and arms the isolate's descriptor for one event.
    2. The event comes: the loop takes the token, and reads.
    3. Or it does not come for long, or the loop does not turn: the governor takes the token, disarms the
       descriptor, and starts a thread that reads.

    Taking is atomic, so exactly one of 2 and 3 does the rest. The isolate stays lent until then, so nobody
    else's call can be awaited under its descriptor; and the loop asks for one event at a time, so it is
    never told of one from before. Who lets a courier depart that lingers is found in the same way.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from hybridrt.loop.call import LoopCall
from hybridrt.loop.replies import Replies
from hybridrt.pool.call import Call
from hybridrt.pool.errand import (
    Errand,
    begin_errand,
    begin_locked,
    finish_errand,
    join_errand,
    send_back,
)
from hybridrt.pool.isolates.child import BATCH, LIGHT_VALUE, UNMEASURED
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.pool.isolates.wire import Message, WireClosedError

if TYPE_CHECKING:
    from hybridrt.loop.isolated import IsolatedCall, Line

__all__ = ["Courier", "send_out", "set_out_locked"]

LINGER = 0.001
"""Seconds for which a courier lingers on for another at most. Not tuned: it ends with that one's return."""


class Courier(Errand):
    """Carries light calls, one after the other or together.

    Args:
        replies: Of the loop in whose thread everything happens but what says otherwise.
    """

    __slots__ = (
        "_cpu_ns", "_done", "_isolate", "_measured", "_replies", "_sent", "_timer", "_token", "_weight",
        "descriptor",
    )  # fmt: skip

    call: IsolatedCall
    batch: list[IsolatedCall]  # type: ignore[assignment]

    def __init__(self, replies: Replies) -> None:
        super().__init__()
        self._replies = replies
        self._token: list[None] = []
        self._sent: bytes | None = None
        self._done: list[Any] | None = None
        """What the first calls of a batch have returned."""
        self._weight = 0
        self._timer: asyncio.TimerHandle | None = None
        """Ends its lingering for another; None before it does that."""

    @property
    def name(self) -> str:
        """Say that there is no thread."""
        return "event loop"

    def takes(self, call: Call) -> bool:
        """Tell whether a queued call is as light, of the same loop, and for isolates of the same kind."""
        if getattr(call, "replies", None) is not self._replies:
            return False
        carried: IsolatedCall = call  # type: ignore[assignment]
        return carried.line.replies is self._replies and carried.carrier.crew is self.call.carrier.crew

    def takes_along(self, call: Call) -> bool:
        """Add a call of the same function that is as light and brief, as far as there is room."""
        line = self.call.line
        if getattr(call, "line", None) is not line or call.replies is not self._replies:  # type: ignore[attr-defined]
            return False
        weight: int = call.weight + (self._weight if self.batch else self.call.weight)  # type: ignore[attr-defined]
        if len(self.batch) + 1 >= line.together or weight > LIGHT:
            return False
        self._weight = weight
        self.batch.append(call)  # type: ignore[arg-type]
        return True

    def linger(self) -> None:
        """Let calls join that are made in this turn of the loop, or what is left of it."""
        self.open, self._sent, self._done, self._timer = True, None, None, None
        self.call.line.lingers = self
        self._token.append(None)

    def depart_later(self, line: Line) -> None:
        """Set out in the next turn of the loop, after what was called before this."""
        self._replies.loop.call_soon(self._depart, line)

    def hurry(self, line: Line) -> None:
        """Set out in the next turn if it lingers on: the other came back, or there is no room left."""
        if self._timer is not None and not self._timer.cancelled():
            self._timer.cancel()
            self.depart_later(line)

    def is_full(self, line: Line) -> bool:
        """Tell whether no more calls may go along."""
        return len(self.batch) + 1 >= line.together

    def depart_locked(self, call: IsolatedCall) -> bool:
        """Begin a call taken out of the queue, in any thread, and let the loop set out with it."""
        if self._replies.loop.is_closed():
            return False
        begin_locked(self, call)
        self._token.append(None)
        self._wake_loop(call.line)
        return True

    def _wake_loop(self, line: Line) -> None:
        with suppress(Exception):  # it was closed this moment, and the governor hands the call over
            self._replies.loop.call_soon_threadsafe(self._depart, line)

    def _depart(self, line: Line) -> None:
        self._replies.late = False
        if line.lingers is self:
            if self._timer is None and not self.is_full(line) and line.is_tiny and self._replies.awaits(line):
                self._timer = self._replies.loop.call_later(LINGER, self._depart, line)
                return
            line.lingers = None
        if self._sent is not None or not self.takes_token():  # it is out, or handed over
            return
        self.open = False
        if self.call.cancel_requested:
            self.call.carrier.stop()
        if any(call.cancel_requested for call in self.calls()):
            return self._leave_loop()  # a thread sorts them out
        self.set_out()

    def set_out(self) -> None:
        """Send the call, which has begun, to an isolate that is lent now, when it has its place."""
        call, carrier, clock = self.call, self.call.carrier, self.call.pool.interpreter.clock
        measured = self._measured = call.line.is_measured
        cpu = clock.cpu_ns() if measured else 0
        self._sent = self._done = None
        call.line.saw_crowd(len(self.batch))
        try:
            status = 0 if measured else UNMEASURED
            if self.batch:
                sent, status = carrier.pack_batch(self.calls()), status | BATCH
            else:
                sent = carrier.pack_light(call.args, call.kwargs)
            isolate = None if carrier.stopped else carrier.crew.lease_warm()
            if isolate is None:
                return self._leave_loop()
            carrier.isolate = self._isolate = isolate
            isolate.wire.send_light(sent, status)
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

    def goes_for(self, line: object) -> bool:
        """Tell whether it carries calls of this line."""
        return getattr(self.call, "line", None) is line

    def arrive(self) -> None:
        """Take in what the isolate has answered, and carry the next call."""
        call, line, carrier, sent = self.call, self.call.line, self.call.carrier, self._sent
        clock, measured = call.pool.interpreter.clock, self._measured
        cpu = clock.cpu_ns() if measured else 0
        message = self._read()
        if message is None or sent is None:
            return self._leave_loop()
        calls, many, onward = [call, *self.batch], 1 + len(self.batch), None
        took = (clock.wall_ns() - call.started_ns) // many
        if measured:
            line.cpu_ns = (self._cpu_ns + clock.cpu_ns() - cpu) // many
        if self.batch:
            self._share_out(took)
        else:
            call.value, call.wall_ns, call.cpu_ns = message.value, took, line.cpu_ns
        whole = self._done is None or len(self._done) == many
        try:
            carrier.isolate = None
            # Back before the place of the call, so that whoever gets that finds it.
            if not carrier.crew.keep(self._isolate):
                _at_leisure(partial(carrier.crew.end, self._isolate))
            if not whole:
                return self._leave_loop()
            if finish_errand(self, call, goes_on=True) is not None:
                onward = self._goes_on()
            elif call.pool.crew.stopping():
                _at_leisure(call.pool.crew.gone)
            for each in calls[measured:]:
                each.carrier.tell(None)
            if measured:
                carrier.crossed(message, len(sent), took, line.cpu_ns, calls=many, cold=False)
                line.came_back(carrier.crossing)
            else:
                line.came_again(message.wall_ns // many)
        finally:
            for each in calls if whole else ():
                LoopCall.settle(each)
            if onward is not None:  # after those that go on because of that
                self.depart_later(onward)
            if line.lingers not in (None, self):
                line.lingers.hurry(line)

    def _goes_on(self) -> Line | None:
        """Set out with the call that has begun, or linger, and return the line that it lingers for."""
        call, line = self.call, self.call.line
        gathers = line.lingers_now() and not call.alone and not self.is_full(line)
        if not gathers or (call.gates and call.gates[-1].waiting):
            self.set_out()
            return None
        self.linger()
        return line

    def _share_out(self, took: int) -> None:
        """Give the calls of a batch their values, and what each took."""
        cpu = self.call.line.cpu_ns
        for call, value in zip(self.calls(), self._done or (), strict=False):
            call.value, call.wall_ns, call.cpu_ns = value, took, cpu

    def _take_values(self, message: Message) -> None:
        """Put the values of a batch together; what can be changed was packed by itself: nothing is shared.

        Raises:
            Exception: They are not the values of these calls.
        """
        values = [pickle.loads(value[0]) if type(value) is list else value for value in message.value]
        if len(values) > 1 + len(self.batch):
            raise ValueError("more values than calls")
        self._done = values

    def _read(self) -> Message | None:
        """Read the reply; None if it is a thread's to see to."""
        try:
            if not self.call.carrier.stopped:
                message = self._isolate.wire.receive_light(LIGHT, LIGHT_VALUE)
                if message is not None and self.batch:
                    self._take_values(message)
                return message
        except WireClosedError:
            pass
        except Exception:  # the values do not fit: a thread begins anew
            self._sent = None
        except BaseException:  # Ctrl-C
            self._sent = None  # who knows how much has been read: a thread begins anew
            self._leave_loop()
            raise
        return None

    def hand_over(self) -> None:
        """Let a thread wait for the reply, if nobody has heard of it yet; from any thread."""
        if not self.takes_token():
            return
        self._replies.late = True
        with suppress(Exception):  # it was closed
            self._replies.loop.call_soon_threadsafe(self._replies.turn)
        sent, line = self._sent is not None, self.call.line
        if sent:
            self._replies.forget(self)
        if not _in_thread(self._complete):
            self._token.append(None)
            if sent:
                self._replies.expect(self)
            else:
                self._wake_loop(line)

    def _leave_loop(self) -> None:
        """Let a thread do the rest: wait, unpack what is large, find out what has become of an isolate."""
        _at_leisure(self._complete)

    def _complete(self) -> None:
        call = self.call
        if self._fetch_batch():
            self._share_out((call.pool.crew.wall_ns() - call.started_ns) // len(self.calls()))
            for each in (call, *self.batch):
                each.carrier.tell(None)
        else:
            if call.alone and call.cancel_requested:
                call.carrier.stop()  # it would run again for nobody
            try:
                call.value = call.carrier.complete(self._sent, call.args, call.kwargs)
            except BaseException as error:
                call.error = error
            call.wall_ns = call.pool.crew.wall_ns() - call.started_ns
        self._deliver(call, self.calls())
        if call.pool.crew.stopping():
            call.pool.crew.gone()
        del call  # an error's traceback holds this frame

    def _deliver(self, call: Call, calls: Iterable[Call]) -> None:
        try:
            finish_errand(self, call, goes_on=False)
        finally:
            for each in calls:
                each.deliver()

    def _fetch_batch(self) -> bool:
        """Tell whether a batch has come back with the value of one call at least; send back the others.

        What has not come by now is not waited for: one of the calls may take for ever.
        """
        if not (self.batch or self.open):
            return False
        call, sent = self.call, self._sent
        if self._done is None and sent is not None and self._isolate.wire.has_news():
            with suppress(BaseException):  # then the call alone meets with it
                call.carrier.fetch(sent, self._take_values)
        if not self._done and sent is not None:
            call.line.fell_apart()
        self._sent, done = None, len(self._done or ())
        call.alone = not done
        send_back(self, max(0, done - 1))
        return done > 0


def send_out(call: IsolatedCall, replies: Replies) -> bool:
    """Let the loop carry a call if it may start at once and an isolate is warm; else do nothing."""
    lingers = call.line.lingers
    if lingers is not None and join_errand(lingers, call):
        if lingers.is_full(call.line):
            lingers.hurry(call.line)
        return True
    if call.pool.queued or not call.carrier.crew.has_warm():
        return False
    courier = Courier(replies)
    if not begin_errand(courier, call):
        return False
    if call.line.lingers_now():
        courier.linger()
        courier.depart_later(call.line)
    else:
        courier.set_out()
    return True


def set_out_locked(call: IsolatedCall, replies: Replies) -> bool:
    """The same for a call that was taken out of the queue, in any thread; the lock is held."""
    if replies.late or not call.in_waiting_lane or not call.carrier.crew.has_warm():
        return False
    return call.pool.governor.error is None and Courier(replies).depart_locked(call)


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
