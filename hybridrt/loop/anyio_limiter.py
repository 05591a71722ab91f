"""anyio's limiter of worker threads, moved by the sizing law of the pool.

`anyio.to_thread.run_sync` lets 40 calls run at once on a loop, whatever they do; synchronous
endpoints of FastAPI and Starlette, MCP servers and pydantic-ai's tools go that way. Forty that wait
starve the rest, and forty that compute are too many already. So the limit grows while calls queue
up behind ones that wait, and never because of ones that compute.

Everything happens on the loop's thread, at the beats of its heartbeat: a limit that is set from
another thread leaves the waiters asleep. The first calls after a rest are seen at its next slow beat,
within half a second. A look costs next to nothing while no call runs, and nothing is imported or made
on behalf of a program that does without anyio.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.veto import FULL
from hybridrt.control.window import Limits, State, Window
from hybridrt.loop.borrowing import Borrowing, Spent
from hybridrt.measure.foreign import ThreadClocks, process_switches
from hybridrt.pool.state import Pool
from hybridrt.values import Decision, LimiterStatistics, Reason

if TYPE_CHECKING:
    from anyio import CapacityLimiter, CapacityLimiterStatistics

__all__ = ["AnyioLimiter", "may_govern_anyio"]

logger = logging.getLogger("hybridrt")

USUAL = 40
"""anyio's own limit. Whoever set a lower one wants to hold threads back."""

OVER_KNEE = 1.5
"""Times the size that just fills the GIL: with so many the throughput is all there, and more only queue."""


def may_govern_anyio() -> bool:
    """Tell whether the environment leaves anyio's limiter to us."""
    return os.environ.get("HYBRIDRT_GOVERN_ANYIO", "1") != "0"


class AnyioLimiter:
    """The default limiter of one loop, once there is one.

    Used on the loop's thread alone; `statistics` from any.

    Args:
        loop: Whose limiter.
        pool: Lends its policy and its limits; the least size is the one found.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool) -> None:
        self._loop = loop
        self._pool = pool
        # A law for bytes or of the user's own knows nothing of these threads.
        self._policy = pool.policy if isinstance(pool.policy, PaperPolicy) else DemandPolicy()
        self._limits = pool.limits
        self._limiter: CapacityLimiter | None = None
        self._found = self._set = 0.0
        self._found_at = 0.0
        self._stopped: str | None = None
        self._clocks = ThreadClocks()
        self._process_cpu = 0.0
        self._switches: int | None = None
        self._window: Borrowing | None = None
        self._seen: tuple[float, int, int] | None = None
        """Total, borrowed, waiting; not anyio's own statistics, which would keep the tasks."""
        self._decisions: deque[Decision] = deque(maxlen=200)

    def is_busy(self) -> bool:
        """Tell whether calls run, so that the beats should come fast."""
        return self._limiter is not None and self._stopped is None and self._limiter.borrowed_tokens > 0

    def beat(self, now: float, late: float) -> None:
        """Look at the limiter, and decide when a window is over; called `late` seconds after its time."""
        if self._stopped is not None:
            return
        try:
            self._beat(now, late)
        except Exception as error:
            self._stopped = repr(error)
            logger.exception("anyio's limiter is governed no more and stays as it is")

    def close(self) -> None:
        """Put back the value found, unless somebody else has changed it."""
        if self._limiter is None or self._limiter.total_tokens != self._set:
            return
        self._stopped = self._stopped or "the runtime closed"
        self._set = self._limiter.total_tokens = self._found
        self._see(self._limiter)

    def statistics(self) -> LimiterStatistics | None:
        """Return what is known; None before anything used anyio's threads, unless governing has stopped."""
        if self._seen is None and self._stopped is None:
            return None
        total, borrowed, waiting = self._seen or (math.inf, 0, 0)
        return LimiterStatistics(
            total=_number(total),
            floor=None if self._limiter is None else _number(self._found),
            borrowed=borrowed,
            waiting=waiting,
            decisions=tuple(self._decisions.copy()),
            stopped=self._stopped,
        )

    # ------------------------------------------------------------------ one beat

    def _beat(self, now: float, late: float) -> None:
        limiter = self._limiter or self._find(now)
        if limiter is None:
            return
        if limiter.total_tokens != self._set:
            self._leave_alone(f"the program set it to {limiter.total_tokens} itself")
        elif limiter.borrowed_tokens or not self._at_rest():
            self._look(limiter, now, late)
        elif self._window is not None:
            self._window = None
            self._see(limiter)

    def _find(self, now: float) -> CapacityLimiter | None:
        limiter: CapacityLimiter | None = _variable(self._loop, "_default_thread_limiter")
        if limiter is None:
            return None
        self._limiter, self._found_at = limiter, now
        self._found = self._set = found = limiter.total_tokens
        self._see(limiter)
        if not USUAL <= found < math.inf:
            self._leave_alone(f"the program had set it to {found}")
            return None
        highest = max(int(found), self._limits.highest)
        self._limits = replace(self._limits, lowest=int(found), highest=highest)
        self._state: State = self._policy.start(self._limits)
        return limiter

    def _leave_alone(self, why: str) -> None:
        assert self._limiter is not None
        self._see(self._limiter)
        self._stopped = why
        logger.info("anyio's limiter is left alone: %s", why)

    def _see(self, limiter: CapacityLimiter) -> CapacityLimiterStatistics:
        seen = limiter.statistics()
        self._seen = seen.total_tokens, seen.borrowed_tokens, seen.tasks_waiting
        return seen

    def _at_rest(self) -> bool:
        return self._set == self._found or self._policy.at_rest(self._limits, self._state)

    def _look(self, limiter: CapacityLimiter, now: float, late: float) -> None:
        seen = self._see(limiter)
        if self._window is None:
            self._open(now)
        assert self._window is not None
        self._window.note(now, late, seen.borrowers, seen.tasks_waiting)
        if now - self._window.opened >= self._policy.interval:
            self._decide(limiter, self._window.close(self._spent(), self._limits), now)

    def _open(self, now: float) -> None:
        """Begin to measure, at the first beat that sees calls."""
        self._pool.governor.keep_looking()
        self._window = Borrowing(now)
        self._clocks.restart(self._threads())
        self._process_cpu, self._switches = time.process_time(), process_switches()

    def _spent(self) -> Spent:
        process_cpu, switches = time.process_time(), process_switches()
        spent = Spent(
            cpu=self._clocks.spent(self._threads()),
            process=process_cpu - self._process_cpu,
            switches=None if switches is None or self._switches is None else switches - self._switches,
        )
        self._process_cpu, self._switches = process_cpu, switches
        return spent

    def _threads(self) -> Iterable[int]:
        """Return the kernel's ids of anyio's worker threads on this loop."""
        workers = _variable(self._loop, "_threadpool_workers") or ()
        return [worker.native_id for worker in workers if worker.native_id is not None]

    def _bound(self, state: State, window: Window, previous: int) -> State:
        """Return the state with no more growth than what the calls do leaves room for."""
        assert self._window is not None
        blind = self._window.is_blind()
        most = previous if blind else max(previous, _ceiling(self._limits, window))
        if state.workers <= most:
            return state
        return replace(state, workers=most, reason=Reason.HYSTERESIS if blind else Reason.SATURATED)

    def _decide(self, limiter: CapacityLimiter, window: Window, now: float) -> None:
        before, previous = self._state, int(self._set)
        self._pool.governor.keep_looking()
        limits, memory = self._pool.limits, self._pool.interpreter.memory.share
        self._limits = replace(self._limits, cores=limits.cores, capacity=limits.capacity)
        # The law would jump to a knee, and this one is known too roughly: it bounds the growth.
        self._state = self._policy.decide(self._limits, before, replace(window, knee=None, memory=memory))
        self._state = self._bound(self._state, window, previous)
        total = self._limits.clamp(self._state.workers)
        if total != previous:
            self._set = limiter.total_tokens = total
            self._see(limiter)
        if (total, self._state.reason) != (previous, before.reason):
            self._decisions.append(
                Decision(
                    at=now - self._found_at,
                    workers=total,
                    previous=previous,
                    reason=self._state.reason,
                    beta=self._state.beta,
                    queued=window.queued,
                    running=window.running,
                )
            )


def _ceiling(limits: Limits, window: Window) -> int:
    """Return the number of calls that their computing leaves room for.

    In a pool computing calls need a permit, so that its law may try a size first and judge it then.
    Here each token is a thread that may compute, and too many of those are what the loop suffers from.
    """
    shares_gil = window.gil_share is None or window.gil_share >= 0.5
    capacity = limits.capacity if shares_gil else max(limits.capacity, limits.cores)
    if window.lane_cpu >= FULL * capacity:
        return 0
    return limits.highest if window.knee is None else math.ceil(OVER_KNEE * window.knee)


def _variable(loop: asyncio.AbstractEventLoop, name: str) -> Any:
    """Return a variable that anyio keeps for a loop, or None before it was set.

    anyio's own way to ask makes the limiter that it asks for, and works in tasks alone. A module that
    another thread is just importing is in `sys.modules` already, and lacks what it will define.
    """
    backend: Any = sys.modules.get("anyio._backends._asyncio")
    if backend is None or getattr(backend.__spec__, "_initializing", False):
        return None
    lowlevel: Any = sys.modules["anyio.lowlevel"]
    kept = lowlevel._run_vars.get(loop, {})
    return kept.get(getattr(backend, name), kept.get(name))  # by its name up to anyio 4.9


def _number(tokens: float) -> int | None:
    return None if math.isinf(tokens) else int(tokens)
