"""Look at running calls from outside: who waits, who computes, who leaves the GIL free.

Called by the governor with the interpreter's lock held, O(running calls) at most and less for calls
that stay as they are, which are looked at ever more rarely. The verdict itself is pure (see
`control.verdict`); here it is carried out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybridrt.control.verdict import Reading, Verdict, is_still, judge
from hybridrt.observe.functions import LONG_NS
from hybridrt.pool.governing import change_permit_locked, reclaim_batch_locked
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT

if TYPE_CHECKING:
    from hybridrt.pool.call import Call
    from hybridrt.pool.pool import Pool
    from hybridrt.pool.worker import Worker

__all__ = ["FIRST_LOOK_NS", "Look", "Sample", "sample_pool"]

FIRST_LOOK_NS = 2_000_000
"""Age of a call at the first look: shorter calls need no sampler, their profile knows them."""
SETTLED_GAP_NS = 64_000_000
_BURST_NS = 1_000_000
"""CPU time between two looks from which a call without a permit takes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one step of the governor knows before it looks at calls; times in nanoseconds.

    Attributes:
        now: The time.
        prompt: The governor got the GIL at once when it woke.
        steady: It did so at the step before, too.
        process_cpu: CPU time of the process since the step before.
        switch_interval: The interpreter's.
        computing: Calls that hold a permit for GIL-bound work.
        gil: Whether there is a GIL.
    """

    now: int
    prompt: bool
    steady: bool
    process_cpu: int
    switch_interval: int
    computing: int
    gil: bool


def switch_interval_ns() -> int:
    """Return the interpreter's switch interval."""
    return int(sys.getswitchinterval() * 1e9)


@dataclass(slots=True)
class Sample:
    """What was seen last of the call that a worker runs; knows the call by its start alone."""

    started_ns: int
    cpu_start_ns: int
    at_ns: int
    cpu_ns: int | None
    moved_ns: int
    still: int = 0
    ins: int | None = None
    gap_ns: int = FIRST_LOOK_NS
    next_ns: int = 0
    judged: bool = False


def sample_pool(pool: Pool, look: Look, hired: list[Worker]) -> bool:
    """Look at a pool's running calls; return whether anything changed hands."""
    changed = False
    for worker in tuple(pool.crew.workers):
        call = worker.call
        if call is None or worker.probe is None or look.now - call.started_ns < FIRST_LOOK_NS:
            continue
        sample = worker.sample
        if sample is None or sample.started_ns != call.started_ns:
            start = call.started_ns
            sample = worker.sample = Sample(start, worker.cpu_start_ns, start, worker.cpu_start_ns, start)
            hired += reclaim_batch_locked(worker)
        if look.now >= sample.next_ns:
            changed |= _look_at(worker, call, sample, look, hired)
    return changed


def _look_at(worker: Worker, call: Call, sample: Sample, look: Look, hired: list[Worker]) -> bool:
    reading = _read(worker, sample, look)
    verdict = judge(reading)
    if verdict is Verdict.WAITS and worker.probe is not None and worker.probe.is_runnable():
        verdict = Verdict.UNSURE  # it would compute, had it a core
    before = worker.permit
    if verdict is Verdict.WAITS:
        _waits(worker, call, sample, hired)
    elif verdict is Verdict.COMPUTES:
        _computes(worker, call, sample, reading, look, hired)
    settled = worker.permit == before and not call.unjudged and verdict is not Verdict.UNSURE
    longest = SETTLED_GAP_NS if worker.permit == NONE else SETTLED_GAP_NS // 8
    sample.gap_ns = min(2 * sample.gap_ns, longest) if settled else FIRST_LOOK_NS
    sample.next_ns = look.now + sample.gap_ns
    return worker.permit != before


def _read(worker: Worker, sample: Sample, look: Look) -> Reading:
    """Read the worker's clocks and bring its sample up to date."""
    assert worker.probe is not None
    cpu_now = worker.probe.cpu_ns()
    interval = max(1, look.now - sample.at_ns)
    cpu = None if cpu_now is None or sample.cpu_ns is None else cpu_now - sample.cpu_ns
    ins: int | None = None
    if cpu is not None and is_still(interval, cpu):
        sample.still += 1
        ins = _schedule_ins(worker, sample, look)
    else:
        sample.still, sample.moved_ns, sample.ins = 0, look.now, None
    sample.at_ns, sample.cpu_ns = look.now, cpu_now
    return Reading(
        interval=interval,
        cpu=cpu,
        still=sample.still,
        still_for=look.now - sample.moved_ns,
        prompt=look.steady,
        schedule_ins=ins,
        process_cpu=look.process_cpu,
        switch_interval=look.switch_interval,
    )


def _schedule_ins(worker: Worker, sample: Sample, look: Look) -> int | None:
    """Return how often a still thread was put on a core since it stands still.

    Asked only where the GIL is contended, because reading a file gives the GIL away.
    """
    if look.steady:
        return None
    assert worker.probe is not None
    count = worker.probe.schedule_ins()
    if count is None or sample.ins is None:
        sample.ins, sample.moved_ns = count, look.now
        return None if count is None else 1
    if count != sample.ins:
        moved, sample.ins, sample.moved_ns = count - sample.ins, count, look.now
        return moved
    return 0


def _waits(worker: Worker, call: Call, sample: Sample, hired: list[Worker]) -> None:
    if not sample.judged:
        sample.judged = True
        call.profile.saw_waiting()
    _judged(call)
    hired += change_permit_locked(worker, NONE) if worker.permit else worker.pool.dispatch_locked()


def _computes(
    worker: Worker, call: Call, sample: Sample, reading: Reading, look: Look, hired: list[Worker]
) -> None:
    cpu = reading.cpu if reading.cpu is not None else reading.interval
    if look.gil and reading.cpu is not None:
        _note_gil(call, reading, look)
    age = look.now - call.started_ns
    long = (age if sample.cpu_ns is None else sample.cpu_ns - sample.cpu_start_ns) >= LONG_NS
    if long and not sample.judged:
        sample.judged = True
        call.profile.saw_computing()
        _judged(call)
    if call.profile.releases_gil:
        permit = FREE
        _judged(call)
    elif long:
        permit = LONG
    elif worker.permit == NONE and cpu >= _BURST_NS:
        permit = SHORT
    else:
        return
    if permit != worker.permit:
        hired += change_permit_locked(worker, permit)


def _judged(call: Call) -> None:
    if call.unjudged:
        call.unjudged = False
        call.profile.unjudged -= 1


def _note_gil(call: Call, reading: Reading, look: Look) -> None:
    """Tell from the governor's own wait for the GIL whether a busy call holds it.

    A prompt start proves that nobody held the GIL at that moment, so every call that computed
    through the tick left it free. A late one proves something only of a call that computes alone.
    """
    assert reading.cpu is not None
    if reading.cpu * 5 < reading.interval * 4:
        return
    if look.prompt:
        call.profile.saw_gil(free=True)
    elif look.computing <= 1:
        call.profile.saw_gil(free=False)
