"""When growth is refused, however long the queue.

Only what the lane itself uses counts as filling the GIL or the cores. Computing calls beside it have
permits of their own; waiting calls must not starve because those keep the GIL busy.
"""

from __future__ import annotations

import math

from hybridrt.control.knee import DemandState
from hybridrt.control.window import Limits, Window
from hybridrt.values import Reason

__all__ = ["FULL", "corrected", "crowds_gil", "find_veto", "is_brief", "outdoes_gil"]

MEMORY = 0.9
"""Share of the memory budget from which no thread is added."""
FULL = 0.85
"""Share of the capacity that counts as all of it."""
BEYOND = 1.25
"""Share of the capacity of the GIL beyond which CPU time must have been spent without it."""
BRIEF = 0.003
"""Seconds; waking a thread and getting the GIL takes some 0.1 to 0.2 ms."""
MOST = 0.5
"""Share of the GIL from which the lane has its part in a late loop. Not measured."""
BETA = 0.3
"""The paper's threshold, here on the corrected ratio."""


def find_veto(limits: Limits, state: DemandState, window: Window) -> Reason | None:
    """Return why the size must not grow, or None."""
    if window.memory is not None and window.memory >= MEMORY:
        return Reason.MEMORY
    if _is_full(limits, state, window):
        return Reason.SATURATED
    if _delays_loop(limits, state, window):
        return Reason.LOOP_DELAY
    return Reason.BETA_VETO if _computes(limits, state) else None


def _is_full(limits: Limits, state: DemandState, window: Window) -> bool:
    if crowds_gil(limits, state, window):
        return True
    if state.load < FULL * limits.capacity:
        return False
    return state.load >= FULL * limits.cores or not _leaves_gil(limits, state, window)


def outdoes_gil(limits: Limits, state: DemandState) -> bool:
    """Return True if the lane has had more CPU time lately than one GIL can give: it computes without it.

    Functions that mostly wait show it in no other way: they are looked at while they wait.
    """
    return limits.capacity < limits.cores and state.load_peak >= BEYOND * limits.capacity


def crowds_gil(limits: Limits, state: DemandState, window: Window) -> bool:
    """Return True if the GIL is taken at every look, and the functions' profiles say by this lane.

    Other processes may have the cores: then the lane fills the GIL without much CPU time.
    """
    if window.knee is None or window.gil_share is None or outdoes_gil(limits, state):
        return False
    taken = state.gil if is_brief(state) else max(state.gil, window.gil_share)
    return taken >= FULL and _fills(state, window.knee)


def _delays_loop(limits: Limits, state: DemandState, window: Window) -> bool:
    """Return True if a loop is late, and by the profiles more calls of this lane could only add to that.

    The lane must have the GIL most of the time: what a loop does itself, or calls beside this lane, make it
    late, too. Below the size that fills the GIL it may grow all the same, since one call computes at a time.
    """
    if window.loop_lateness is None or window.loop_lateness <= 1.0 or window.knee is None:
        return False
    if window.gil_share is None or _leaves_gil(limits, state, window):
        return False
    return state.load >= MOST * limits.capacity and _fills(state, window.knee)


def _fills(state: DemandState, knee: float) -> bool:
    """Return True if there are as many calls as keep the GIL taken, with some to spare."""
    return state.workers >= knee + math.sqrt(knee)


def is_brief(state: DemandState) -> bool:
    """Return True if calls take so little time that waking their threads is a good part of it.

    Then more threads do more although the GIL is often taken, and each of them costs little.
    """
    return 0.0 < state.likely_alone < BRIEF


def _leaves_gil(limits: Limits, state: DemandState, window: Window) -> bool:
    """Return True if the lane computes without the GIL, so that the cores are its bound."""
    if limits.capacity >= limits.cores:
        return False
    if outdoes_gil(limits, state):
        return True
    if state.gil >= 0.0:
        return state.gil < 0.5
    return window.knee is not None and window.knee > 1.3 * state.workers


def _computes(limits: Limits, state: DemandState) -> bool:
    """Return True if calls hardly block and there are as many of them as can compute at once."""
    beta = corrected(state)
    if not 0.0 <= beta < BETA:
        return False
    return state.workers >= math.ceil(max(limits.capacity, limits.cores) / (1.0 - beta))


def corrected(state: DemandState) -> float:
    """Return the blocking ratio without the wait for the GIL, below 0 where it is not known.

    The certified ratio is a lower bound: with short waits it may read 0 for calls that do nothing else.
    The other one is what a call spends blocked that no other call holds up.
    """
    if state.certified < 0.0 or state.raw < 0.0:
        return state.raw
    cpu = (1.0 - state.raw) * state.quick
    alone = 1.0 - cpu / state.likely_alone if state.likely_alone and state.quick else 1.0
    return min(state.raw, max(state.certified, alone))
