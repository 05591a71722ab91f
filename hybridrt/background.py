"""Background tasks of one runtime: how many may run, which are dropped, what became of them.

Works on the loop of the runtime, but for `statistics`, which is safe from any thread. Knows no threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal, TypeVar

from hybridrt.errors import QueueFullError
from hybridrt.values import BackgroundStatistics

__all__ = ["BackgroundPolicy", "BackgroundTasks"]

logger = logging.getLogger("hybridrt")

R = TypeVar("R")

BackgroundPolicy = Literal["reject", "drop_oldest", "block"]

CAUSES = 100
"""Causes of errors that are told apart; the others are counted together. Not measured."""
OTHER = "other"


class BackgroundTasks:
    """The background tasks of one runtime.

    Args:
        most: How many may run at once.
        policy: What happens to one more: see `Runtime`.
    """

    def __init__(self, most: int, policy: BackgroundPolicy) -> None:
        self._most = most
        self._policy = policy
        # The names of the functions are kept, because `get_coro` of an eager task crashes Python 3.12.1.
        self._running: dict[asyncio.Task[Any], str] = {}
        """Those that count, oldest first, with their function."""
        self._leaving: dict[asyncio.Task[Any], str] = {}
        """Those that were dropped and have not ended yet."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Spawns that wait for a place, in order."""
        self._reserved = 0
        """Places of spawns that are under way: each was given one that it waited for, or makes its task."""
        self._spawned = self._completed = self._failed = self._cancelled = self._shed = 0
        self._queue_wait = 0.0
        self._errors: dict[str, int] = {}

    def __contains__(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._running or task in self._leaving

    # ------------------------------------------------------------------ beginning

    def spawn(
        self, coro: Coroutine[Any, Any, R], name: str | None, check_open: Callable[[], None]
    ) -> asyncio.Task[R]:
        """Start a task now, unless `check_open` raises; a coroutine that is refused is closed.

        Raises:
            QueueFullError: There is no place and none can be made.
        """
        _check(coro, check_open)
        if self._is_full():
            self._make_place(coro)
        return self._start(coro, name)

    async def spawn_when_free(
        self, coro: Coroutine[Any, Any, R], name: str | None, check_open: Callable[[], None]
    ) -> asyncio.Task[R]:
        """Start a task, if the policy is "block" once there is a place for it; see `spawn`."""
        if self._policy != "block" or not self._is_full():
            return self.spawn(coro, name, check_open)
        _check(coro, check_open)
        try:
            await self._wait_for_place()
            self._reserved -= 1
            check_open()  # if not, the close has refused all others that wait
        except BaseException:
            coro.close()
            raise
        return self._start(coro, name)

    def _start(self, coro: Coroutine[Any, Any, R], name: str | None) -> asyncio.Task[R]:
        function: str = getattr(coro, "__qualname__", type(coro).__qualname__)
        self._reserved += 1  # an eager task may spawn others before it is known
        try:
            task = asyncio.get_running_loop().create_task(coro, name=name or function)
        except BaseException:  # a task factory of the program's own
            coro.close()
            self._reserved -= 1
            self._pass_place_on()
            raise
        self._reserved -= 1
        self._spawned += 1
        self._running[task] = function
        if task.done():  # an eager one, which may be awaited before the loop would call us
            self._ended(task)
        else:
            task.add_done_callback(self._ended)
        return task

    def _is_full(self) -> bool:
        """Return True if one more would have to wait; those that wait go first."""
        return len(self._running) + self._reserved >= self._most or bool(self._waiting)

    def _make_place(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Drop the oldest task, or refuse this one.

        The task that spawns is not dropped. Dropped tasks may take their time to end, but no more of them
        than may run: what ignores its cancelling must not pile up.
        """
        if self._policy == "drop_oldest" and len(self._leaving) < self._most:
            current = asyncio.current_task()
            oldest = next((task for task in self._running if task is not current), None)
            if oldest is not None:
                self._leaving[oldest] = self._running.pop(oldest)
                self._shed += 1
                oldest.cancel("dropped for a newer background task")
                return
        coro.close()
        if self._policy == "block":
            remedy = "wait for a place with `await runtime.spawn_background(...)`, or raise it"
        else:
            remedy = "await some, or raise it"
        self._shed += 1
        raise QueueFullError(f"background_max={self._most} background tasks run already; {remedy}")

    # ------------------------------------------------------------------ waiting for a place

    async def _wait_for_place(self) -> None:
        """Wait until a task that ends gives its place to this spawn, which is then reserved.

        Raises:
            asyncio.CancelledError: Given up. A place that was given in the same turn goes to the next:

                1. A task ends; its place is reserved for us and our future is set.
                2. Before we go on, we are cancelled.
                3. We wake up with the error, and the reservation would stay for ever.
        """
        since, place = time.perf_counter(), asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._reserved -= 1
                self._pass_place_on()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise
        finally:
            self._queue_wait += time.perf_counter() - since

    def _pass_place_on(self) -> None:
        """Give the places there are to the spawns that wait, in order."""
        while self._waiting and len(self._running) + self._reserved < self._most:
            place = self._waiting.popleft()
            if not place.done():
                self._reserved += 1
                place.set_result(None)

    def refuse_waiting(self, error: Callable[[], BaseException]) -> None:
        """Fail the spawns that wait."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._shed += 1
                place.set_exception(error())

    # ------------------------------------------------------------------ ending

    def _ended(self, task: asyncio.Task[Any]) -> None:
        function = self._running.pop(task, None)
        if function is None:
            function = self._leaving.pop(task, task.get_name())
        elif self._waiting:
            self._pass_place_on()
        if task.cancelled():
            self._cancelled += 1
        elif getattr(task, "_log_traceback", False):  # `exception()` would mark the error as retrieved
            self._failed += 1
            # After those who await it, whose callbacks stand behind ours: then it is known who has seen it.
            task.get_loop().call_soon(self._report, task, function)
        else:
            self._completed += 1

    def _report(self, task: asyncio.Task[Any], function: str) -> None:
        """Count what a task raised by its cause, and tell the loop's exception handler of a new one."""
        unseen = getattr(task, "_log_traceback", False)
        error = task.exception()
        cause = f"{function}: {type(error).__name__}"
        if cause not in self._errors and len(self._errors) >= CAUSES:
            cause = OTHER
        seen_before = self._errors.get(cause, 0)
        self._errors[cause] = seen_before + 1
        if unseen and not seen_before:
            message = f"background task {task.get_name()!r} failed; more of {cause!r} are only counted"
            task.get_loop().call_exception_handler({"message": message, "exception": error, "task": task})

    # ------------------------------------------------------------------ closing

    async def wait(self, timeout: float) -> None:
        """Wait until the tasks have ended; the one that closes is not waited for."""
        if rest := self._others():
            await asyncio.wait(rest, timeout=timeout)

    def _others(self) -> set[asyncio.Task[Any]]:
        return {*self._running, *self._leaving} - {asyncio.current_task()}

    def cancel_others(self) -> None:
        """Cancel what has not ended by the deadline, and name it."""
        left = self._others()
        if left:
            logger.warning("%s", _name(left, "did not end by the deadline", "cancelled"))
        for task in left:
            task.cancel()

    def name_left(self) -> None:
        """Name what has not heeded its cancelling."""
        if left := self._others():
            logger.warning("%s", _name(left, "did not end when cancelled", "left behind"))

    # ------------------------------------------------------------------ what is told

    def count(self) -> int:
        """Return how many tasks run, the dropped ones that have not ended included."""
        return len(self._running) + len(self._leaving)

    def statistics(self) -> BackgroundStatistics:
        """Return counters and gauges."""
        return BackgroundStatistics(
            running=self.count(),
            queued=len(self._waiting),
            spawned=self._spawned,
            completed=self._completed,
            failed=self._failed,
            cancelled=self._cancelled,
            shed=self._shed,
            queue_wait=self._queue_wait,
            errors=dict(self._errors),
        )


def _check(coro: object, check_open: Callable[[], None]) -> None:
    """Refuse what is no coroutine, and close one that comes when no more are taken."""
    if not isinstance(coro, Coroutine):
        raise TypeError(f"background needs a coroutine, as in background(send(mail)), got {coro!r}")
    try:
        check_open()
    except BaseException:
        coro.close()
        raise


def _name(tasks: Iterable[asyncio.Task[Any]], what: str, fate: str) -> str:
    """Return a sentence that names the tasks, each name once."""
    names = Counter(task.get_name() for task in tasks)
    if names.total() == 1:
        return f"background task {next(iter(names))!r} {what} and is {fate}"
    told = ", ".join(f"{name!r}" if n == 1 else f"{name!r} ({n} times)" for name, n in names.most_common())
    return f"{names.total()} background tasks {what} and are {fate}: {told}"
