"""Whether a running call waits or computes, judged from two readings of its clocks.

A call that waits gives its permit back and one that computes takes one, so a wrong verdict starts
a second computing call (too early) or holds back one that could run (too late). A thread that
waits for the GIL uses no CPU either. Two things tell it apart:

- the observer itself got the GIL promptly, both times: then no other thread was waiting for it;
- the kernel did not put the thread on a core in between: a GIL waiter wakes at least every switch
  interval to ask again.

Without either source only a much longer standstill counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Reading", "Verdict", "judge"]


class Verdict(Enum):
    """What a running call does."""

    WAITS = auto()
    COMPUTES = auto()
    UNSURE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A call between two looks at it; times in nanoseconds.

    Attributes:
        interval: Time between the looks.
        cpu: CPU time used in between, or None where threads have no readable clock.
        still: Looks in a row, this one included, at which the CPU time had stood still.
        still_for: Time since the CPU time last moved.
        prompt: The observer got the GIL promptly at both looks.
        schedule_ins: Times the thread was put on a core since the CPU time last moved, or None.
        process_cpu: CPU time of the whole process in between.
        switch_interval: The interpreter's.
    """

    interval: int
    cpu: int | None
    still: int
    still_for: int
    prompt: bool
    schedule_ins: int | None
    process_cpu: int
    switch_interval: int


_STILL_LOOKS = 2
_BLIND_INTERVALS = 8
_BLIND_NS = 40_000_000
"""Time, and switch intervals, without any CPU after which a call waits, where nothing better is known:
with two computing calls and the loop, a GIL waiter gets its turn every third."""


def is_still(interval: int, cpu: int) -> bool:
    """Return True if a CPU clock stood still: less than 2 % of the time, and less than 50 us."""
    return cpu <= min(50_000, interval // 50)


def judge(reading: Reading) -> Verdict:
    """Return what the call does."""
    if reading.cpu is None:
        return _judge_by_process(reading)
    if not is_still(reading.interval, reading.cpu):
        return Verdict.COMPUTES if reading.cpu * 4 >= reading.interval else Verdict.UNSURE
    if reading.still < _STILL_LOOKS:
        return Verdict.UNSURE
    if reading.prompt or _never_ran(reading):
        return Verdict.WAITS
    if reading.schedule_ins is None and reading.still_for >= max(
        _BLIND_NS, _BLIND_INTERVALS * reading.switch_interval
    ):
        return Verdict.WAITS
    return Verdict.UNSURE


def _never_ran(reading: Reading) -> bool:
    """Return True if the kernel left the thread alone for longer than a GIL waiter would sleep."""
    return reading.schedule_ins == 0 and reading.still_for >= 2 * reading.switch_interval


def _judge_by_process(reading: Reading) -> Verdict:
    """Without a thread's clock: a process that hardly computes has no computing call."""
    return Verdict.WAITS if reading.process_cpu * 4 < reading.interval else Verdict.COMPUTES
