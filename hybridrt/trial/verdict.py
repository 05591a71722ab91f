"""What the rows of a trial mean, in one sentence. Pure: the same rows give the same words."""

from __future__ import annotations

from hybridrt.observe.placement import INLINE_MAX_NS
from hybridrt.placements import time_text
from hybridrt.trial.values import CROWD, TrialRow, count_text

__all__ = ["judge"]

SHORT = INLINE_MAX_NS / 1e9
"""Seconds above which a call is never worth the loop's time."""
WAITS = 0.5
"""CPU time by wall time below which a call counts as one that waits."""
HOLDS = 0.5
"""Stall of the loop, as a share of the call, from which a call counts as one that holds the GIL."""
TAKES = 0.3
"""Share of looks that find the GIL taken from which a call does not count as one that releases it."""
HANDOVERS = 2.0
"""A call shorter than so many hand-overs is better made where it is."""
GAIN = 1.1
"""More calls per second by which an isolate has to pay before it is advised for that alone."""
PURE = "declare it pure=True"


def judge(
    inline: TrialRow, thread: TrialRow, isolate: TrialRow, *, cpu_share: float, gil: bool = True
) -> str:
    """Return the verdict on a function.

    The questions are asked in order, and the first that is answered decides: is it shorter than a
    hand-over, does it hold the GIL, does it share it, does it wait, and was enough seen of the GIL to say
    that it leaves it. CPU time tells only between answers that both advise a thread: on a machine that is
    busy with other things it is short.

    Args:
        inline: Calls made on the loop.
        thread: In threads.
        isolate: In other interpreters or processes.
        cpu_share: CPU time by wall time of the calls made inline.
        gil: This interpreter has a GIL.
    """
    assert inline.time is not None  # it has run: the placements are compared with it
    if thread.time is None:
        return f"It cannot run in a thread: {thread.problem}."
    handover = thread.time - inline.time
    if inline.time < min(SHORT, HANDOVERS * handover):
        return _short(inline.time, handover)
    if thread.stall is not None and thread.stall >= HOLDS:
        return _holds(thread.time, thread.stall, isolate)
    if thread.gil_share is not None and thread.gil_share >= TAKES:
        return _cooperates(thread, isolate)
    if cpu_share < WAITS:
        return _waits(inline.time, cpu_share, thread)
    if gil and thread.gil_share is None:
        return "Too few calls to tell what it does with the GIL: ask for more calls."
    return _releases(thread)


def _short(wall: float, handover: float) -> str:
    return (
        f"Takes {time_text(wall)} and a hand-over to a thread {time_text(handover)}: call it where it is, "
        f"or {PURE}, and hybridrt makes short calls inline."
    )


def _waits(wall: float, cpu_share: float, thread: TrialRow) -> str:
    return (
        f"Waits for {1 - cpu_share:.0%} of its {time_text(wall)}: a thread is the place for it, and "
        f"{CROWD} at once make {count_text(thread.rate)} calls/s."
    )


def _holds(wall: float, stall: float, isolate: TrialRow) -> str:
    holds = f"Holds the GIL for {stall:.0%} of its {time_text(wall)}, and no thread helps against that"
    if isolate.problem is not None:
        return f"{holds}; it would have to leave the interpreter, but the isolate is out: {isolate.problem}."
    if (isolate.stall or 0.0) >= HOLDS:
        return (
            f"{holds}; an isolate does not either ({_delay(isolate)}), because carrying its arguments or its "
            "result holds up the loop as much: pass less, such as a path, or return less."
        )
    return f"{holds}; {PURE} to move it to an isolate: {_delay(isolate)}."


def _delay(row: TrialRow) -> str:
    assert row.delay is not None
    return f"the loop's delay there is {time_text(row.delay.p99)} (p99)"


def _releases(thread: TrialRow) -> str:
    held = "no GIL is" if thread.gil_share is None else f"the GIL is {1 - thread.gil_share:.0%}"
    return (
        f"Computes without the GIL ({held} free for others meanwhile): a thread is the place for it, and "
        f"{CROWD} at once make {count_text(thread.rate)} calls/s."
    )


def _cooperates(thread: TrialRow, isolate: TrialRow) -> str:
    assert thread.delay is not None
    assert thread.rate is not None
    shares = (
        "Computes with the GIL and shares it: a thread keeps the loop's delay at "
        f"{time_text(thread.delay.p99)} (p99), but {CROWD} at once do no more than one"
    )
    if isolate.problem is not None:
        return f"{shares}; more cores would take an isolate, but that is out: {isolate.problem}."
    assert isolate.rate is not None
    gain = isolate.rate / thread.rate
    if gain < GAIN:
        return f"{shares}, nor do isolates, with {gain:.2f} times the calls per second: leave it in threads."
    return f"{shares}; {PURE} to move it to isolates, which do {gain:.1f} times the calls per second."
