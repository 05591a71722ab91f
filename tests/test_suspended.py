"""A moment in which the machine stands still is noticed."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.suspended import Watch


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the watch needs fork")
def test_a_moment_in_which_the_machine_stands_still_is_noticed() -> None:
    watch = Watch(still=1.0)
    begun = time.monotonic()
    os.kill(watch.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(watch.pid, signal.SIGCONT)
    assert watch.stood_still(begun)
    assert not watch.stood_still(time.monotonic() + 3600)
    watch.stop()
