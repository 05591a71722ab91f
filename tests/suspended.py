"""Runs a test again that failed while the machine stood still.

A virtual machine may be suspended for seconds or minutes. Its monotonic clock jumps when it goes on, so that
every deadline in the middle of a test is over at once. A process beside the suite sleeps for moments and
notes each one that took seconds; a test that fails and has such a moment in its time is run once more, and
that run counts. All other failures stand.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from _pytest.runner import runtestprotocol

STILL_SECONDS = 5.0
"""Time from which the machine has stood still: threads of a busy one may wait for a second."""
_MOMENT = 0.25
_WATCH = """
import os, select, sys, time
if os.fork():
    os._exit(0)
moment, still, before, last = float(sys.argv[1]), float(sys.argv[2]), time.monotonic(), 0.0
print(os.getpid(), flush=True)
while True:
    asked = select.select([0], [], [], moment)[0]
    now = time.monotonic()
    if now - before >= still:
        last = now
    before = now
    if asked:
        if not os.read(0, 1):
            break
        print(last, flush=True)
"""
"""Goes on in a child's child, since tests count children, and ends with its standard input."""

_again = pytest.StashKey[bool]()


class Watch:
    """The process beside the suite.

    Args:
        still: Seconds from which a moment is noted.
    """

    def __init__(self, still: float = STILL_SECONDS) -> None:
        command = [sys.executable, "-I", "-S", "-c", _WATCH, str(_MOMENT), str(still)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._notes = process.stdin, process.stdout
        self.pid = int(self._notes.readline())

    def stood_still(self, begun: float) -> bool:
        """Return True if the machine has stood still since a time of the monotonic clock."""
        self._input.write(b"?")
        return float(self._notes.readline()) >= begun

    def stop(self) -> None:
        """End it."""
        self._input.close()
        self._notes.close()


def pytest_configure(config: pytest.Config) -> None:
    """Start the watch."""
    if sys.platform == "win32":
        return
    watch = Watch()
    config.pluginmanager.register(_Again(watch), "run-again-after-suspension")
    config.add_cleanup(watch.stop)


class _Again:
    """Runs each test, and once more where the machine stood still."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item.stash.get(_again, False):
            return None
        begun = time.monotonic()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if any(report.failed for report in reports) and self._watch.stood_still(begun):
            item.stash[_again] = True
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)  # with time limits of its own
            return True
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True
