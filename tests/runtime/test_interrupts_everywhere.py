"""Ctrl-C at one point after the other of all that the loop's thread does in a pool.

The interpreter lets signal handlers run when a function begins, after a call, and where a loop turns back. A
trace function counts these points and presses Ctrl-C at one of them; with `STRIDE = 1` at each of some 1,100.
"""

from __future__ import annotations

import asyncio
import dis
import gc
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.executor.budget import shared
from hybridrt.pool.state import Pool
from tests.conftest import LOOPS

from .test_interrupts import Run, with_asyncio, with_run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="asyncio hears of SIGINT otherwise there")

PARTS = ("hybridrt.pool.", "hybridrt.loop.", "hybridrt.drain")
STRIDE = 41
"""Points from one strike to the next."""


@cache
def _points(code: CodeType) -> frozenset[int]:
    """Return before which instructions of a function a signal handler may have run.

    What it raises counts as raised by the instruction before. So the two must lie within the same blocks.
    """
    bytecode = dis.Bytecode(code)
    entries = bytecode.exception_entries  # type: ignore[attr-defined]  # typeshed does not know
    found, before, within = set[int](), "", set[int]()
    for step in bytecode:
        around = {entry.target for entry in entries if entry.start <= step.offset < entry.end}
        if before.startswith(("CALL", "RESUME", "JUMP_BACKWARD")) and around == within:
            found.add(step.offset)
        before, within = step.opname, around
    return frozenset(found)


class Striker:
    """Presses Ctrl-C at a point of this thread.

    Args:
        at: How many points are let go by; None presses nowhere and counts.
        times: How often it is pressed there.
    """

    def __init__(self, at: int | None, times: int) -> None:
        self.seen = 0
        self._at, self._times = at, times

    def begin(self) -> None:
        sys.settrace(self._enter)

    def end(self) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(PARTS):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        # Only while a loop runs: what a finalizer raises afterwards goes no further.
        in_loop = asyncio._get_running_loop() is not None
        if event == "opcode" and in_loop and frame.f_lasti in _points(frame.f_code):
            self.seen += 1
            if self.seen - 1 == self._at:
                self.end()
                for _ in range(self._times):
                    signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # type: ignore[misc, operator]
        return self._step


async def _main(striker: Striker) -> None:
    """Submit, cancel what is queued and what runs, time out, wait in a lane, and let calls end.

    The striker goes on until the runtime has closed.
    """
    gate = threading.Event()
    stop = offload(gate.wait, abandon_on_cancel=True)
    striker.begin()
    try:
        running = [asyncio.ensure_future(stop(0.02)) for _ in range(3)]
        plain = [asyncio.ensure_future(offload(abs)(-n)) for n in range(4)]
        alone = [asyncio.ensure_future(offload(abs, lane="one")(-n)) for n in range(3)]
        late = asyncio.ensure_future(offload(gate.wait, timeout=0.001)(0.02))
        await asyncio.gather(*plain)
        for task in (*running[:2], alone[2]):
            task.cancel()
        await asyncio.gather(late, *alone, return_exceptions=True)
        gate.set()
        await asyncio.wait(running)
    finally:
        gate.set()


def _run(run: Run, striker: Striker) -> None:
    """Run the main, and see that nothing is left of it, however it ends.

    No garbage is collected meanwhile. A finalizer of an earlier run would be traced in the middle of code
    that is not, and CPython 3.11 can crash, or leave a step out, if the tracing ends there.
    """
    pools: list[Pool] = []

    async def main() -> None:
        pools.append(Runtime.current().executor._pool)
        await _main(striker)

    gc.collect()
    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()
        striker.end()
        (pool,) = pools
        pool.join()
        tally = pool.tally
        assert tally.submitted == tally.completed + tally.failed + tally.cancelled, tally
        assert (pool.busy, pool.waiting, pool.queued, len(pool.roster.workers)) == (0, 0, 0, 0)
        assert shared.permits.held == [0, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # what was left behind, at its end
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("loop", list(LOOPS))
@pytest.mark.parametrize("kind", [with_run, with_asyncio], ids=["run", "asyncio.run"])
def test_wherever_ctrl_c_strikes_the_program_ends_and_the_books_are_right(
    kind: Callable[[str], Run], loop: str, times: int
) -> None:
    counting = Striker(None, 0)
    _run(kind(loop), counting)
    first = STRIDE * times // 3 + STRIDE * (kind is with_run) // 2  # the others strike elsewhere
    for at in range(first, counting.seen, STRIDE):
        striker = Striker(at, times)
        try:
            _run(kind(loop), striker)
        except KeyboardInterrupt:
            continue
        assert striker.seen <= at, f"Ctrl-C at point {at} was lost"
    gc.collect()
