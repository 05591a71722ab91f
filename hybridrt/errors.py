"""The errors that a caller may want to handle.

Misuse is a `TypeError` or `ValueError`, raised where the mistake is made. What can go wrong in a
correct program is a `HybridrtError`, whose `started` says whether the call had.
"""

from __future__ import annotations

__all__ = [
    "HybridrtError",
    "IsolateInitializerError",
    "IsolateStartError",
    "LaneNestingError",
    "NotPortableError",
    "OffloadTimeoutError",
    "QueueFullError",
    "RuntimeClosedError",
    "WorkerLostError",
]


class HybridrtError(Exception):
    """Base class of the errors below.

    Attributes:
        started: Whether the function of the call had begun to run, or may have. False: it never runs, and
            calling it again runs it once.
    """

    def __init__(self, *args: object, started: bool = False) -> None:
        super().__init__(*args)
        self.started = started


class QueueFullError(HybridrtError):
    """The queue held `queue_max` calls, or `background_max` background tasks ran.

    `started` is False. Catch it to shed load; wait on the asynchronous path (`await offloaded(...)`) to be
    slowed down instead.
    """


class OffloadTimeoutError(HybridrtError, TimeoutError):
    """A call missed its `timeout` or its `queue_timeout`.

    Attributes:
        started: False: the call was removed from the queue and never runs. True: it was running;
            its thread goes on, is counted as abandoned, and its result is dropped; the process of an
            isolate is ended.
    """


class NotPortableError(HybridrtError):
    """Arguments or a result cannot cross to another interpreter or process.

    Attributes:
        started: False: an argument could not cross, or there is no interpreter to start a process with, as in
            a frozen program. True: the function has run, and what it returned or raised could not cross.
    """


class IsolateStartError(HybridrtError, OSError):
    """No isolate could be started, for want of files, memory or threads. The call had not started.

    It is no part of the package's surface: callers handle the `OSError`.
    """


class IsolateInitializerError(HybridrtError):
    """`isolate_initializer` failed in a new isolate, which was ended. The call had not started.

    The next call tries again; after three isolates in a row no more are started, and such calls fail at once.
    """

    started = False


class WorkerLostError(HybridrtError):
    """The worker, a thread or a process, ended while it ran the call, or before it had it.

    How far a call came that had started is unknown.

    Attributes:
        started: Whether the call had reached the worker.
        exitcode: Of a process: what it ended with, minus the signal that ended it; else None.
    """

    def __init__(self, *args: object, started: bool = True, exitcode: int | None = None) -> None:
        super().__init__(*args, started=started)
        self.exitcode = exitcode


class LaneNestingError(HybridrtError):
    """A call inside a lane asked for the same lane, and the one that holds it waits for this one.

    `started` is False. Raised in the thread that holds the lane, and in coroutines and calls that were
    started there while it waits for a future. It is not raised where the context was not carried along, as by
    the standard library's thread pool or into a call of an executor with `context="none"`, or where the
    holder waits for something other than a future, such as an event or a queue: there a `timeout` helps.
    """


class RuntimeClosedError(HybridrtError, RuntimeError):
    """The runtime is not open, or it closed before the call ended.

    Attributes:
        started: False: the call never runs. True: it goes on unwatched; in an isolate's process it is ended.
    """
