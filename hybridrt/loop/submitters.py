"""The loops that submit to an executor without a runtime: each is measured and protected as a runtime's.

A loop is known from the first call that it submits, until it is closed, the executor is shut down or
collected, or a runtime opens on it, which then has its own eye. Between calls no timer is left in the loop:
the heart stops when the governor has parked, and goes on when that wakes. Why no wake-up is lost, loop L,
submitter S, governor G:

    1. L reads in a beat that no call is there and G is parked, and sets no timer.
    2. S queues a call, and wakes G if it is parked.
    3. G awake calls L, which begins to beat; as a callback of its own, so after the beat of 1 has ended.

    If S queues before L reads, L sees the call. If G has been woken before L reads, it is not parked any
    more, or it has yet to take that back, and then 3 comes.

Runs on the loop's thread, but for what `LoopWatch` says.
"""

from __future__ import annotations

import time
from contextvars import Context

from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.governor.shield import LOOP_DELAY_TARGET
from hybridrt.loop.completions import CompletionQueue, forget_idle
from hybridrt.loop.watch import LoopWatch, this_run
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool.uninterrupted import uninterrupted

__all__ = ["SubmitterWatch", "watch_submitter"]


class SubmitterWatch(LoopWatch):
    """The eye on a loop that submits to a pool.

    Args:
        completions: Of the loop, whose thread this is.
        pool: It submits to this one.
    """

    def __init__(self, completions: CompletionQueue, pool: ThreadPool) -> None:
        super().__init__(completions.loop, pool, target=LOOP_DELAY_TARGET, shield=True)
        self._completions = completions
        self._loops = pool.loops
        self._rung = self._over = False
        self._heartbeat.may_stop = self._may_stop

    def start(self) -> None:
        """Begin to measure."""
        self._run = this_run()
        self._computed.note(time.perf_counter())
        self._pool.budget.shield.join(self)
        # Timers keep the context in which they were made: not that of the task that happens to submit.
        context = Context()
        context.run(self._heartbeat.start)
        self._loop.call_soon(self._quicken, context=context)  # by then there is the call

    def is_over(self) -> bool:
        """Return True if the loop or the pool has ended, or a runtime measures the loop; for good."""
        if not self._over and self._is_needless():
            self._over = True
            if self._loops.get(self._loop) is self:
                self._loops.pop(self._loop, None)
        return self._over

    def _is_needless(self) -> bool:
        pool = self._pool
        over = super().is_over() or self._loops.get(self._loop) is not self  # forgotten while the loop rested
        return over or pool.refusal is not None or pool.draining or self._completions.governed

    def quicken(self) -> None:
        """Beat fast from now on; from any thread. A loop that does not run is told once."""
        if not self._rung:
            self._rung = True
            try:
                super().quicken()
            except BaseException:
                self._rung = False
                raise

    def _quicken(self) -> None:
        self._rung = False
        super()._quicken()

    def _may_stop(self) -> bool:
        if self.is_over():
            self.stop()
            return True
        return self._pool.budget.governor.asleep and not self._is_busy()


@uninterrupted
def watch_submitter(completions: CompletionQueue, pool: ThreadPool) -> None:
    """Measure the running loop from now on, if that is not done yet."""
    loop = completions.loop
    if completions.governed or not pool.measures:
        return
    known = pool.loops.get(loop)
    if known is not None and not known.is_over():
        return
    forget_idle(pool.loops, lambda _: False)
    watch = pool.loops[loop] = SubmitterWatch(completions, pool)
    try:
        watch.start()
    except BaseException as error:
        pool.loops.pop(loop, None)  # the next call tries again
        if not isinstance(error, SelfWaitError):  # a finalizer or a signal handler submits
            raise
