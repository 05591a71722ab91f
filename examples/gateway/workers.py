"""Several workers on one port: a parent that starts them, starts one anew that died, and ends them all.

The parent binds the port and never listens, so that the number stays taken; the kernel spreads connections
over the workers, which bind it too (`SO_REUSEPORT`). The standard input of a worker is a pipe of the
parent, so that it learns of a parent that was killed: it drains and ends then (see `serving`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

__all__ = ["UNUSABLE", "supervise"]

UNUSABLE = 2
"""Exit code of a worker that cannot be used as configured."""
_DEATHS_MAX = 3
_PERIOD = 0.2


class _Worker:
    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.began = time.monotonic()

    def close(self) -> None:
        """Give up the pipe of a process that has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()


def supervise(
    command: Callable[[int], Sequence[str]], count: int, *, grace: float, young: float = 5.0
) -> int:
    """Run workers until SIGTERM or SIGINT; return the exit code. For the main thread.

    A worker that ends is started anew, unless its code says that it cannot be used as configured, or three
    in a row ended young: then all are ended.

    Args:
        command: Gives the command line of a worker by its number.
        count: How many.
        grace: Seconds that workers have to end in before they are killed.
        young: Seconds before which a worker that ends counts as one that cannot run.
    """
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    workers: list[_Worker] = []
    try:
        workers += [_Worker(command(number)) for number in range(count)]
        return _watch(workers, command, stop, young)
    finally:
        _end(workers, grace)
        for each, handler in before.items():
            signal.signal(each, handler)


def _watch(
    workers: list[_Worker], command: Callable[[int], Sequence[str]], stop: threading.Event, young: float
) -> int:
    """Start workers anew until told to stop; return the exit code."""
    deaths = 0
    while not stop.wait(_PERIOD):
        for number, worker in enumerate(workers):
            code = worker.process.poll()
            if code is None:
                continue
            print(f"gateway: worker {number} ended with code {code}", file=sys.stderr, flush=True)
            deaths = deaths + 1 if time.monotonic() - worker.began < young else 1
            if code == UNUSABLE or deaths >= _DEATHS_MAX:
                return code or 1
            worker.close()
            workers[number] = _Worker(command(number))
    return 0


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
        worker.close()
