"""Fails a test that leaves a thread or a changed switch interval behind.

The check runs after every other fixture of the test, the event loop included, has been torn down.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from hybridrt import testing

LEAVING_SECONDS = 15.0
"""How long a thread that is on its way out may take; only a failing test waits for so long."""


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    """Let the test run, reset what hybridrt shares between tests, then look at what is left."""
    threads = frozenset(threading.enumerate())
    interval = sys.getswitchinterval()
    yield
    testing.reset()
    changed = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    left = outliving(threads)
    assert not left, "threads outlived the test:\n" + "\n".join(map(describe, left))
    assert changed == interval, f"the switch interval was {interval} before the test and {changed} after it"


def outliving(known: frozenset[threading.Thread]) -> list[threading.Thread]:
    """Return the live threads that are not among those known, after giving them time to end."""
    deadline = time.monotonic() + LEAVING_SECONDS
    fresh = [thread for thread in threading.enumerate() if thread not in known]
    for thread in fresh:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in fresh if thread.is_alive()]


def describe(thread: threading.Thread) -> str:
    """Return the thread's name and where it stands."""
    frame = sys._current_frames().get(thread.ident or 0)
    where = "".join(traceback.format_stack(frame, limit=2)) if frame else "  no Python frame\n"
    return f"{thread.name}{' (daemon)' if thread.daemon else ''} at\n{where}"
