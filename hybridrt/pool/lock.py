"""How to wait for a lock that everybody needs, while everybody waits for the GIL.

With a plain `with lock:`

    1. The owner releases the lock, and the kernel makes the first waiter its owner.
    2. That thread must get the GIL before it can do anything: with k threads computing, some k switch
       intervals later.
    3. Meanwhile everybody else who needs the lock begins to wait for it, the event loop among them; and
       so on with each owner, so that a dozen computing threads keep a loop from its turn for long.

So a thread that finds the lock taken gives the GIL away for a moment, which is all that the owner can
lack, and looks again, with the GIL in hand: then whoever takes the lock goes on at once. The sections
that the lock protects take microseconds, so hardly anybody ever looks twice. Between a look and the
`with` another thread may still be faster; then 1 to 3 happen once, and whoever comes later looks.

A thread may also wait for itself, for ever:

    1. It holds the lock, and the garbage collector runs there, or a signal arrives.
    2. A finalizer or a signal handler, in the same thread, calls us: `executor.map`, abandoned half-way,
       cancels its calls, for example.

Nobody notes who owns the lock, since that would cost every call something. But whoever has looked in vain
for long can see in its own frames whether it stands in one of the `with` blocks that hold it.
"""

from __future__ import annotations

import re
import sys
import time
from functools import cache
from pathlib import Path
from threading import Lock
from types import FrameType

from hybridrt.measure.host import gil_enabled

__all__ = ["patiently"]

PAUSE = 0.00005
"""Seconds between two looks: long enough for an owner to wake and take the GIL."""
LOOKS = 256
"""Looks in vain, some 20 ms of them, between which a thread asks whether it waits for itself."""
_PACKAGE = str(Path(__file__).parent.parent)
_BLOCK = re.compile(r"( +)with (patiently\()?([\w.]+\.)?lock\)?:")
"""How the blocks begin that hold the lock; what is indented further is in there."""


def patiently(lock: Lock) -> Lock:
    """Return the lock when it is, or has just been, free; use it as `with patiently(lock):`.

    Where a tenth of a microsecond counts, ask `lock.locked()` first. Without a GIL it returns at once.

    Raises:
        RuntimeError: The thread waits for itself.
    """
    looks = 0
    while lock.locked() and gil_enabled():
        looks += 1
        if looks % LOOKS == 0 and _is_within_section(sys._getframe(1)):
            raise RuntimeError(
                "hybridrt was called by a finalizer or a signal handler that interrupted one of its own "
                "steps, and would wait for itself; have that done by another thread"
            )
        time.sleep(PAUSE)
    return lock


def _is_within_section(frame: FrameType | None) -> bool:
    """Tell whether a frame, or one that has led to it, is in a block that holds the interpreter's lock."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and frame.f_lineno in _section_lines(name):
            return True
        frame = frame.f_back
    return False


@cache
def _section_lines(name: str) -> frozenset[int]:
    """Return the lines of a source file within such blocks; none if it cannot be read."""
    try:
        lines = Path(name).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return frozenset()
    found, margin = set[int](), ""
    for number, line in enumerate(lines, 1):
        if margin and (line.startswith(margin) or not line):
            found.add(number)
            continue
        opened = _BLOCK.match(line)
        margin = opened[1] + " " if opened else ""
    return frozenset(found)
