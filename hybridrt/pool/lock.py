"""How to wait for a lock that all threads need, while all threads wait for the GIL.

With a plain `with lock:`

    1. The owner releases the lock, and the kernel makes the first waiter its owner.
    2. That thread must get the GIL before it can do anything: with k threads computing, some k switch
       intervals later.
    3. Meanwhile each other thread that needs the lock begins to wait for it, the event loop among them; and
       so on with each owner, so that a dozen computing threads keep a loop from its turn for long.

So a thread that finds the lock taken gives the GIL away for a moment, which is all that the owner can
lack, and looks again, with the GIL in hand: then the thread that takes the lock goes on at once. The sections
that the lock protects take microseconds, so a thread hardly ever looks twice. Between a look and the
`with` another thread may still be faster; then 1 to 3 happen once, and later threads look.

A thread may also wait for itself, for ever:

    1. It holds the lock, and the garbage collector runs there, or a signal arrives.
    2. A finalizer or a signal handler, in the same thread, calls us: `executor.map`, abandoned half-way,
       cancels its calls, for example.

The event loop's thread pauses like any other: it needs the lock, and has it within microseconds. Tools that
forbid a loop to sleep (blockbuster) put something else in the place of `time.sleep`; the function is taken
before that, because these pauses are what a lock costs, as they would be inside of `acquire`.

The owner of the lock is not noted, since that would cost every call something. But a thread that finds the
lock taken can see in its own frames whether it stands within such a section: the bytecode says where a `with`
block begins and ends. What comes then is refused, or, where it can wait, as a cancelling can, done later.
"""

from __future__ import annotations

import dis
import sys
from functools import cache
from threading import Lock
from time import sleep
from types import CodeType, FrameType

from hybridrt.measure.host import gil_enabled

__all__ = ["SelfWaitError", "without_convoy"]

PAUSE = 0.00005
"""Seconds between two looks: long enough for an owner to wake and take the GIL."""
LOOKS = 256
"""Looks in vain, some 20 ms of them, after which a thread within a section waits for itself. Not at once: it
may be the section of another lock, while another thread owns this one."""
_PACKAGE = __name__.partition(".")[0] + "."
_NAMES = frozenset({"without_convoy", "lock", "_lock"})
"""One of them stands in each function with a block that holds a lock, and in none with other `with` blocks in
which code of others runs, or another lock is taken."""
_CALL, _HANDLER = dis.opmap["CALL"], dis.opmap["WITH_EXCEPT_START"]


class SelfWaitError(RuntimeError):
    """A finalizer or a signal handler would wait for the step that it has interrupted in the same thread."""

    def __init__(self) -> None:
        super().__init__(
            "hybridrt was called by a finalizer or a signal handler that interrupted one of its own "
            "steps, and would wait for itself; have that done by another thread"
        )


def without_convoy(lock: Lock) -> Lock:
    """Return the lock when it is, or has just been, free; use it as `with without_convoy(lock):`.

    Where a tenth of a microsecond counts, ask `lock.locked()` first. Without a GIL it returns at once.

    Raises:
        SelfWaitError: The thread would wait for itself.
    """
    if not lock.locked():
        return lock
    if not gil_enabled() and not _is_within_section(sys._getframe(1)):
        return lock
    looks = 0
    while lock.locked():
        if looks == LOOKS and _is_within_section(sys._getframe(1)):
            raise SelfWaitError
        looks += 1
        sleep(PAUSE)
    return lock


def _is_within_section(frame: FrameType | None) -> bool:
    """Return True if a frame, or one that has led to it, is in a block of this package that holds a lock."""
    while frame is not None:
        ours = frame.f_globals.get("__name__", "").startswith(_PACKAGE)
        if ours and any(start <= frame.f_lasti < end for start, end in _sections(frame.f_code)):
            return True
        frame = frame.f_back
    return False


@cache
def _sections(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return where the bytecode of a function is within its `with` blocks, if they hold locks.

    An error in such a block goes to a handler that calls `__exit__` first of all, which the table of
    exceptions tells. A block that is left in good order has one more call behind it, that of `__exit__`.
    """
    if _NAMES.isdisjoint(code.co_names):
        return ()
    opcodes = code.co_code[::2]
    handlers = {2 * index for index, opcode in enumerate(opcodes) if opcode == _HANDLER}
    ends = [2 * index + 1 for index, opcode in enumerate(opcodes) if opcode == _CALL]
    return tuple(
        (entry.start, next((end for end in ends if end > entry.end), entry.end))
        for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # typeshed does not know
        if entry.target + 2 in handlers
    )
