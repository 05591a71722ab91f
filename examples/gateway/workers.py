"""Several workers on one port: a parent that starts them, starts one anew that died, and ends them all.

The parent binds the port and never listens, so that the number stays taken; the kernel spreads connections
over the workers, which bind it too (`SO_REUSEPORT`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

__all__ = ["supervise"]

_YOUNG = 5.0
"""A worker that dies before this many seconds counts as one that cannot start."""
_DEATHS_MAX = 3
_PERIOD = 0.2


class _Worker:
    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command)
        self.began = time.monotonic()


def supervise(command: Callable[[int], Sequence[str]], count: int, *, grace: float) -> int:
    """Run workers until SIGTERM or SIGINT; return the exit code.

    Args:
        command: Gives the command line of a worker by its number.
        count: How many.
        grace: Seconds that workers have to end in before they are killed.
    """
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    workers = [_Worker(command(number)) for number in range(count)]
    deaths = 0
    try:
        while not stop.wait(_PERIOD) and deaths < _DEATHS_MAX:
            for number, worker in enumerate(workers):
                if worker.process.poll() is not None:
                    young = time.monotonic() - worker.began < _YOUNG
                    deaths = deaths + 1 if young else 0
                    print(
                        f"gateway: worker {number} ended with code {worker.process.returncode}",
                        file=sys.stderr,
                        flush=True,
                    )
                    if deaths < _DEATHS_MAX:
                        workers[number] = _Worker(command(number))
    finally:
        _end(workers, grace)
    return 1 if deaths >= _DEATHS_MAX else 0


def _end(workers: Sequence[_Worker], grace: float) -> None:
    for worker in workers:
        worker.process.terminate()
    deadline = time.monotonic() + grace
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
