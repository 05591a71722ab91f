"""Look at running calls from outside: who waits, who computes, who leaves the GIL free.

Called by the governor with the interpreter's lock held. A running call that is not due costs a tenth of
a microsecond; those that stay as they are, and those of functions known to wait, are due ever more
rarely. The verdict itself is pure (see `control.verdict`); here it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hybridrt.control.interval import LOWEST
from hybridrt.control.verdict import Reading, Verdict, is_still, judge
from hybridrt.observe.functions import BATCH_NS, DETAILED_NS, LONG_NS, SETTLED, Profile
from hybridrt.pool.governing import change_permit_locked, reclaim_batch_locked
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.state import Call, Pool, Worker
from hybridrt.values import Kind

__all__ = ["FIRST_LOOK_NS", "Look", "Sample", "is_to_be_learned", "note_gil", "note_native", "sample_pool"]

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
_WATCH_READS = 300
"""Readings of the clock, some 30 us, for which the CPU clocks of computing calls are watched."""
BRIEF_BATCH = int(BATCH_NS / (LOWEST * 1e9))
"""Length of a function's batches from which one call ends within the shortest switch interval."""
_YOUNG_NS = 100_000
"""Age from which a call can tell whether its function leaves the GIL free."""
_OWN_SHARE = 0.1
"""Share of its age that the first call of a function has computed if it works with native threads. Not
measured."""


@dataclass(slots=True, kw_only=True)
class Look:
    """What one step of the governor knows before it looks at calls; times in nanoseconds.

    Attributes:
        now: The time.
        slept: The governor slept to the end, so that it knows whether the GIL was free then.
        prompt: It was.
        delay: How long the governor waited for it.
        steady: It was free at the step before, too.
        process_cpu: CPU time of the process since the step before.
        switch_interval: The interpreter's.
        gil: Whether there is a GIL.
        busy: Calls found to have computed until now, filled in by the looks.
        holders: Functions whose calls hold a permit, filled in by the looks.
        brief: All running calls end within the shortest switch interval; made False by the looks.
        native: CPU time of native threads since the step before, less what they use in the background.
        asks: How often the kernel's files may still be read.
        soon_ns: When the first call with a short permit may turn out to be long, from now; filled in.
        holding: Workers whose call takes long and keeps back what ended before it, to be released without
            the lock; filled in.
        standing: Calls that waited where it could not be told from within, and had a permit that was taken
            from them; with the CPU time of their threads; filled in.
        plans: Of functions met in this step: the age for the first look, and whether to glance before it.
    """

    now: int
    slept: bool
    prompt: bool
    delay: int
    steady: bool
    process_cpu: int
    switch_interval: int
    gil: bool
    busy: dict[Worker, Call] = field(default_factory=dict)
    holders: set[Profile] = field(default_factory=set)
    brief: bool = True
    native: int = 0
    asks: int = 4
    soon_ns: int = 1 << 62
    holding: list[Worker] = field(default_factory=list)
    standing: list[tuple[Worker, Call, int | None]] = field(default_factory=list)
    plans: dict[Profile, tuple[int, bool]] = field(default_factory=dict)


@dataclass(slots=True)
class Sample:
    """What was seen last of the call that a worker runs; knows the call by its start alone.

    Attributes:
        started_ns: Which call it is about, or which phase of it: when that began.
        call_ns: When the call itself started.
        next_ns: When to look again.
        glances: Until the first look every step sees whether the call has computed ever since it started.
        looked: There was a first look; what follows means something from then on.
    """

    started_ns: int = -1
    call_ns: int = -1
    next_ns: int = 0
    glances: bool = False
    looked: bool = False
    at_ns: int = 0
    cpu_start_ns: int = 0
    cpu_ns: int | None = None
    moved_ns: int = 0
    still: int = 0
    ins: int | None = None
    gap_ns: int = FIRST_LOOK_NS
    judged: bool = False

    def open(self, start_ns: int, cpu_start_ns: int) -> None:
        """Begin with the first look at a call: nothing was seen of it yet."""
        self.looked, self.glances = True, False
        self.at_ns = self.moved_ns = start_ns
        self.cpu_ns = self.cpu_start_ns = cpu_start_ns
        self.still, self.ins, self.gap_ns = 0, None, FIRST_LOOK_NS


def sample_pool(pool: Pool, look: Look, hired: list[Worker]) -> bool:
    """Look at a pool's running calls; return whether anything changed hands."""
    changed, now = False, look.now
    for worker in tuple(pool.crew.workers):
        call = worker.call
        if call is None or worker.probe is None:
            continue
        profile, phase, begun_ns = call.profile, worker.phase, call.started_ns
        if phase is not None:
            if phase.asking is not None:
                continue
            begun_ns = max(begun_ns, phase.begun_ns)
        if worker.permit:
            look.holders.add(profile)
        if profile.batch < BRIEF_BATCH:
            look.brief = False
        sample = worker.sample
        if sample is None or sample.started_ns != begun_ns:
            first_look, glances = _plan(worker, profile, look)
            if not glances and now - begun_ns < first_look:
                continue  # the common case: one of many that sleep
            sample = _meet(worker, call, begun_ns, look)
        if now >= sample.next_ns:
            changed |= _look_when_due(worker, call, sample, look, hired)
        elif sample.glances:
            sample.glances = _glance_at(worker, call, look)
    return changed


def _meet(worker: Worker, call: Call, begun_ns: int, look: Look) -> Sample:
    """Begin to follow a call that was not seen before; they are thousands a second, so this does little."""
    sample: Sample | None = worker.sample
    if sample is None:
        sample = worker.sample = Sample()
    first_look, sample.glances = _plan(worker, call.profile, look)
    sample.started_ns, sample.looked = begun_ns, False
    if sample.call_ns != call.started_ns:
        sample.call_ns, sample.judged = call.started_ns, False
    sample.next_ns = min(begun_ns + first_look, look.now + SETTLED_GAP_NS)
    return sample


def _plan(worker: Worker, profile: Profile, look: Look) -> tuple[int, bool]:
    if worker.permit and profile.gated:  # others wait for its permit
        return FIRST_LOOK_NS, True
    plan = look.plans.get(profile)
    if plan is None:
        plan = look.plans[profile] = _first_look(profile), not profile.sleeps
    return plan


def _look_when_due(worker: Worker, call: Call, sample: Sample, look: Look, hired: list[Worker]) -> bool:
    """Look at a call, unless its function is known to take its time; return whether a permit moved."""
    if not sample.looked:
        due_ns = sample.started_ns + _plan(worker, call.profile, look)[0]
        if look.now < due_ns:  # the function may have become another kind since
            sample.next_ns = min(due_ns, look.now + SETTLED_GAP_NS)
            return False
        phase = worker.phase
        back = phase is not None and phase.begun_ns > call.started_ns
        sample.open(sample.started_ns, phase.cpu_ns if back and phase else worker.cpu_start_ns)
        hired += reclaim_batch_locked(worker)
        if worker.held:
            look.holding.append(worker)
    return _look_at(worker, call, sample, look, hired)


def _first_look(profile: Profile) -> int:
    """Return the age at which a call is looked at: later if its function is known, unless it takes longer."""
    if profile.settled < SETTLED:
        return FIRST_LOOK_NS
    usual = 2 * profile.wall_mean_ns
    if profile.kind is Kind.WAITING:
        return max(KNOWN_LOOK_NS, usual)
    return min(KNOWN_LOOK_NS, max(FIRST_LOOK_NS, usual))


def _glance_at(worker: Worker, call: Call, look: Look) -> bool:
    """See whether a young call has computed ever since it started; return whether to glance again.

    Calls known to wait are glanced at again only while they compute: they are many.
    """
    profile = call.profile
    if not look.slept or profile.wall_mean_ns < DETAILED_NS:
        return True
    age, cpu = look.now - call.started_ns, worker.cpu_so_far()
    if age >= _YOUNG_NS and cpu is not None and 5 * cpu >= 4 * age:
        look.busy[worker] = call
        return True
    return age < _YOUNG_NS or not profile.surely_waits


def is_to_be_learned(profile: Profile) -> bool:
    """Tell whether kind or GIL class of a function are not known for good yet."""
    return profile.settled < SETTLED or profile.gil.share is None


def note_gil(look: Look, now: Callable[[], int]) -> None:
    """Tell what the calls do with the GIL that computed until now.

    The governor has the GIL while it looks. A call whose CPU clock goes on meanwhile computes without it;
    one whose clock stands still may wait for it, or for anything else. That the governor had to wait for
    the GIL proves something only of a call that began before it, where no other function computes.
    """
    if not (look.gil and look.slept and look.busy):
        return
    if look.prompt:
        for call in _computing_now(look.busy, now):
            call.profile.saw_free()
        return
    for call in look.busy.values():
        profile = call.profile
        if call.started_ns < look.now - look.delay and look.holders <= {profile}:
            profile.gil.saw_taken(look.delay, look.switch_interval)


def note_native(look: Look) -> None:
    """Tell what native threads compute beside calls of one function, where no others compute."""
    if len(look.holders) == 1:
        (profile,) = look.holders
        profile.native.saw(look.native, max(0, look.process_cpu - look.native))


def _computing_now(busy: dict[Worker, Call], now: Callable[[], int]) -> list[Call]:
    """Watch the CPU clocks for a moment; nothing here gives the GIL away."""
    begun, before = now(), {worker: worker.cpu_so_far() or 0 for worker in busy}
    for _ in range(_WATCH_READS):
        now()
    passed = now() - begun
    return [
        call for worker, call in busy.items() if 2 * ((worker.cpu_so_far() or 0) - before[worker]) >= passed
    ]


def _look_at(worker: Worker, call: Call, sample: Sample, look: Look, hired: list[Worker]) -> bool:
    matters = worker.permit != NONE or call.unjudged or call.profile.kind is Kind.UNKNOWN
    verdict, reading = _judge(worker, sample, look, matters=matters)
    before = worker.permit
    if verdict is Verdict.WAITS:
        _waits(worker, call, sample, look, hired)
    elif verdict is Verdict.COMPUTES:
        _computes(worker, call, sample, reading, look, hired)
    settled = worker.permit == before and not call.unjudged and (verdict is not Verdict.UNSURE or not matters)
    sample.gap_ns = min(2 * sample.gap_ns, _longest_gap(worker, call, look)) if settled else FIRST_LOOK_NS
    sample.next_ns = look.now + sample.gap_ns
    return worker.permit != before


def _longest_gap(worker: Worker, call: Call, look: Look) -> int:
    if worker.permit != NONE:
        return SETTLED_GAP_NS // 8
    return max(SETTLED_GAP_NS, min(OLD_GAP_NS, (look.now - call.started_ns) // 8))


def _judge(worker: Worker, sample: Sample, look: Look, *, matters: bool) -> tuple[Verdict, Reading]:
    """Tell what a call does; its clock alone is read unless it `matters`.

    A file of the kernel costs several times what the clock does, so a step asks a few times only, and only of
    calls that have a permit to give back or are not known yet.
    """
    assert worker.probe is not None
    reading = _read(worker, sample, look, matters=matters)
    verdict = judge(reading)
    if verdict is Verdict.WAITS and matters:
        if not look.asks:
            return Verdict.UNSURE, reading
        look.asks -= 1
        # It would compute, had it a core; or others compute for it.
        if worker.probe.is_runnable() or _is_held_up(worker, sample, look):
            return Verdict.UNSURE, reading
    return verdict, reading


def _is_held_up(worker: Worker, sample: Sample, look: Look) -> bool:
    """Tell whether a still call lets native threads compute for it, or lacks those of another call."""
    call = worker.call
    if call is None or call.profile.kind is Kind.WAITING:
        return False
    profile, computes = call.profile, 4 * look.native >= look.process_cpu > 0
    if profile.kind is Kind.UNKNOWN:
        used = 0 if sample.cpu_ns is None else sample.cpu_ns - sample.cpu_start_ns
        return computes and used >= _OWN_SHARE * (look.now - call.started_ns)
    return profile.native.drives and (computes or _another_holds(worker, profile))


def _another_holds(worker: Worker, profile: Profile) -> bool:
    others = (other for other in worker.pool.crew.workers if other is not worker and other.permit)
    return any(call.profile is profile for other in others if (call := other.call) is not None)


def _read(worker: Worker, sample: Sample, look: Look, *, matters: bool) -> Reading:
    """Read the worker's clocks and bring its sample up to date."""
    assert worker.probe is not None
    cpu_now = worker.probe.cpu_ns()
    interval = max(1, look.now - sample.at_ns)
    cpu = None if cpu_now is None or sample.cpu_ns is None else cpu_now - sample.cpu_ns
    ins: int | None = None
    if cpu is not None and is_still(interval, cpu):
        sample.still += 1
        ins = _schedule_ins(worker, sample, look, matters=matters)
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


def _schedule_ins(worker: Worker, sample: Sample, look: Look, *, matters: bool) -> int | None:
    """Return how often a still thread was put on a core since it stands still; once, if it is not asked.

    Asked only where the GIL is contended, because otherwise the promptness of the governor tells enough.
    """
    if look.steady:
        return None
    if not matters or not look.asks:
        return 1
    look.asks -= 1
    assert worker.probe is not None
    count = worker.probe.schedule_ins()
    if count is None or sample.ins is None:
        sample.ins, sample.moved_ns = count, look.now
        return None if count is None else 1
    if count != sample.ins:
        moved, sample.ins, sample.moved_ns = count - sample.ins, count, look.now
        return moved
    return 0


def _waits(worker: Worker, call: Call, sample: Sample, look: Look, hired: list[Worker]) -> None:
    known = call.profile.kind, call.unjudged
    call.profile.saw_waiting(first=not sample.judged)
    sample.judged = True
    call.judged_locked()
    if worker.permit != NONE:
        call.profile.misses += 2
        look.standing.append((worker, call, sample.cpu_ns))
    hired += _act_locked(worker, call, NONE, known)


def _computes(
    worker: Worker, call: Call, sample: Sample, reading: Reading, look: Look, hired: list[Worker]
) -> None:
    cpu = reading.cpu if reading.cpu is not None else reading.interval
    if reading.cpu is not None and reading.cpu * 5 >= reading.interval * 4:
        look.busy[worker] = call
    age = look.now - call.started_ns
    left_ns = LONG_NS - (age if sample.cpu_ns is None else sample.cpu_ns - sample.cpu_start_ns)
    long, known = left_ns <= 0, (call.profile.kind, call.unjudged)
    if worker.permit == SHORT and not long:
        look.soon_ns = min(look.soon_ns, left_ns)
    if long and not sample.judged:
        sample.judged = True
        call.profile.saw_computing()
        call.judged_locked()
    if call.profile.leaves_gil:
        permit = FREE
        call.judged_locked()
    elif long:
        permit = LONG
    elif worker.permit == NONE and cpu >= _BURST_NS:
        permit = SHORT
    else:
        permit = worker.permit
    hired += _act_locked(worker, call, permit, known)


def _act_locked(worker: Worker, call: Call, permit: int, known: tuple[Kind, bool]) -> list[Worker]:
    """Give a call its permit, and start what that allows, or what is now known of its function."""
    if permit != worker.permit:
        return change_permit_locked(worker, permit)
    return dispatch_locked(worker.pool) if (call.profile.kind, call.unjudged) != known else []
