"""Look at running calls from outside: who waits, who computes, who leaves the GIL free.

Called by the governor with the shared lock held. A running call that is not due costs a tenth of
a microsecond; those that stay as they are, and those of functions known to wait, are due ever more
rarely. The verdict itself is pure (see `control.verdict`); here it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridrt.control.interval import LOWEST
from hybridrt.control.verdict import Reading, Verdict, is_still, judge
from hybridrt.observe.functions import BATCH_NS, LONG_NS, SETTLED, Profile
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT
from hybridrt.pool.rebalance import change_permit_locked, reclaim_batch_locked
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.state import Call, Pool, Worker
from hybridrt.values import Kind

__all__ = ["FIRST_LOOK_NS", "Sample", "Tick", "begun", "is_to_be_learned", "note_native", "sample_pool"]

FIRST_LOOK_NS = 2_000_000
"""Age of a call at the first look: shorter calls need no sampler, their profile knows them."""
KNOWN_LOOK_NS = 16_000_000
"""The same where the function is known: at most if it computes, at least if it waits; else twice the usual
time of its calls."""
SETTLED_GAP_NS = 64_000_000
"""The longest time between two looks at a call that stays as it is; an eighth of that if it holds a
permit, of its age if it has none, up to"""
OLD_GAP_NS = 512_000_000
"""this: hundreds of calls that wait for minutes must not keep the governor busy. Not measured."""
_BURST_NS = 1_000_000
"""CPU time between two looks from which a call without a permit takes one."""
_LITTLE_LOOKS = 4
"""Looks in a row, the GIL being free, at which a call had computed, but for less than a quarter of the time:
then it waits again and again, each time for a moment. Not tuned."""
BRIEF_BATCH = int(BATCH_NS / (LOWEST * 1e9))
"""Length of a function's batches from which one call ends within the shortest switch interval."""
_OWN_SHARE = 0.1
"""Share of its age that the first call of a function has computed if it works with native threads. Not
measured."""


@dataclass(slots=True, kw_only=True)
class Tick:
    """What one step of the governor knows before it looks at calls; times in nanoseconds.

    Attributes:
        now: The time.
        slept: The governor slept to the end, so that it knows whether the GIL was free then.
        prompt: It was.
        delay: How long the governor waited for it.
        steady: It was free at the step before, too.
        before: When the step before was.
        process_cpu: CPU time of the process since then.
        switch_interval: The interpreter's.
        gil: Whether there is a GIL.
        holders: Functions whose calls hold a permit, or held one as the step began; filled in by the looks.
        brief: All running calls end within the shortest switch interval; made False by the looks.
        native: CPU time of native threads since the step before, less what they use in the background.
        asks: How often the kernel's files may still be read.
        soon_ns: When the first call with a short permit may turn out to be long, from now; filled in.
        holding: Workers whose call takes long and keeps back what ended before it, to be released without
            the lock; filled in.
        to_start: Workers to be started without the lock; filled in.
        unseen_waits: Calls that waited where it could not be told from within, and had a permit that was
            taken from them; with the CPU time of their threads; filled in.
        first_looks: Of functions met in this step: the age of a call for the first look.
    """

    now: int
    slept: bool
    prompt: bool
    delay: int
    steady: bool
    before: int
    process_cpu: int
    switch_interval: int
    gil: bool
    holders: set[Profile] = field(default_factory=set)
    brief: bool = True
    native: int = 0
    asks: int = 4
    soon_ns: int = 1 << 62
    holding: list[Worker] = field(default_factory=list)
    to_start: list[Worker] = field(default_factory=list)
    unseen_waits: list[tuple[Worker, Call, int | None]] = field(default_factory=list)
    first_looks: dict[Profile, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sample:
    """What was seen last of the call that a worker runs; knows the call by its start alone.

    Attributes:
        started_ns: Which call it is about, or which phase of it: when that began.
        call_ns: When the call itself started.
        next_ns: When to look again.
        looked: There was a first look; what follows means something from then on.
        left: At the last look it had said that it waits.
    """

    started_ns: int = -1
    call_ns: int = -1
    next_ns: int = 0
    looked: bool = False
    left: bool = False
    at_ns: int = 0
    cpu_start_ns: int = 0
    cpu_ns: int | None = None
    moved_ns: int = 0
    still: int = 0
    little: int = 0
    ins: int | None = None
    gap_ns: int = FIRST_LOOK_NS
    judged: bool = False

    def open(self, start_ns: int, cpu_start_ns: int) -> None:
        """Begin with the first look at a call: nothing was seen of it yet."""
        self.looked, self.left = True, False
        self.at_ns = self.moved_ns = start_ns
        self.cpu_ns = self.cpu_start_ns = cpu_start_ns
        self.still, self.little, self.ins, self.gap_ns = 0, 0, None, FIRST_LOOK_NS


def sample_pool(pool: Pool, tick: Tick) -> bool:
    """Look at a pool's running calls; return whether anything changed hands."""
    changed, now = False, tick.now
    for worker in tuple(pool.roster.workers):
        call = worker.call
        if call is None or worker.probe is None:
            continue
        profile, phase, begun_ns = call.profile, worker.phase, call.started_ns
        if phase is not None:
            if phase.asking is not None or phase.within:
                if worker.batch or worker.held:
                    _free_batch(worker, tick)
                continue
            begun_ns = max(begun_ns, phase.begun_ns)
        if worker.permit:
            tick.holders.add(profile)
        if profile.batch < BRIEF_BATCH:
            tick.brief = False
        sample = worker.sample
        if sample is None or sample.started_ns != begun_ns:
            if now - begun_ns < _first_look(worker, profile, tick):
                continue  # the common case: one of many that sleep
            sample = _track(worker, call, begun_ns, tick)
        if now >= sample.next_ns:
            changed |= _look_when_due(worker, call, sample, tick)
    return changed


def _track(worker: Worker, call: Call, begun_ns: int, tick: Tick) -> Sample:
    """Begin to follow a call that was not seen before; they are thousands a second, so this does little."""
    sample: Sample | None = worker.sample
    if sample is None:
        sample = worker.sample = Sample()
    sample.started_ns, sample.looked = begun_ns, False
    if sample.call_ns != call.started_ns:
        sample.call_ns, sample.judged = call.started_ns, False
    sample.next_ns = min(begun_ns + _first_look(worker, call.profile, tick), tick.now + SETTLED_GAP_NS)
    return sample


def begun(worker: Worker, call: Call) -> tuple[int, int]:
    """Return when a running call, or that phase of it, began, and the CPU clock of its thread then."""
    phase = worker.phase
    if phase is not None and phase.begun_ns > call.started_ns:
        return phase.begun_ns, phase.cpu_ns
    return call.started_ns, worker.cpu_start_ns


def _first_look(worker: Worker, profile: Profile, tick: Tick) -> int:
    """Return the age at which a call is looked at."""
    if worker.permit and profile.gated:  # others wait for its permit
        return FIRST_LOOK_NS
    age = tick.first_looks.get(profile)
    if age is None:
        age = tick.first_looks[profile] = _usual_first_look(profile)
    return age


def _look_when_due(worker: Worker, call: Call, sample: Sample, tick: Tick) -> bool:
    """Look at a call, unless its function is known to take its time; return whether a permit moved."""
    if not sample.looked:
        due_ns = sample.started_ns + _first_look(worker, call.profile, tick)
        if tick.now < due_ns:  # the function may have become another kind since
            sample.next_ns = min(due_ns, tick.now + SETTLED_GAP_NS)
            return False
        sample.open(sample.started_ns, begun(worker, call)[1])
        _free_batch(worker, tick)
    return _look_at(worker, call, sample, tick)


def _free_batch(worker: Worker, tick: Tick) -> None:
    """Let the other calls of a batch go: this one takes long, or waits for a permit."""
    tick.to_start += reclaim_batch_locked(worker)
    if worker.held:
        tick.holding.append(worker)


def _usual_first_look(profile: Profile) -> int:
    """Return after how long a call of the function is looked at first: later, unless it takes longer."""
    if profile.settled < SETTLED:
        return FIRST_LOOK_NS
    if profile.kind is Kind.WAITING:
        return max(KNOWN_LOOK_NS, 2 * profile.usual_ns)
    return min(KNOWN_LOOK_NS, max(FIRST_LOOK_NS, 2 * profile.wall_mean_ns))


def is_to_be_learned(profile: Profile) -> bool:
    """Return True if kind or GIL class of a function are not known for good yet."""
    return profile.settled < SETTLED or profile.gil.share is None


def note_native(tick: Tick) -> None:
    """Tell what native threads compute beside calls of one function, where no others compute."""
    if len(tick.holders) == 1:
        (profile,) = tick.holders
        profile.native.saw(tick.native, max(0, tick.process_cpu - tick.native))


def _look_at(worker: Worker, call: Call, sample: Sample, tick: Tick) -> bool:
    matters = worker.permit != NONE or call.unclassified or call.profile.kind is Kind.UNKNOWN
    verdict, reading = _judge(worker, sample, tick, matters=matters)
    left, sample.left = sample.left, worker.phase is not None and worker.phase.left
    if sample.left and not left:  # what it has computed since the last look came before it left
        verdict = Verdict.UNSURE
    before = worker.permit
    if verdict is Verdict.WAITS:
        _waits(worker, call, sample, tick)
    elif verdict is Verdict.COMPUTES:
        _computes(worker, call, sample, reading, tick)
    settled = (
        worker.permit == before and not call.unclassified and (verdict is not Verdict.UNSURE or not matters)
    )
    sample.gap_ns = min(2 * sample.gap_ns, _longest_gap(worker, call, tick)) if settled else FIRST_LOOK_NS
    sample.next_ns = tick.now + sample.gap_ns
    return worker.permit != before


def _longest_gap(worker: Worker, call: Call, tick: Tick) -> int:
    if worker.permit != NONE:
        return SETTLED_GAP_NS // 8
    return max(SETTLED_GAP_NS, min(OLD_GAP_NS, (tick.now - call.started_ns) // 8))


def _judge(worker: Worker, sample: Sample, tick: Tick, *, matters: bool) -> tuple[Verdict, Reading]:
    """Tell what a call does; its clock alone is read unless it `matters`.

    A file of the kernel costs several times what the clock does, so a step asks a few times only, and only of
    calls that have a permit to give back or are not known yet.
    """
    assert worker.probe is not None
    reading = _read(worker, sample, tick, matters=matters)
    verdict = judge(reading)
    if sample.little >= _LITTLE_LOOKS:
        verdict = Verdict.WAITS
    if verdict is Verdict.WAITS and matters:
        if not tick.asks:
            return Verdict.UNSURE, reading
        tick.asks -= 1
        if _lacks_core(worker, sample, reading) or _is_held_up(worker, sample, tick):
            return Verdict.UNSURE, reading
    return verdict, reading


def _lacks_core(worker: Worker, sample: Sample, reading: Reading) -> bool:
    """Return True if a still call may only lack a core.

    Its thread is ready to run. Or it has got a core meanwhile, and sleeps because it wants the GIL, which the
    governor has while it looks: then it has used some CPU time to ask for it, since its clock was read or
    since the look before. A call that waits has used none.
    """
    probe = worker.probe
    assert probe is not None
    if not probe.is_runnable() and probe.cpu_ns() == sample.cpu_ns:
        return bool(reading.cpu) and sample.little < _LITTLE_LOOKS
    sample.still = sample.little = 0
    return True


def _is_held_up(worker: Worker, sample: Sample, tick: Tick) -> bool:
    """Return True if a still call lets native threads compute for it, or lacks those of another call."""
    call = worker.call
    if call is None or call.profile.kind is Kind.WAITING:
        return False
    profile, computes = call.profile, 4 * tick.native >= tick.process_cpu > 0
    if profile.kind is Kind.UNKNOWN:
        used = 0 if sample.cpu_ns is None else sample.cpu_ns - sample.cpu_start_ns
        return computes and used >= _OWN_SHARE * (tick.now - call.started_ns)
    return profile.native.drives and (computes or _another_holds(worker, profile))


def _another_holds(worker: Worker, profile: Profile) -> bool:
    """Return True if another call of the function has a permit, and was not seen to stand still, too."""
    others = (other for other in worker.pool.roster.workers if other is not worker and other.permit)
    return any(
        call.profile is profile and not _stands_still(other, call)
        for other in others
        if (call := other.call) is not None
    )


def _stands_still(worker: Worker, call: Call) -> bool:
    sample: Sample | None = worker.sample
    return sample is not None and sample.looked and sample.call_ns == call.started_ns and sample.still > 0


def _read(worker: Worker, sample: Sample, tick: Tick, *, matters: bool) -> Reading:
    """Read the worker's clocks and bring its sample up to date."""
    assert worker.probe is not None
    cpu_now = worker.probe.cpu_ns()
    interval = max(1, tick.now - sample.at_ns)
    cpu = None if cpu_now is None or sample.cpu_ns is None else cpu_now - sample.cpu_ns
    ins: int | None = None
    if cpu is not None and is_still(interval, cpu):
        sample.still += 1
        ins = _schedule_ins(worker, sample, tick, matters=matters)
    else:
        sample.still, sample.moved_ns, sample.ins = 0, tick.now, None
    little = tick.steady and cpu is not None and 4 * cpu < interval
    sample.little = sample.little + 1 if little else 0
    sample.at_ns, sample.cpu_ns = tick.now, cpu_now
    return Reading(
        # Where threads have no clock, that of the process is asked, which counts from the step before.
        interval=interval if cpu is not None else max(1, tick.now - tick.before),
        cpu=cpu,
        still=sample.still,
        still_for=tick.now - sample.moved_ns,
        prompt=tick.steady,
        schedule_ins=ins,
        process_cpu=tick.process_cpu,
        switch_interval=tick.switch_interval,
    )


def _schedule_ins(worker: Worker, sample: Sample, tick: Tick, *, matters: bool) -> int | None:
    """Return how often a still thread was put on a core since it stands still; once, if it is not asked.

    Asked only where the GIL is contended, because otherwise the promptness of the governor tells enough.
    """
    if tick.steady:
        return None
    if not matters or not tick.asks:
        return 1
    tick.asks -= 1
    assert worker.probe is not None
    count = worker.probe.schedule_ins()
    if count is None or sample.ins is None:
        sample.ins, sample.moved_ns = count, tick.now
        return None if count is None else 1
    if count != sample.ins:
        moved, sample.ins, sample.moved_ns = count - sample.ins, count, tick.now
        return moved
    return 0


def _waits(worker: Worker, call: Call, sample: Sample, tick: Tick) -> None:
    known = call.profile.kind, call.unclassified
    call.profile.saw_waiting(first=not sample.judged)
    sample.judged = True
    call.classified_locked()
    if worker.permit != NONE:
        call.profile.misses += 2
        tick.unseen_waits.append((worker, call, sample.cpu_ns))
    tick.to_start += _act_locked(worker, call, NONE, known)


def _computes(worker: Worker, call: Call, sample: Sample, reading: Reading, tick: Tick) -> None:
    cpu = reading.cpu if reading.cpu is not None else reading.interval
    age = tick.now - call.started_ns
    left_ns = LONG_NS - (age if sample.cpu_ns is None else sample.cpu_ns - sample.cpu_start_ns)
    long, known = left_ns <= 0, (call.profile.kind, call.unclassified)
    if worker.permit == SHORT and not long:
        tick.soon_ns = min(tick.soon_ns, left_ns)
    if long and not sample.judged:
        sample.judged = True
        call.profile.saw_computing()
        call.classified_locked()
    if call.profile.leaves_gil:
        permit = FREE
        call.classified_locked()
    elif long:
        permit = LONG
    elif worker.permit == NONE and cpu >= _BURST_NS:
        permit = SHORT
    else:
        permit = worker.permit
    tick.to_start += _act_locked(worker, call, permit, known)


def _act_locked(worker: Worker, call: Call, permit: int, known: tuple[Kind, bool]) -> list[Worker]:
    """Give a call its permit, and start what that allows, or what is now known of its function."""
    if permit != worker.permit:
        return change_permit_locked(worker, permit)
    return dispatch_locked(worker.pool) if (call.profile.kind, call.unclassified) != known else []
