"""Where the next call of a function should run, by what its calls have cost.

The cost of a place is the time per call that eight concurrent callers get, by the bounds of operational
analysis (Denning and Buzen 1978): no resource serves more than its capacity, and no caller has more than
one call on its way. A call needs the GIL of this interpreter, cores, and an isolate; the scarcest of them,
or the callers, set the time per call.

What waits behind one long hold of the GIL is not in that time: the event loop. So a hold counts for a part
of its length once more, wherever it happens: the call itself in a thread, or the (un)pickling of what is
carried to an isolate and back.

Pure: figures in, a choice with its reason out. Times are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridrt.observe.placement import INLINE_MAX_NS
from hybridrt.placements import Placement, PlacementReason

__all__ = [
    "Choice", "Evidence", "Machine", "Prices", "decide", "is_due", "is_settled", "next_place", "price",
    "wants_isolate",
]  # fmt: skip

ENOUGH = 3
"""Calls measured before a place is judged; the first of them often pays for what the others find warm."""
TELLING_NS = 5_000_000
"""A call that computes for longer is judged by the first: there is no clock noise in it."""
WORTH = 0.85
"""Share of a thread's cost below which an isolate is worth the move,"""
STAYS = 0.95
"""and until which a function stays there. The gap is wider than what figures differ by from call to call."""
TRIALS = 6
"""Calls carried before that is judged: some of them pay for starting an isolate and its imports."""
UNCLASSED, UNCLASSED_NS = 64, 300_000_000
"""Calls, or CPU time of them, after which a function is tried elsewhere although what it does was never seen
with the GIL,"""
UNCLASSED_CROWD, UNCLASSED_CROWD_NS = 16, 100_000_000
"""and the same while other calls wait for the verdict. Not measured."""
HOLD_NS = 1_000_000
"""A shorter hold of the GIL is not felt by a loop whose delay is to stay below 2 ms."""
HOLD_WEIGHT = 0.25
"""Part of a hold that counts once more. Not tuned: it decides only where costs are close."""
GUESS_NS, GUESS_BYTE_NS = 150_000, 0.5
"""What carrying a call is taken to cost here before it was measured: per call, and per unit of size. Rather
too little, because a trial tells."""
AGAIN, AGAIN_MAX = 256, 1 << 14
"""Calls after which the other place is tried again, at first; each time in vain doubles them."""
AGAIN_FELT = 1024
"""The same where that place is a thread, and the call was moved away because the loop feels it there: its
function was seen with the GIL."""
OFTEN = 8
"""The first calls of a size are all judged, then one in so many."""
_PASSING = (PlacementReason.LEARNING, PlacementReason.TRIAL)
"""Reasons that lead to a choice and are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What places cost here.

    Attributes:
        cores: Usable cores.
        gil: Threads of this interpreter share a GIL.
        handover_ns: CPU time that handing one of several calls to a thread takes.
        inline_max_ns: The longest that one call may keep the loop.
        callers: Calls on their way at once.
    """

    cores: int
    gil: bool
    handover_ns: int = 12_000
    inline_max_ns: int = INLINE_MAX_NS
    callers: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about calls of one function with inputs of one size.

    Attributes:
        calls: All calls so far, wherever they ran.
        measured: Those measured in a worker thread.
        cpu_ns: CPU time of one of them, in the middle of the last.
        wait_ns: What one mostly waits for, if the function waits; no more than the last of this size blocked.
        blocked_ns: What the last ones of this size have blocked at least.
        longest_ns: The longest that one would have kept the loop.
        small: Its input can be told in size, and none of its options forbids to run on the loop.
        portable: Nothing has shown that it cannot.
        classed: What the function does with the GIL has been seen.
        holds: It keeps the GIL until it returns.
        parallel: Several at once compute in threads.
        waits: It waits for three tenths of its time or more.
        crowd: Other calls of the function wait to hear where they run.
        size: Of the input; 0 where it cannot be told.
        carried: Calls that came back from an isolate and were measured.
        carry_ns: CPU time in this interpreter for carrying one there and back.
        child_cpu_ns: CPU time there.
        hop_ns: What the way there and back takes beside the call.
    """

    calls: int
    measured: int
    cpu_ns: float
    wait_ns: float
    blocked_ns: float
    longest_ns: float
    small: bool
    portable: bool
    classed: bool
    holds: bool
    parallel: bool
    waits: bool
    crowd: bool = False
    size: int = 0
    carried: int = 0
    carry_ns: float = 0.0
    child_cpu_ns: float = 0.0
    hop_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Costs of a call by place; None where it may not run, or nothing is known."""

    inline: float | None
    thread: float | None
    isolate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where calls of one size run from now on.

    Attributes:
        where: There.
        reason: Why.
        prices: What the choice rests on.
        again_at: Number of calls after which the other place is tried once more.
        patience: How many later the time after that.
    """

    where: Placement = "thread"
    reason: PlacementReason = PlacementReason.LEARNING
    prices: Prices = Prices(inline=None, thread=None, isolate=None)
    again_at: int = 0
    patience: int = AGAIN


def decide(before: Choice, evidence: Evidence, machine: Machine) -> Choice:
    """Return where calls run next; the first rule that applies gives the reason."""
    prices = price(evidence, machine)
    where, reason = _place(before, evidence, machine, prices)
    if reason in _PASSING:
        return replace(before, where=where, reason=reason, prices=prices)
    if where != before.where or before.reason in _PASSING:
        patience = AGAIN_FELT if where == "isolate" and evidence.classed else AGAIN
    elif evidence.calls <= before.again_at:
        return replace(before, reason=reason, prices=prices)
    else:
        patience = min(2 * before.patience, AGAIN_MAX)
    again_at = evidence.calls + patience
    return Choice(where=where, reason=reason, prices=prices, again_at=again_at, patience=patience)


def _place(
    before: Choice, evidence: Evidence, machine: Machine, prices: Prices
) -> tuple[Placement, PlacementReason]:
    if not _is_known(evidence):
        return "thread", PlacementReason.LEARNING
    assert prices.thread is not None
    # The least that blocked one of the last calls says nothing of those that wait now and then.
    waits_long = evidence.waits and evidence.wait_ns > machine.inline_max_ns
    if prices.inline is not None and prices.inline <= prices.thread and not waits_long:
        return "inline", PlacementReason.SHORT
    if evidence.waits:
        return "thread", PlacementReason.WAITS
    if evidence.parallel or not machine.gil:
        return "thread", PlacementReason.RELEASES_GIL
    if not evidence.portable:
        return "thread", PlacementReason.NOT_PORTABLE
    return _weigh(before, evidence, prices.thread, prices.isolate)


def _weigh(
    before: Choice, evidence: Evidence, thread: float, isolate: float | None
) -> tuple[Placement, PlacementReason]:
    """Choose between a thread and an isolate for a function of which one call at a time computes."""
    if isolate is None or isolate > thread * (STAYS if before.where == "isolate" else WORTH):
        return "thread", PlacementReason.CARRYING
    if evidence.carried < TRIALS:
        if not evidence.classed and _may_be_classed(evidence):
            return "thread", PlacementReason.LEARNING
        return "isolate", PlacementReason.TRIAL
    return "isolate", PlacementReason.HOLDS_GIL if evidence.holds else PlacementReason.SHARES_GIL


def _may_be_classed(evidence: Evidence) -> bool:
    calls, cpu_ns = (UNCLASSED_CROWD, UNCLASSED_CROWD_NS) if evidence.crowd else (UNCLASSED, UNCLASSED_NS)
    return evidence.calls < calls and evidence.calls * evidence.cpu_ns < cpu_ns


def next_place(
    choice: Choice, *, calls: int, carried: int, retried_at: int, warming: bool
) -> tuple[Placement, bool]:
    """Return where a call runs that may not run on the loop, and whether that tries the other place again.

    Args:
        choice: Of its size; why the call runs there is said by it.
        calls: Calls of its size so far.
        carried: Those of them that came back from an isolate.
        retried_at: `choice.again_at` of the last time when the other place was tried again.
        warming: Isolates are being started for the function.
    """
    if warming and choice.reason is PlacementReason.TRIAL:
        return "thread", False
    if calls < choice.again_at or retried_at == choice.again_at:
        return ("isolate", False) if choice.where == "isolate" else ("thread", False)
    may_move = choice.where != "isolate" and choice.reason is PlacementReason.CARRYING and carried
    return ("isolate", True) if may_move else ("thread", True)


def is_settled(choice: Choice, *, warming: bool) -> bool:
    """Return True if it is known where calls run, and they can run there now: no isolates are `warming`."""
    reason = choice.reason
    return reason is not PlacementReason.LEARNING and not (warming and reason is PlacementReason.TRIAL)


def is_due(choice: Choice, seen: int, judged_at: int) -> bool:
    """Return True if it is time to decide anew, `judged_at` being what was `seen` the last time."""
    return choice.reason is PlacementReason.LEARNING or not OFTEN < seen < judged_at + OFTEN


def wants_isolate(choice: Choice, evidence: Evidence) -> bool:
    """Return True if isolates should be started now: as far as is known calls will run there soon."""
    if not evidence.portable or evidence.cpu_ns < TELLING_NS or choice.prices.isolate is None:
        return False
    if choice.reason is PlacementReason.TRIAL:
        return True
    is_cheaper = choice.prices.isolate <= WORTH * (choice.prices.thread or 0.0)
    free = evidence.waits or evidence.parallel
    return choice.reason is PlacementReason.LEARNING and is_cheaper and not free


def _is_known(evidence: Evidence) -> bool:
    return evidence.measured >= ENOUGH or (evidence.measured > 0 and evidence.cpu_ns >= TELLING_NS)


def price(evidence: Evidence, machine: Machine) -> Prices:
    """Return what a call costs in each place."""
    return Prices(
        inline=_inline(evidence, machine),
        thread=_thread(evidence, machine) if evidence.measured else None,
        isolate=_isolate(evidence, machine) if evidence.measured else None,
    )


def _inline(evidence: Evidence, machine: Machine) -> float | None:
    if not evidence.small or evidence.measured < ENOUGH or evidence.longest_ns > machine.inline_max_ns:
        return None
    return evidence.cpu_ns + evidence.blocked_ns


def _thread(evidence: Evidence, machine: Machine) -> float:
    cpu, handover = evidence.cpu_ns, machine.handover_ns
    alone = machine.gil and not evidence.parallel
    return max(
        handover + (cpu if alone else 0.0),
        (cpu + handover) / machine.cores,
        (cpu + handover + evidence.wait_ns) / machine.callers,
    ) + _felt(cpu if evidence.holds and machine.gil else 0.0)


def _isolate(evidence: Evidence, machine: Machine) -> float:
    if evidence.carried >= TRIALS:
        carry, cpu, hop = evidence.carry_ns, evidence.child_cpu_ns, evidence.hop_ns
    else:
        carry = hop = GUESS_NS + GUESS_BYTE_NS * evidence.size
        cpu = evidence.cpu_ns
    here = carry + machine.handover_ns
    there = cpu + evidence.wait_ns + max(0.0, hop - carry)  # arguments and result are packed there, too
    return max(
        here if machine.gil else 0.0,
        (here + there - evidence.wait_ns) / machine.cores,
        there / machine.cores,  # as many isolates as cores
        (here + there) / machine.callers,
    ) + _felt(carry if machine.gil else 0.0)


def _felt(hold_ns: float) -> float:
    """Return what a hold of the GIL counts for the loop."""
    return HOLD_WEIGHT * hold_ns if hold_ns >= HOLD_NS else 0.0
