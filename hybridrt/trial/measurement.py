"""The two halves of a trial: calls one at a time, then eight at once. Runs on the trial's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from statistics import median

from hybridrt.errors import NotPortableError
from hybridrt.measure.host import gil_enabled
from hybridrt.trial.values import CROWD, TrialRow
from hybridrt.trial.watch import PERIOD, GilWatch, LoopWatch, Stamp
from hybridrt.values import LoopDelay, Where

__all__ = ["Call", "Plan", "idle_delay", "measure"]

Call = Callable[[], Awaitable[object]]

SECONDS = 0.7
"""How long each half lasts, if the calls are short enough."""
CALLS_MIN = 3
IDLE_SECONDS = 0.3
_TURN = 0.618_034
"""The golden ratio: multiples of it fall evenly into the beats, so calls begin at every phase of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure.

    Attributes:
        calls: Calls of each half, eight at once no fewer than 8; None: as many as fit in `SECONDS`.
        say: Told what is going on.
    """

    calls: int | None
    say: Callable[[str], None]

    def turns(self, least: int) -> Iterator[int]:
        """Yield a number per call to be made, `least` at least."""
        end, made = time.perf_counter() + SECONDS, 0
        while made < least or (self.calls is None and time.perf_counter() < end):
            yield made
            made += 1


async def idle_delay(plan: Plan) -> LoopDelay:
    """Return the delay of the running loop with nothing to do."""
    plan.say("idle loop")
    with LoopWatch() as watch:
        await asyncio.sleep(IDLE_SECONDS)
    delay = watch.summary()
    assert delay is not None  # beats have passed for a third of a second
    return delay


async def measure(where: Where, call: Call, plan: Plan, first: float | None = None) -> TrialRow:
    """Return the row of one placement; what keeps the function from running off the loop becomes its problem.

    Args:
        where: The name of the placement.
        call: Makes one call there.
        plan: How much to measure.
        first: How long the first call took; None makes it here.
    """
    try:
        plan.say(f"{where}: first call")
        if first is None:
            begun = time.perf_counter()
            await call()
            first = time.perf_counter() - begun
        return await _measure(where, call, plan, first)
    except Exception as error:
        if where == "inline":  # it failed where it runs best: there is nothing to compare
            raise
        return TrialRow(where=where, problem=f"{_kind(error)}: {error}")


def _kind(error: Exception) -> str:
    if isinstance(error, NotImplementedError):
        return "not there yet"
    return "not portable" if isinstance(error, NotPortableError) else f"raised {type(error).__name__}"


async def _measure(where: Where, call: Call, plan: Plan, first: float) -> TrialRow:
    plan.say(f"{where}: one at a time")
    with LoopWatch() as watch, GilWatch() as gil:
        calls, stalls = await _one_at_a_time(call, plan, watch)
    walls = [end - begin for begin, end in calls]
    if where != "inline" and min(walls) < SECONDS:  # the first call may have had a process to start
        await asyncio.gather(*(call() for _ in range(CROWD)))  # starts what eight at once need
    plan.say(f"{where}: {CROWD} at once")
    with LoopWatch() as crowd_watch:
        rate = await _crowd(call, plan)
    return TrialRow(
        where=where,
        calls=len(calls),
        time=median(walls),
        first=first,
        delay=watch.summary(),
        stall=_stall(walls, stalls),
        gil_share=gil.share_taken(calls) if gil_enabled() else None,
        rate=rate,
        crowd_delay=crowd_watch.summary(),
    )


async def _one_at_a_time(call: Call, plan: Plan, watch: LoopWatch) -> tuple[list[Stamp], list[float]]:
    """Return when each call ran, and by how much the latest beat in it was late."""
    calls, stalls = [], []
    for number in plan.turns(plan.calls or CALLS_MIN):
        watch.worst = 0.0
        begin = time.perf_counter()
        await call()
        calls.append((begin, time.perf_counter()))
        # A beat that the call held up comes in this pause; the next call begins somewhere between beats.
        await asyncio.sleep(PERIOD * (0.1 + number * _TURN % 1))
        stalls.append(watch.worst)
    return calls, stalls


def _stall(walls: list[float], stalls: list[float]) -> float | None:
    if median(walls) < PERIOD:
        return None
    return min(1.0, median(stall / wall for stall, wall in zip(stalls, walls, strict=True)))


async def _crowd(call: Call, plan: Plan) -> float:
    """Return calls per second with eight tasks that call again and again."""
    turns, done = plan.turns(max(plan.calls or 0, CROWD)), 0

    async def stand() -> None:
        nonlocal done
        for _ in turns:
            await call()
            done += 1
            await asyncio.sleep(0)  # a call made inline gives the loop no turn

    begun = time.perf_counter()
    await asyncio.gather(*(stand() for _ in range(CROWD)))
    return done / (time.perf_counter() - begun)
