"""What the sizing law remembers, and what it learns from a window: throughput, service time, the knee.

Everything rests on Little's law. Calls in service N, throughput X and time in service S obey N = X*S;
with S0 the service time of a call that no other call holds up, X*S0 threads are busy with calls alone, and
more than X*S0 + 2*sqrt(X*S0) threads (square-root staffing) only wait for each other. S0 is never read
off directly: it is taken from the least contended moments, and believed for good only once a change
of size has shown that fewer threads do less (`exact`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from hybridrt.control.window import Limits, State, Window

__all__ = ["DemandState", "Trial", "is_pressed", "observe", "reopen", "staff"]

SETTLE_MAX = 0.5
"""Seconds left out of a reading after a change of size, at most; else one service time."""
KEEP = 1.0
"""Seconds after which a reading counts half, with enough calls; four times that otherwise."""
ENOUGH = 1000
CROWDED = 2.5
"""Times the least service time ever seen from which calls may be in each other's way. Soon after a start
exponential times read 2.4 times too low, constant ones not at all."""
FADES = 30.0
"""Seconds in which a peak of the load halves: what it says of the functions outlasts a change of
size. Not measured."""
PEAK = 5.0
"""Seconds of one of the two buckets of the peak hold. Not measured: half the idle timeout of a thread."""


class Trial(IntEnum):
    """An experiment under way."""

    NONE = 0
    FEWER = 1
    """Does throughput hold with fewer threads?"""
    MORE = 2
    """Does throughput rise with more threads?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandState(State):
    """What the law remembers; 0 stands for what is not known yet.

    Attributes:
        clock: Seconds of all windows so far.
        settle: Seconds still to leave out of the reading.
        time: Seconds of the reading, under pressure at one size.
        done: Calls that ended in it.
        busy: Thread-seconds in it.
        used: CPU seconds of the lane in it.
        quick: Service time of the latest calls, smoothed over a few windows.
        rate: Calls per second whether or not any were held back, smoothed over a second.
        alone: Service time S0 of a call that no other call holds up.
        alone_at: How many ran when it was seen; 0 while it is a first guess.
        exact: A change of size has confirmed it.
        least: The lowest quick service time, soon after a start too low by as much as calls differ.
        least_at: How many ran when it was seen.
        trial: The experiment under way.
        tried: The latest experiment.
        trial_at: When it began.
        depth: Experiments with fewer threads that held, one after the other.
        before: The size before the experiment.
        best: The throughput to hold up.
        best_used: CPU seconds per second at it.
        knee: The size found, beyond which throughput stood still.
        knee_throughput: The throughput there.
        retry_at: When it may be doubted.
        fewer_at: When fewer threads may be tried again.
        patience: Seconds from one doubt to the next.
        began_at: When the first call was seen.
        grown_at: When the size last grew.
        done_at: When a call last ended.
        refused_at: When growth was last refused.
        pressed: Seconds for which calls have been held back without a break.
        load: CPU seconds per second of the lane, smoothed.
        load_peak: The most that was of late; it halves every `FADES` seconds.
        gil: Share of looks that found the GIL taken, smoothed; below 0 where unknown.
        certified: Corrected blocking ratio, smoothed; below 0 where unknown.
        raw: Blocking ratio 1 - cpu/wall, smoothed; below 0 before the first call.
        peak: Most calls at once, queued or running, in this bucket.
        peak_before: The same of the bucket before.
        peak_at: When this bucket began.
    """

    clock: float = 0.0
    settle: float = 0.0
    time: float = 0.0
    done: int = 0
    busy: float = 0.0
    used: float = 0.0
    quick: float = 0.0
    rate: float = 0.0
    alone: float = 0.0
    alone_at: int = 0
    exact: bool = False
    least: float = 0.0
    least_at: int = 0
    trial: Trial = Trial.NONE
    tried: Trial = Trial.NONE
    trial_at: float = 0.0
    depth: int = 0
    before: int = 0
    best: float = 0.0
    best_used: float = 0.0
    knee: int = 0
    knee_throughput: float = 0.0
    retry_at: float = 0.0
    fewer_at: float = 0.0
    patience: float = 0.0
    began_at: float = 0.0
    grown_at: float = 0.0
    done_at: float = 0.0
    refused_at: float = -1.0
    pressed: float = 0.0
    load: float = 0.0
    load_peak: float = 0.0
    gil: float = -1.0
    certified: float = -1.0
    raw: float = -1.0
    peak: int = 0
    peak_before: int = 0
    peak_at: float = 0.0

    @property
    def throughput(self) -> float:
        """Calls per second in the reading."""
        return self.done / self.time if self.time else 0.0

    @property
    def service(self) -> float:
        """Service time in the reading, by Little's law; the quick one where it has too few calls."""
        return self.busy / self.done if self.done >= 16 else self.quick

    @property
    def likely_alone(self) -> float:
        """S0, or if that may have been read in a crowd, what the first calls suggest."""
        if self.exact or self.quick < CROWDED * self.least or not self.least:
            return self.alone
        return min(self.alone, 0.6 * CROWDED * self.least)

    @property
    def readable(self) -> bool:
        """Return True if the reading says something about the size."""
        return (self.time >= 0.1 and self.done >= 30) or (self.time >= 1.0 and self.done > 0)


def staff(erlangs: float) -> float:
    """Return how many threads keep `erlangs` of them busy (Halfin and Whitt 1981)."""
    return erlangs + 2.0 * math.sqrt(max(0.0, erlangs))


def is_pressed(state: State, window: Window) -> bool:
    """Return True if calls were held back by the size and by nothing else."""
    return window.queued > 0 and window.running >= state.workers


def reopen(state: DemandState) -> DemandState:
    """Begin a new reading, as after every change of size."""
    settle = min(SETTLE_MAX, state.service)
    return replace(state, settle=settle, time=0.0, done=0, busy=0.0, used=0.0)


def observe(limits: Limits, state: DemandState, window: Window) -> DemandState:
    """Return the state with a window taken in; its size is the old one.

    One new state for four steps: making one is most of what a decision costs.
    """
    seen = {**_tell_time(state, window), **_smooth(state, window), **_hold_peak(state, window)}
    if (is_pressed(state, window) or _is_used(state, window)) and window.running <= state.workers:
        seen |= _read(state, window)
    return _learn_alone(limits, replace(state, **seen), window)


def _tell_time(state: DemandState, window: Window) -> dict[str, Any]:
    clock = state.clock + window.seconds
    pressed = state.pressed + window.seconds if is_pressed(state, window) else 0.0
    done_at = clock if window.completed or not pressed else state.done_at
    began = state.began_at or (state.clock if window.busy or window.completed else 0.0)
    return {"clock": clock, "done_at": done_at, "began_at": began, "pressed": pressed}


def _smooth(state: DemandState, window: Window) -> dict[str, Any]:
    quick, raw = state.quick, state.raw
    if window.completed and window.wall > 0.0:
        weight = window.completed / (window.completed + 16.0)  # by the calls, as Tokio weighs its polls
        mean = window.wall / window.completed
        quick = _mix(quick, mean, max(weight, 0.2)) if quick else mean
        raw = _mix_share(raw, 1.0 - window.cpu / window.wall)
    load = _mix(state.load, window.lane_cpu, 0.3)
    smoothed = {
        "quick": quick,
        "rate": _mix(state.rate, window.completed / window.seconds, min(1.0, window.seconds)),
        "raw": raw,
        "load": load,
        "load_peak": max(load, state.load_peak * 0.5 ** (window.seconds / FADES)),
        "gil": -1.0 if window.gil_share is None else _mix_share(state.gil, window.gil_share),
    }
    if window.beta_certified is not None:
        smoothed["certified"] = _mix_share(state.certified, window.beta_certified)
    return smoothed


def _mix(old: float, new: float, weight: float) -> float:
    return weight * new + (1.0 - weight) * old


def _mix_share(old: float, new: float) -> float:
    new = min(1.0, max(0.0, new))
    return new if old < 0.0 else _mix(old, new, 0.3)


def _hold_peak(state: DemandState, window: Window) -> dict[str, Any]:
    calls, clock = window.running + window.queued, state.clock + window.seconds
    if clock - state.peak_at < PEAK:
        return {"peak": max(state.peak, calls)}
    before = 0 if clock - state.peak_at >= 2 * PEAK else state.peak
    return {"peak": calls, "peak_before": before, "peak_at": clock}


def _is_used(state: DemandState, window: Window) -> bool:
    """Return True if a trial's threads are used: it can be read then, even if they leave nothing queued."""
    return state.trial is Trial.MORE and window.busy > state.before


def _read(state: DemandState, window: Window) -> dict[str, Any]:
    if state.settle > 0.0:
        return {"settle": state.settle - window.seconds}
    full = state.time >= (KEEP if state.done >= ENOUGH else 4 * KEEP) and not state.trial
    keep = 0.5 if full else 1.0
    return {
        "time": keep * state.time + window.seconds,
        "done": int(keep * state.done) + window.completed,
        "busy": keep * state.busy + window.busy * window.seconds,
        "used": keep * state.used + window.lane_cpu * window.seconds,
    }


def _learn_alone(limits: Limits, state: DemandState, window: Window) -> DemandState:
    """Take S0 from moments without contention; a lower one always counts, if enough calls show it.

    Soon after a start or a growth only the short calls have ended, and what they took tells too little.
    """
    if not state.quick or state.trial or not window.completed:
        return state
    state = _note_least(state, window)
    settled = _is_settled(state)
    if not state.alone_at:
        return replace(state, alone=state.quick, alone_at=window.running if settled else 0, exact=False)
    idle = window.running + window.queued <= 0.3 * state.workers
    if idle and state.load < 0.5 * limits.capacity:
        return replace(state, alone=_mix(state.alone, state.quick, 0.1), alone_at=max(1, window.running))
    if state.exact or not settled:
        return state
    if window.completed >= 16 and state.quick < state.alone:
        return replace(state, alone=state.quick, alone_at=window.running)
    if _stayed(state):
        return replace(state, alone=state.service, alone_at=window.running, exact=True)
    return state


def _is_settled(state: DemandState) -> bool:
    """Return True if the latest calls say how long a call takes, and not how long short ones take."""
    since_start, since_growth = state.clock - state.began_at, state.clock - state.grown_at
    return since_start >= min(4.0 * state.quick, 0.5) and since_growth >= min(2.0 * state.quick, 0.2)


def _note_least(state: DemandState, window: Window) -> DemandState:
    enough = window.completed >= 8 or (not state.least and state.alone_at)
    if not enough or (state.least and state.quick >= state.least):
        return state
    return replace(state, least=state.quick, least_at=window.running)


def _stayed(state: DemandState) -> bool:
    """Return True if twice as many threads left the service time as it was: then calls do not hold each other
    up.
    """
    grown = 0 < 1.8 * state.least_at <= state.workers and state.readable
    return grown and state.service < 1.3 * state.least
