"""How long a thread may keep the GIL while others wait for it: the law of the loop shield.

A thread that wants the GIL asks for it after one switch interval, and with k threads computing gets it
after some k of them. A request costs the loop about three such waits (wake up, read, write), so at
CPython's 5 ms a loop beside one computing thread answers after 15 ms and more.

- A computing call begins: the shortest interval, at once.
- One call computes: it stays there. Only the loop takes the GIL from that call, and only when it
  has something to do, so a short interval costs next to nothing.
- Several compute, and hand the GIL round among themselves at every interval, which at 0.1 ms costs them
  an eighth of their work. Or calls come and go so fast that those who start and end them, the
  loop among them, interrupt the computing one all the time: that costs it some 0.1 ms for each who does
  so alone, and little for those who have to wait for each other. Then the interval grows step by step,
  up to what the user had set, while the loop's measured delay keeps the target with room to spare; it
  holds where the delay comes near the target, and falls at once when the target is missed, as far as it
  can be to blame for that and as the crowd can bear. Where no loop is measured, a length at which
  the crowd loses little of its work.
- Never so short that the threads would fill a core by asking for the GIL, if all of them wanted it at once:
  each that waits for it wakes once an interval. Two hundred calls that wait for 50 ms come back in herds, and
  at 0.1 to 0.5 ms their asking took both cores from the one that had the GIL: the loop was late by 240 ms.
- Nothing has computed for a moment: the user's own value again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridrt.values import ShieldReason

__all__ = ["LOWEST", "Grip", "Seen", "decide", "grasp"]

LOWEST = 0.0001
"""Seconds; shorter intervals cost computing threads more than they give to the loop."""
MARGIN = 0.75
"""Share of the target below which the interval grows. Timers of event loops count milliseconds, so a
loop that nothing disturbs reads up to 1 ms late."""
BLAME = 4
"""A loop that waits for k intervals of a k*BLAME-th of the target is not late because of them."""
WAKING = 0.0005
"""Seconds of interval for each further thread that wants the GIL; beside a loop that is late, from the
third on. All of them wake once an interval to ask: two to eight lose some 13 % of their work at 0.1 ms
and 3 % at 1 ms, sixteen 20 and 3 %, as `python -m benchmarks gil` shows."""
ENOUGH = 0.001
"""Seconds at which a crowd of any size loses no more than that."""
ASKING = 4e-6
"""Seconds of interval for each thread that may ask for the GIL: about the CPU time that asking once takes.
With 2 us some herds of 250 still stalled a loop for 150 ms; 6 us did no better than 4."""
GROWTH = 1.25
"""Factor of one step."""
PATIENCE = 0.5
"""Seconds with margin before a step; twenty beats of a busy loop. Not measured."""
REST = 0.05
"""Seconds without a computing call before the user's value is put back."""
CROWD = 1.5
"""Mean number of computing calls above which they hand the GIL round among themselves."""
CHURN = 100.0
"""Calls ended per second above which starting and ending them costs the computing one too much: each
takes the GIL from it about four times, 0.1 ms each."""
MEMORY = 0.25
"""Seconds over which both means are formed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen since the decision before.

    Attributes:
        seconds: The time between the two.
        users: GIL-bound calls that compute now, those included that do so between their waits.
        delay: 99th percentile of the loop's recent delay, the worst of all loops; None where no loop
            is measured.
        target: What it should be at most, in seconds.
        highest: The user's own interval, in seconds.
        ended: Calls that ended, of whatever kind.
        threads: Those that run calls and may ask for the GIL: all that do not stand in line for a permit.
    """

    seconds: float
    users: int
    delay: float | None
    target: float
    highest: float
    ended: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grip:
    """The interval while calls compute, and what the law remembers.

    Attributes:
        interval: Seconds.
        reason: Why.
        crowd: Mean number of computing calls.
        churn: Mean number of calls that ended per second.
        kept: Seconds for which the delay has kept the target with margin at this interval.
        rested: Seconds since a call computed.
    """

    interval: float
    reason: ShieldReason
    crowd: float = 1.0
    churn: float = 0.0
    kept: float = 0.0
    rested: float = 0.0


def grasp(highest: float, threads: int = 0) -> Grip:
    """Return the grip of the moment in which a computing call begins; see `Seen` for the arguments."""
    return Grip(interval=_clamp(LOWEST, highest, threads), reason=ShieldReason.TIGHT)


def decide(grip: Grip, seen: Seen) -> Grip | None:
    """Return the next grip, or None when it is time to give the user's value back."""
    share = min(1.0, seen.seconds / MEMORY)
    churn = (1.0 - share) * grip.churn + seen.ended / max(MEMORY, seen.seconds)
    if not seen.users:
        rested = grip.rested + seen.seconds
        return None if rested >= REST else replace(grip, churn=churn, rested=rested, kept=0.0)
    crowd = grip.crowd + share * (seen.users - grip.crowd)
    interval, reason, kept = _next(grip, seen, crowd, churn)
    interval = _clamp(interval, seen.highest, seen.threads)
    return Grip(interval=interval, reason=reason, crowd=crowd, churn=churn, kept=kept)


def _next(grip: Grip, seen: Seen, crowd: float, churn: float) -> tuple[float, ShieldReason, float]:
    """Return interval, reason and how long it has been kept with margin; the first rule wins."""
    late = seen.delay is not None and seen.delay > seen.target
    if crowd <= CROWD and churn <= CHURN:
        return LOWEST, ShieldReason.LATE if late else ShieldReason.TIGHT, 0.0
    users = max(1 if crowd <= CROWD else 2, round(crowd))
    least = max(seen.target / (BLAME * users), min(ENOUGH, WAKING * (users - 2)))
    if late:
        return least, ShieldReason.LATE, 0.0
    if seen.delay is None:
        bearable = WAKING * (users - 1) if users > 1 else seen.target / (users + 1)
        return bearable, ShieldReason.UNMEASURED, 0.0
    interval = max(least, grip.interval)
    if seen.delay > MARGIN * seen.target:
        return interval, ShieldReason.HOLD, 0.0
    kept = grip.kept + seen.seconds
    if kept < PATIENCE:
        return interval, ShieldReason.RELAX, kept
    return interval * GROWTH, ShieldReason.RELAX, 0.0


def _clamp(interval: float, highest: float, threads: int) -> float:
    """Return the nearest interval within the bounds; the user's own is never exceeded."""
    return min(highest, max(LOWEST, ASKING * threads, interval))
