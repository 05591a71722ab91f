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
"""

from __future__ import annotations

import time
from threading import Lock

from hybridrt.measure.host import gil_enabled

__all__ = ["patiently"]

PAUSE = 0.00005
"""Seconds between two looks: long enough for an owner to wake and take the GIL."""


def patiently(lock: Lock) -> Lock:
    """Return the lock when it is, or has just been, free; use it as `with patiently(lock):`.

    Where a tenth of a microsecond counts, ask `lock.locked()` first. Without a GIL it returns at once.
    """
    while lock.locked() and gil_enabled():
        time.sleep(PAUSE)
    return lock
