"""The loop goes first: before a call that holds the GIL for long, its thread waits until the loop is at rest.

A loop that wants the GIL waits for a whole C call that holds it, and wants it anew after each read and write
of a socket. So one iteration with twenty of them can wait for twenty calls of `json.loads`, of tens of
milliseconds each, if the next one begins as soon as the loop has given the GIL away. Therefore the thread of
such a call asks the loop first:

    1. The worker puts a callback into the loop's next iteration, and waits for the answer.
    2. If that iteration begins at once, the loop was at rest: the callback answers. If not, the loop works:
       the callback puts itself into the iteration after that, and so on, until one follows soon.
    3. The worker goes on when it is answered, or after `TIMES` the usual CPU time of its call. So a loop that
       works without end leaves such calls a part of the GIL.

A loop that has not begun any iteration by then, and whose thread has used no CPU time meanwhile, is blocked:
by a wait for that very call, perhaps. It is not asked again until it has answered. (A thread that waits for
the GIL uses some, because it wakes once a switch interval.)

Loops are known by their watches, in a table that the shared lock protects and that is replaced as a whole:
workers read it without the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import perf_counter_ns
from typing import Protocol
from weakref import ref

__all__ = ["MOST_NS", "TIMES", "Answering", "LoopFirst"]

TIMES = 4
"""For how many times the usual CPU time of a call it waits for a loop. With `json.loads` of 190 kB 1 and 8
gave the same."""
MOST_NS = 50_000_000
"""The longest that a call waits. Not measured."""
REST_NS = 300_000
"""Time until an iteration begins, from the question or the iteration before, below which the loop is at rest.
Half of it or three times as much gave the same there."""


class Answering(Protocol):
    """A watch of a loop, as far as its loop is asked."""

    def call_soon(self, callback: Callable[[], None]) -> bool:
        """Have a callback run in the loop's next iteration; return False if the loop does not run."""
        ...

    def runs_here(self) -> bool:
        """Return True if the loop runs in the calling thread."""
        ...

    def cpu_ns(self) -> int | None:
        """Return the CPU time of the loop's thread, or None where that cannot be read."""
        ...


class LoopFirst:
    """The loops that are watched.

    Attributes:
        calls: Calls that waited for a loop that worked.
    """

    def __init__(self) -> None:
        self._loops: tuple[_Loop, ...] = ()
        self.calls = 0

    @property
    def known(self) -> bool:
        """Whether there is a loop; without the lock."""
        return bool(self._loops)

    def join_locked(self, watch: Answering) -> None:
        """Know the loop of a watch."""
        self._loops = (*self._others(watch), _Loop(watch))

    def leave_locked(self, watch: Answering) -> None:
        """Know it no more."""
        self._loops = self._others(watch)

    def forget_lost_locked(self) -> None:
        """Forget loops whose watch was garbage collected before it has left."""
        self._loops = self._others(None)

    def clear(self) -> None:
        """Know none, as in a forked child."""
        self._loops = ()

    def give_way(self, usual_ns: int) -> None:
        """Wait until the loops are at rest, save for one that runs in this thread; without the lock.

        Args:
            usual_ns: CPU time of the call that is about to begin.
        """
        until_ns = perf_counter_ns() + min(TIMES * usual_ns, MOST_NS)
        for loop in self._loops:
            worked = loop.worked_until_rest(until_ns)
            self.calls += worked  # not in one: others count during the wait

    def _others(self, watch: Answering | None) -> tuple[_Loop, ...]:
        return tuple(loop for loop in self._loops if loop.watch() not in (None, watch))


class _Loop:
    """One loop.

    Attributes:
        watch: Its watch; the table does not keep it alive.
    """

    __slots__ = ("_unheard", "watch")

    def __init__(self, watch: Answering) -> None:
        self.watch = ref(watch)
        self._unheard: _Question | None = None
        """The last question that the loop has not heard in time, and was blocked all the while."""

    def worked_until_rest(self, until_ns: int) -> bool:
        """Wait until the loop is at rest, or the time is over; return True if it worked."""
        watch, unheard = self.watch(), self._unheard
        if watch is None or watch.runs_here() or (unheard is not None and not unheard.heard):
            return False
        question, used_ns = _Question(watch), watch.cpu_ns()
        if not watch.call_soon(question):
            return False
        try:
            question.over.wait(max(0, until_ns - perf_counter_ns()) / 1e9)
        finally:
            question.over.set()
        if not question.heard and watch.cpu_ns() == used_ns:
            self._unheard = question
        return question.heard > 1


class _Question:
    """A call's question whether a loop is at rest.

    Attributes:
        heard: Iterations of the loop that have heard it.
        over: It is answered, or its call waits no more.
    """

    __slots__ = ("_at_ns", "_watch", "heard", "over")

    def __init__(self, watch: Answering) -> None:
        self._watch = watch
        self._at_ns = perf_counter_ns()
        self.heard = 0
        self.over = Event()

    def __call__(self) -> None:
        """Answer, or ask the next iteration; in the loop's thread."""
        self.heard += 1
        before_ns, self._at_ns = self._at_ns, perf_counter_ns()
        if self.over.is_set():
            return
        if self._at_ns - before_ns < REST_NS or not self._watch.call_soon(self):
            self.over.set()
