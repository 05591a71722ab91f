"""Thread priority: what computes leaves its core to a loop that wakes.

Where all cores are busy, a loop's thread that wakes waits for one until the kernel takes it from another
thread, which is milliseconds for each turn of the loop. A thread of lower priority gives its core up sooner,
and at once where the loop's time slice is short, too (see `time_slice`). So worker threads run a little below
the loop, and isolates below those: a thread may have the GIL, for which the loop waits; an isolate has one of
its own.

Linux alone knows a priority per thread. A process may lower priorities, but mostly not raise them again; so
only what is our own is lowered.
"""

from __future__ import annotations

import os
import sys

from hybridrt.pool.time_slice import take_usual

__all__ = ["ISOLATE", "THREAD", "lower"]

THREAD = 5
"""Steps of niceness: by the kernel's weights the thread gets a third of what the loop gets of a busy core."""
ISOLATE = 10
"""It gets a tenth of it."""


def lower(native_id: int, steps: int) -> None:
    """Lower the priority of a thread below that of the main thread; one that is lower stays as it is.

    Its time slice becomes the usual one, if the loop's thread that started it has a short one.

    Does nothing where the platform or a sandbox does not let us.

    Args:
        native_id: The kernel's number of the thread, or of a process, whose first thread has the same.
        steps: How far below.
    """
    if sys.platform != "linux":
        return
    take_usual(native_id)
    try:
        niceness = min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + steps)
        if os.getpriority(os.PRIO_PROCESS, native_id) < niceness:
            os.setpriority(os.PRIO_PROCESS, native_id, niceness)
    except OSError:  # it is gone, or we may not
        pass
