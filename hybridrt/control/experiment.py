"""Experiments with the size: begun under backlog, kept only if throughput holds or rises.

A reading of k calls is uncertain by some 1/sqrt(k). A trial ends as soon as its result lies clearly on
one side; one that costs throughput is therefore over quickly, one that costs nothing may take longer.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hybridrt.control.knee import CROWDED, DemandState, Trial, is_pressed, staff
from hybridrt.control.veto import FULL, crowds_gil, is_brief, outdoes_gil
from hybridrt.control.window import Limits, Window
from hybridrt.values import Reason

__all__ = ["begin", "is_crowded", "judge", "try_uncrowding"]

HOLDS = 0.95
"""Share of the throughput that fewer threads must keep up."""
GAIN = 0.35
"""Share of the added threads that must show as added throughput."""
SMALL_GAIN = 0.1
"""The same where calls are brief, and where they compute without the GIL while there are cores to do so."""
ENOUGH = 200
"""Calls after which a reading is taken as it is."""
LONG = 1.5
"""Seconds after which it is."""
AT_LEAST = 0.4
"""Seconds below which it is not, however many they are."""
FEW = 40
"""Calls below which it says nothing."""
LAST = 5.0
"""Seconds after which a trial ends, whatever it has seen."""
CROWD = 6
"""Running calls below which the law does not ask whether they hold each other up."""
SLOW = 20.0
"""Calls per second below which there are too few to ask."""
GIVE_UP = 4.0
"""Seconds after which a trial without a reading ends: the backlog is gone."""
SHARP = 0.6
"""Share of the threads left off that must show as lost throughput, if no call waited for another."""
SOON = 1.0
"""Seconds after an unclear result with fewer threads until more are tried."""
QUIET = 0.5
"""Seconds without a refusal until more threads are tried: a hiccup of the machine looks like room."""
RECENT = 30.0
"""Seconds from the begin of an experiment to that of the next for which the load counts as the same. Not
measured."""
PATIENCE_GROWTH = 16.0
OVERSIZED = 1.3
"""Times what the readings call for from which fewer threads are tried without delay."""


def begin(limits: Limits, state: DemandState, window: Window, veto: Reason | None) -> DemandState:
    """Return the state with a trial begun, or with the reason why the size stays."""
    reason = veto or (Reason.AT_MAX if state.workers >= limits.highest else Reason.KNEE)
    state = state if state.reason is reason else replace(state, reason=reason)
    if not state.readable or (state.knee and state.clock < state.retry_at):
        return state
    wanted, known = staff(state.throughput * state.likely_alone), state.alone_at > 0
    if crowds_gil(limits, state, window) and window.knee is not None:
        wanted, known = staff(window.knee), True
    oversized = known and state.workers >= OVERSIZED * wanted
    fewer = state.clock >= state.fewer_at and _is_steady(state)
    if fewer and oversized and (veto is not None or state.exact or state.knee):
        return _try_fewer(limits, state, max(wanted, state.workers / 4))
    refused = veto is not None or state.clock - state.refused_at < QUIET
    more = not refused and state.workers < limits.highest
    if more and (state.exact or state.tried is not Trial.MORE or not fewer):
        return _try_more(limits, state, window)
    if fewer and not state.exact:
        return _try_fewer(limits, state, 0.7 * state.workers)
    return state


def is_crowded(limits: Limits, state: DemandState, window: Window) -> bool:
    """Return True if the running calls seem to hold each other up, with none queued."""
    if window.running < CROWD or state.rate < SLOW or not state.alone_at:
        return False
    return _is_full(limits, state) or window.running >= 1.5 * staff(state.rate * state.likely_alone)


def _is_full(limits: Limits, state: DemandState) -> bool:
    """Return True if the GIL, or the cores, are busy and the number of calls too many is not known yet."""
    return not state.exact and state.load >= FULL * limits.capacity


def try_uncrowding(limits: Limits, state: DemandState, window: Window) -> DemandState:
    """Begin a trial with fewer threads than run; the rest of the calls then queues."""
    wanted = staff(state.rate * state.likely_alone)
    if _is_full(limits, state):
        wanted = 0.5 * window.running
    workers = limits.clamp(math.ceil(wanted if state.exact else max(wanted, window.running / 2)))
    if state.clock < max(state.retry_at, state.fewer_at) or workers >= state.workers or not state.rate:
        return state
    return replace(
        state,
        workers=workers,
        reason=Reason.PROBE,
        trial=Trial.FEWER,
        tried=Trial.FEWER,
        trial_at=state.clock,
        before=max(workers + 1, min(window.running, state.workers)),
        best=state.rate,
        best_used=state.load,
        streak=0,
    )


def _try_fewer(limits: Limits, state: DemandState, target: float) -> DemandState:
    workers = limits.clamp(min(math.ceil(target), max(1, int(0.8 * state.workers))))
    if workers >= state.workers:
        return replace(state, exact=True)
    return _start(state, Trial.FEWER, workers)


def _try_more(limits: Limits, state: DemandState, window: Window) -> DemandState:
    if state.knee and not (state.done >= ENOUGH or state.time >= LONG):
        return state
    factor = 2.0 if not state.knee else 1.25 if state.exact else 1.5
    wanted = min(math.ceil(factor * state.workers), state.workers + window.queued)
    return _start(state, Trial.MORE, limits.clamp(wanted))


def _is_steady(state: DemandState) -> bool:
    return state.done >= 100 or state.time >= 1.0


def _start(state: DemandState, trial: Trial, workers: int) -> DemandState:
    chained = trial is Trial.FEWER and state.depth > 0 and state.clock - state.trial_at < RECENT
    best = max(state.throughput, 0.98 * state.best) if chained else state.throughput
    return replace(
        state,
        workers=workers,
        reason=Reason.PROBE,
        trial=trial,
        tried=trial,
        trial_at=state.clock,
        before=state.workers,
        best=best,
        best_used=state.used / state.time,
    )


def judge(patience: float, limits: Limits, state: DemandState, window: Window) -> DemandState:
    """Return the state after another window of a trial."""
    state = replace(state, reason=Reason.PROBE)
    if state.clock - state.trial_at > GIVE_UP and not is_pressed(state, window):
        return _give_up(state)
    if state.time < 0.1 or not state.done or not state.best:
        return state if state.clock - state.trial_at < 2 * LAST else _hold(patience, state, state.before)
    ratio, doubt = _compare(limits, state)
    final = _is_final(state)
    if final and state.done < FEW:
        held = _hold(patience, state, state.before)
        return _learn_slower(patience, held, state) if _each_did_its_share(state, ratio) else held
    if state.trial is Trial.FEWER:
        return _judge_fewer(patience, limits, state, ratio, doubt, final)
    return _judge_more(patience, limits, state, ratio, doubt, final)


def _is_final(state: DemandState) -> bool:
    """Return True if the reading is taken as it is; a small change of size takes longer to show."""
    fine = state.workers < 1.5 * state.before and state.trial is Trial.MORE
    enough, long = (2 * ENOUGH, 2 * LONG) if fine else (ENOUGH, LONG)
    if state.time >= long and state.done >= FEW:
        return True
    return state.time >= LAST or (state.done >= enough and state.time >= AT_LEAST)


def _give_up(state: DemandState) -> DemandState:
    """The backlog is gone: stay with fewer threads, and with more only if those before were too few."""
    needed = state.trial is Trial.FEWER or state.rate > state.best
    return _end(state, state.workers if needed else state.before)


def _compare(limits: Limits, state: DemandState) -> tuple[float, float]:
    """Return throughput as a share of that before, and how uncertain it is."""
    ratio = state.throughput / state.best
    doubt = 1.2 / math.sqrt(state.done) + 0.02
    if state.trial is Trial.FEWER and state.best_used >= FULL * limits.capacity > 0.0 < state.used:
        # What fills the GIL is a steadier witness than calls.
        return state.used / state.time / state.best_used, min(doubt, 0.02 + 0.03 / math.sqrt(state.time))
    return ratio, doubt


def _each_did_its_share(state: DemandState, ratio: float) -> bool:
    """Return True if throughput fell with the threads: then no call waited for another."""
    return state.trial is Trial.FEWER and 1.0 - ratio >= SHARP * (1.0 - state.workers / state.before)


def _learn_slower(patience: float, held: DemandState, state: DemandState) -> DemandState:
    """Calls take longer than they did when the knee was found: too few end to be exact, but it is none."""
    return replace(
        held,
        alone=state.service,
        alone_at=state.workers,
        least=state.service,
        least_at=state.workers,
        exact=False,
        knee=0,
        patience=patience,
        fewer_at=state.clock + patience,
    )


def _judge_fewer(
    patience: float, limits: Limits, state: DemandState, ratio: float, doubt: float, final: bool
) -> DemandState:
    if ratio - doubt > HOLDS or (final and ratio >= HOLDS):
        return _keep_fewer(state)
    if ratio + 2.0 * doubt < HOLDS or final:
        return _reject_fewer(patience, limits, state, ratio)
    return state


def _keep_fewer(state: DemandState) -> DemandState:
    """Those threads were useless; look again from here."""
    alone = min(state.alone, state.service)
    kept = replace(_end(state, state.workers), alone=alone, alone_at=state.workers, depth=state.depth + 1)
    return replace(kept, knee=state.workers, knee_throughput=state.throughput, retry_at=state.clock)


def _reject_fewer(patience: float, limits: Limits, state: DemandState, ratio: float) -> DemandState:
    """Too few. Where each thread counted, no call waited for another: S0 is exact, and with it the knee."""
    wait = max(patience, state.patience)
    state = replace(state, fewer_at=state.clock + wait)
    alone_now = _each_did_its_share(state, ratio) and not 0.0 < CROWDED * state.least < state.service
    alone = state.service if alone_now else min(state.alone, state.service)
    if not alone_now:
        workers = limits.clamp(min(state.before, math.ceil(staff(state.workers / ratio))))
        return replace(_hold(patience, state, workers), alone=alone, retry_at=state.clock + SOON)
    wanted = math.ceil(staff(state.best * alone))
    workers = limits.clamp(max(state.workers + 1, min(2 * state.before, wanted)))
    # No call waited for another before either: nothing says that more threads would not do more.
    useful = not state.knee and state.best * alone >= 0.85 * state.before
    state = replace(state, alone=alone, alone_at=state.workers, exact=True, depth=0)
    if useful:
        return replace(_end(state, workers), knee=0, patience=patience)
    return _hold(patience, state, workers)


def _judge_more(
    patience: float, limits: Limits, state: DemandState, ratio: float, doubt: float, final: bool
) -> DemandState:
    used = max(state.before, min(state.workers, state.busy / state.time))
    added = used / state.before - 1.0
    spare = outdoes_gil(limits, state) and state.best_used < FULL * limits.cores
    needed = 1.0 + (SMALL_GAIN if spare or is_brief(state) else GAIN) * added
    if ratio - doubt > needed or (final and ratio >= needed):
        return _keep_more(patience, state, clear=added >= 0.5 and ratio - doubt >= 1.0 + 0.7 * added)
    if ratio + 2.0 * doubt < needed or final:
        held = _hold(patience, state, state.before)
        if state.exact or state.clock < state.fewer_at:
            return held
        return replace(held, retry_at=state.clock, patience=state.patience)  # fewer are tried next
    return state


def _keep_more(patience: float, state: DemandState, *, clear: bool) -> DemandState:
    """More threads did more; if each of them did its share, no call waits for another: S0 is this."""
    kept = _end(state, state.workers)
    if clear:
        alone, here = state.service, state.workers
        kept = replace(kept, alone=alone, alone_at=here, least=max(alone, state.least), least_at=here)
        return replace(kept, knee=0, patience=patience, exact=False)
    if not state.knee:
        return replace(kept, patience=patience)
    return replace(
        kept, knee=state.workers, knee_throughput=state.throughput, retry_at=state.clock, patience=patience
    )


def _end(state: DemandState, workers: int) -> DemandState:
    return replace(state, workers=workers, trial=Trial.NONE, reason=Reason.PROBE)


def _hold(patience: float, state: DemandState, knee: int) -> DemandState:
    """End the trial and stay at a knee, the longer the more often it was found."""
    now = min(PATIENCE_GROWTH * patience, max(patience, state.patience))
    return replace(
        _end(state, knee),
        knee=knee,
        knee_throughput=state.best,
        retry_at=state.clock + now,
        patience=2.0 * now,
        depth=0,
        reason=Reason.KNEE,
    )
