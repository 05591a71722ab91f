"""Function profiles: what a function costs, and what kind it is.

One profile per code object and executor; see `profiles`. Running sums make the statistics; two
windows of calls make the kind. Everything is O(1) a call. The shared lock protects it.

The blocking part of a call is its wall time less its CPU time, its wait for a core and its wait for
the GIL. The kernel tells the second of them, and bounds the third: a thread that waits for the GIL
wakes at least once a switch interval, so it waited for no longer than that for each time it blocked.
Of calls long enough this is read (of some of them, because reading costs 5 us and gives the GIL away)
and averaged over the last windows: the intrinsic wait w0. Where the bound for the GIL is most of it,
w0 is what a quieter window has shown, if the calls were blocked for as long as that; where it is many times
their CPU time, calls that were let run at once may be what they wait for, so they run one at a time for a
while to show it.

Shorter calls, and platforms that do not tell, have only wall less CPU time. A call that had to wait
for the GIL reads as blocked there, so a single call proves nothing: w0 is then the *least* blocking
part seen in the last two windows, which a function reaches only when it really blocks. The raw ratio,
the paper's beta, is only reported and never used to choose a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from hybridrt.observe.gil_class import GilLedger, evidence_of, gil_class
from hybridrt.observe.native import NativeLedger
from hybridrt.observe.overlap import OverlapTrial
from hybridrt.observe.wait_sites import WaitsPerCall
from hybridrt.values import FunctionStatistics, Kind

__all__ = [
    "LONG_NS",
    "MARKS",
    "PHASE_NS",
    "SETTLED",
    "SLEEPS_NS",
    "WINDOW",
    "Copied",
    "Profile",
    "blocking_ratio",
    "copy_of",
    "summary_of",
]

LONG_NS = 20_000_000
"""A call that computes for longer is long: four of CPython's default switch intervals."""
WAITING_SHARE = 0.3
"""Corrected intrinsic blocking ratio from which a function waits: the published veto's threshold, at
which one GIL has room for 1.4 calls."""
STAYS_WAITING_SHARE = 0.2
"""And until which it does so, that noise does not move it to and fro."""
RAW_WAITING_SHARE = 0.7
"""The same for calls of which only wall and CPU time are known. Two computing calls at once read 0.5."""
GAIN = 1.15
"""CPU seconds per second from which several computing calls at once are worth it: one alone gets 1."""
_AT_ONCE = 1.5
_TRY_AFTER = 256
"""Calls on average that a trial needs at once, and calls from one that failed to the next, at first."""
_GROWN = 2.0
"""Times the CPU time of a call alone from which the arguments have become larger: that is learned anew."""
_FADING = 1.02
"""What the least CPU time of a call grows by from window to window, so that it can be learned anew."""
WAITING_NS = 50_000
"""A shorter intrinsic wait is noise of the clocks. Not measured."""
DETAILED_NS = 100_000
"""Mean wall time from which one call in four is asked for its waits for core and GIL."""
ALL_DETAILED_NS = 5_000_000
"""Mean wall time from which all are, until the kind has settled."""
BATCH_CALL_NS = 1_000_000
"""Short functions whose calls take less go to a worker in batches, those that are queued: handing each
over and waking the loop for it costs a good part of that."""
BATCH_NS = 2_000_000
"""What a batch should last at most."""
BATCH_MAX = 256
CPU_LOOK_NS = 20_000
"""Time from one reading of the CPU clock to the next in a batch, at least. A call that ends sooner has waited
for less than counts; see `WAITING_NS`."""
_HARDLY, _DOUBT = 16, 0.5
"""In a crowd of calls that are not short, what is left of w0 after a window with one that blocked for no
sixteenth of it: a function that once was taken for a waiting one makes the crowd that hides the truth."""
_CROWD, _ALONE_AFTER, _ALONE_GROWTH = 8, 64, 4
"""Calls that are not short, wait for the GIL for so many times their CPU time, and were not seen to wait
otherwise lately are a crowd: what they block by themselves cannot be seen in it. After so many calls it is
taken apart, so that they are judged one at a time, and the time after that so many times later. Fewer calls
are one, too, if nothing says that they wait but what was seen before, as of a call in which the machine stood
still: they would hide that for ever. None is tuned."""
_STILL = 256
"""Calls for which it counts that one was seen to wait: the function may compute by now. Not tuned."""
WINDOW = 16
SLEEPS_NS = 100_000
"""CPU time below which the calls of a waiting function need not be watched while they are young."""
SETTLED = 4
"""Windows of one kind after which one call in eight is asked: each is made to give the GIL away twice."""
MARKS = 16
"""Windows after which a function whose calls have not said any more that they wait is looked at anew: more
than a crowd takes that came at once and now ends. Not tuned."""
PHASE_NS = 200_000
"""CPU time of a waiting call from which its computing phases need permits: handing one on takes up to a
tenth of a millisecond. With half of it, 256 calls that wait 20 ms and compute for 0.2 did 0.76 times as many
per second; medians of three."""
HOLD_NS = 2_000_000
"""CPU time of a call that may hold the GIL, from which a loop goes first: what it may be late, as a rule."""
UNSEEN_NS = 1_000_000
"""Time of calls without CPU, from which it is worth a look where they wait, if it is most of their time."""
_MISSES, _GATE_AGAIN = 16, 1024
"""Permits that were taken from calls which waited unseen, each counted twice and less the waits that were
seen, from which a function gets none for its phases, and the calls for which that holds. Not measured."""
_SEEN_ENOUGH = 4
"""Running calls seen to wait, and none to compute, until the rest of a function may start."""


class Profile:
    """What is known about one function on one executor."""

    __slots__ = (
        "alone_at", "alone_patience", "batch", "blocked_calls", "blocked_low", "blocked_previous",
        "calls", "calls_before", "computed_calls", "corrected", "cpu_alone_ns", "cpu_before",
        "cpu_mean_ns", "cpu_ns", "detail_mask", "detailed", "ended_ns", "failed", "gate_at", "gated", "gil",
        "key", "kind", "marks", "may_hold", "misses", "name", "native", "opening_ns", "opens", "overlap",
        "owner", "parallel", "parallel_sums", "patience", "prelude", "puzzling",
        "queue_wait_ns",
        "resolves", "seen_waiting", "served_ns", "settled", "sited", "still_until", "try_at", "turn_at",
        "unclassified", "wait_mean_ns", "wall_before", "wall_ns",
    )  # fmt: skip

    def __init__(self, key: Any, name: str, *, resolves: bool = False) -> None:
        self.key = key
        self.name = name
        self.resolves = resolves
        """It resolves names for asyncio, in a lane of its own."""
        self.owner: object = None
        """Where it is kept; None once it was dropped."""
        self.kind = Kind.UNKNOWN
        self.gated = False
        """It waits and computes by turns, so that each phase is worth a permit of its own."""
        self.marks = 0
        """Windows until the function is looked at anew, unless a call shows again from within where it waits:
        at a known site, or by `blocking()`. 0 if none has."""
        self.puzzling = False
        """It waits and computes by turns, or may do so, and it is not known where it waits."""
        self.opens = False
        """The first phase of a call is worth a permit, too, by `opening_ns`."""
        self.may_hold = False
        """A call of it may keep the GIL for so long that a loop should go first."""
        self.prelude = False
        """Something is to be done before a call of it starts."""
        self.sited: WaitsPerCall | None = None
        """Its calls come to learned sites, where those are seen by a profile function."""
        self.opening_ns = 0
        """About the CPU time until a call says for the first time that it waits."""
        self.misses = self.gate_at = 0
        """Permits taken from calls that waited at an unknown place, less the waits that were seen, and the
        calls after which phases are tried again if there were too many."""
        self.calls = self.failed = 0
        self.wall_ns = self.cpu_ns = self.queue_wait_ns = 0
        self.batch = 1
        """How many queued calls of the function may go to a worker at once."""
        self.detail_mask = _NEVER_AGAIN
        """A call is asked for its waits if the number of calls before it has none of these bits."""
        self.detailed = (0, 0, 0, 0)
        """Of the calls asked lately: how many, their CPU time, and how long they were blocked at least
        and waited for the GIL at most."""
        self.cpu_mean_ns = self.wait_mean_ns = 0
        """CPU time and intrinsic wait w0 of a call, by the last windows."""
        self.served_ns = 0
        """Mean time of the calls asked lately, without their waits for a core; 0 if none was."""
        self.settled = 0
        """Windows in a row that gave the same kind."""
        self.corrected = False
        """The calls were asked, so that w0 has neither their waits for the GIL nor those for a core."""
        self.unclassified = 0
        """Running calls of an unknown function of which nothing is known yet."""
        self.blocked_calls = self.computed_calls = self.seen_waiting = 0
        """Calls that were seen from outside to wait, or to compute; and to wait since the last turn."""
        self.still_until = 0
        """Calls until which it counts that a running call was seen to wait, whatever it did before."""
        self.gil = GilLedger()
        self.native = NativeLedger()
        self.parallel: float | None = None
        """CPU seconds per second that several calls at once got; None before they were tried."""
        self.parallel_sums = (0, 0)
        """Calls that ended in this window while they might run at once, and how many did, in sum."""
        self.overlap: OverlapTrial | None = None
        """Trials of running several calls at once although they seem to compute; None until one may help."""
        self.ended_ns = 0
        """When the last call ended of the window before."""
        self.cpu_alone_ns = 0.0
        """CPU time of a call where none disturbs it: the least of the last windows."""
        self.try_at, self.patience = 0, _TRY_AFTER
        """Calls after which several at once are tried again, or a trial has paid; and how many later the
        time after that."""
        self.alone_at, self.alone_patience = 0, _ALONE_AFTER
        """Calls after which a crowd is taken apart, and how many later it is the next time."""
        self.calls_before = self.cpu_before = self.wall_before = 0
        self.blocked_low = self.blocked_previous = _NEVER
        self.turn_at = 1

    def record(
        self,
        wall_ns: int,
        cpu_ns: int,
        queue_wait_ns: int,
        run_delay_ns: int = 0,
        gil_wait_ns: int | None = None,
        ended_ns: int = 0,
    ) -> None:
        """Take in a finished call.

        Args:
            wall_ns: From start to end.
            cpu_ns: CPU time of its thread.
            queue_wait_ns: From submission to start.
            run_delay_ns: How long it was ready and had no core, if it was asked.
            gil_wait_ns: How long it can have waited for the GIL at most; None if it was not asked.
            ended_ns: When it ended, on the clock of `wall_ns`; 0 where short calls may not overlap.
        """
        self.calls += 1
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self.queue_wait_ns += queue_wait_ns
        least = blocked = wall_ns - cpu_ns - run_delay_ns
        if gil_wait_ns is not None:
            calls, cpu, wait, gil = self.detailed
            self.detailed = (calls + 1, cpu + cpu_ns, wait + blocked - gil_wait_ns, gil + gil_wait_ns)
            least = wall_ns - cpu_ns  # of the delay a part is that of asking: too much for a single call
        if least < self.blocked_low:
            self.blocked_low = least
        if self.calls >= self.turn_at:
            self._turn(ended_ns)

    def record_batch(
        self,
        calls: int,
        wall_ns: int,
        cpu_ns: int,
        queue_wait_ns: int,
        least_blocked_ns: int,
        ended_ns: int = 0,
    ) -> None:
        """Take in calls that ran back to back, the last of which ended at `ended_ns`; see `record`."""
        # First, because `record` may close the window. It takes the blocking part of the whole batch for
        # that of a call: harmless, because only the least counts, and a batch has no less than its least.
        self.blocked_low = min(self.blocked_low, least_blocked_ns)
        self.calls += calls - 1
        self.record(wall_ns, cpu_ns, queue_wait_ns, ended_ns=ended_ns)

    def _turn(self, ended_ns: int) -> None:
        """Close a window: choose the kind anew from this one and the one before.

        The first window is the first call alone.
        """
        calls = self.calls - self.calls_before
        cpu_mean = (self.cpu_ns - self.cpu_before) / calls
        wall_mean = (self.wall_ns - self.wall_before) / calls
        self.calls_before, self.cpu_before, self.wall_before = self.calls, self.cpu_ns, self.wall_ns
        self.turn_at = self.calls + WINDOW
        before, self.kind = self.kind, self._weigh(calls, cpu_mean, wall_mean)
        if self.kind is Kind.WAITING and self._waits_by_trial():
            self.kind, self.wait_mean_ns = Kind.SHORT, 0
        if ended_ns and self.kind is Kind.SHORT and cpu_mean < BATCH_CALL_NS:
            self._try_overlap(before, calls, min(wall_mean, self.served_ns or wall_mean), cpu_mean, ended_ns)
        self._tell_phases(cpu_mean, wall_mean)
        self.ended_ns = ended_ns
        self.settled = self.settled + 1 if self.kind is before else 0
        self.detail_mask = _detail_mask(wall_mean, settled=self.settled >= SETTLED)
        short = self.kind is Kind.SHORT and wall_mean < BATCH_CALL_NS
        self.batch = min(BATCH_MAX, int(BATCH_NS / max(1.0, wall_mean))) if short else 1

    def _tell_phases(self, cpu_mean: float, wall_mean: float) -> None:
        """Judge whether it waits and computes by turns, so that its phases are worth permits."""
        computes = self.kind is Kind.WAITING and self.cpu_mean_ns >= PHASE_NS
        unseen = wall_mean - cpu_mean >= UNSEEN_NS and 2 * cpu_mean < wall_mean
        self.puzzling = not self.marks and (computes or unseen)
        self.gated = computes and self.marks > 0 and not self._misses()
        if self.gated:
            self.marks -= 1
        self.opens = self.gated and self.opening_ns >= PHASE_NS
        self.may_hold = cpu_mean >= HOLD_NS and self.gil.may_hold and not self.leaves_gil
        self.prelude = self.opens or self.may_hold

    def _misses(self) -> bool:
        """Return True if its calls wait where that cannot be told from within, so that permits do harm."""
        if self.misses < _MISSES:
            return False
        if self.calls >= self.gate_at:
            tried, self.gate_at = self.gate_at, self.calls + _GATE_AGAIN
            self.misses = _MISSES - 2 if tried else self.misses
        return self.misses >= _MISSES

    def _weigh(self, calls: int, cpu_mean: float, wall_mean: float) -> Kind:
        """Estimate the intrinsic wait, and return the kind that follows."""
        least = max(0, min(self.blocked_low, self.blocked_previous))
        self.blocked_previous, self.blocked_low = self.blocked_low, _NEVER
        asked, cpu_asked, wait_asked, gil_asked = self.detailed
        fading = (asked // 2, cpu_asked // 2, wait_asked // 2, gil_asked // 2)
        self.detailed = fading if asked > 1 else (0, 0, 0, 0)
        share = STAYS_WAITING_SHARE if self.kind is Kind.WAITING else WAITING_SHARE
        if asked:
            cpu_mean, wait = cpu_asked / asked, max(0.0, wait_asked / asked)
            self.served_ns = (cpu_asked + wait_asked + gil_asked) // asked
            contended = 0 if self.gil.releases else gil_asked  # by others, where it leaves the GIL itself
            computed = cpu_asked / max(1, cpu_asked, cpu_asked + wait_asked + contended)
            self._judge_trial(cpu_mean, computed)
            hidden = gil_asked > max(wait_asked, cpu_asked // 4)  # in a crowd: what was seen before holds
            held_up = False
            if hidden and self.corrected and not self.gil.releases:
                doubtful = cpu_mean >= BATCH_CALL_NS and _HARDLY * least < self.wait_mean_ns
                held = self.wait_mean_ns * (_DOUBT if doubtful else 1.0)
                held = min(held, (wait_asked + gil_asked) / asked)
                held_up, wait = self.kind is Kind.WAITING and held > wait, max(wait, held)
            self.corrected = True
            crowded = (held_up or gil_asked > _CROWD * cpu_asked) and self.calls > self.still_until
            if crowded and cpu_mean >= BATCH_CALL_NS:
                wait = self._in_a_crowd(wait)
            elif not hidden and wait < WAITING_NS and self.kind is not Kind.WAITING:
                self.alone_patience = max(_ALONE_AFTER, self.alone_patience // 2)
                self.alone_at = min(self.alone_at, self.calls + self.alone_patience)
        elif self.corrected and wall_mean >= DETAILED_NS:  # none of these was asked, as in batches
            wait, self.served_ns = float(self.wait_mean_ns), 0
        else:
            wait, share = float(least), RAW_WAITING_SHARE
            self.corrected, self.served_ns = False, 0
        seen, self.seen_waiting = self.seen_waiting, 0
        if 4 * seen >= calls and 2 * cpu_mean < wall_mean:
            wait = max(wait, wall_mean - cpu_mean)  # some calls return at once, but those seen did wait
        elif self.native.drives and self.kind is not Kind.WAITING and 4 * seen < calls:
            wait = 0.0  # they let native threads compute for them, or lacked those of another call
            self.marks = 0  # where they wait is not seen, if they do: the governor looks for it
        self.cpu_mean_ns, self.wait_mean_ns = int(cpu_mean), int(wait)
        if wait >= WAITING_NS and wait >= share * (wait + cpu_mean) and not self._is_early(cpu_mean):
            return Kind.WAITING
        if self.leaves_gil:
            return Kind.FREE
        return Kind.SHORT if cpu_mean < LONG_NS else Kind.LONG

    def _in_a_crowd(self, wait: float) -> float:
        """Return the wait that calls in a crowd are credited with: none, once it is to be taken apart."""
        if self.kind is Kind.WAITING:
            if self.calls < self.alone_at:
                return wait
            self.alone_at = self.calls + self.alone_patience
            self.alone_patience = min(_ALONE_GROWTH * self.alone_patience, 1 << 20)
        self.detailed = (0, 0, 0, 0)
        return 0.0

    def _is_early(self, cpu_mean: float) -> bool:
        """Return True if only one call says that it waits, and no look confirmed it.

        It may have been kept from its core by the host, and all others would start at once.
        """
        return self.calls == 1 and cpu_mean >= BATCH_CALL_NS and not self.still_until

    def _try_overlap(
        self, before: Kind, calls: int, wall_mean: float, cpu_mean: float, ended_ns: int
    ) -> None:
        """Let short calls with unexplained waits run at once for a trial, and on where one has paid."""
        trial = self.overlap
        if trial is None:
            trial = self.overlap = OverlapTrial()
        if trial.running:
            if self.ended_ns:
                trial.together(self.calls, calls, ended_ns - self.ended_ns)
        elif before is Kind.SHORT:
            trial.alone(self.calls, calls, wall_mean, cpu_mean)
        if trial.running or trial.holds(self.calls, wall_mean, cpu_mean):
            self.kind = Kind.WAITING
            self.wait_mean_ns = max(self.wait_mean_ns, trial.wait_ns)

    def _waits_by_trial(self) -> bool:
        """Return True if nothing but a trial says that it waits."""
        return self.overlap is not None and self.wait_mean_ns <= self.overlap.wait_ns

    @property
    def surely_waits(self) -> bool:
        """Return True if its calls are known for good to wait."""
        return self.kind is Kind.WAITING and self.settled >= SETTLED

    @property
    def sleeps(self) -> bool:
        """Return True if they compute next to nothing besides."""
        return self.surely_waits and self.cpu_mean_ns < SLEEPS_NS

    @property
    def wall_mean_ns(self) -> int:
        """Mean wall time of its finished calls, 0 before the first."""
        return self.wall_ns // self.calls if self.calls else 0

    @property
    def usual_ns(self) -> int:
        """What a call takes that nothing disturbs, 0 before the first: by the last windows, or by all calls
        if that is less, because the last few may have been odd ones."""
        return min(self.wall_mean_ns, self.cpu_mean_ns + self.wait_mean_ns)

    @property
    def slow_start(self) -> int:
        """How many calls of which nothing is known may run at once: twice those that were seen to wait, of a
        known function since the last turn."""
        return max(1, 2 * (self.blocked_calls if self.kind is Kind.UNKNOWN else self.seen_waiting))

    def saw_waiting(self, *, first: bool = True) -> None:
        """A running call was seen to wait; `first`: it had not been judged before."""
        self.still_until = self.calls + _STILL
        if not first:
            return
        self.blocked_calls += 1
        self.seen_waiting += 1
        self.gil.saw_waiting()
        if self.kind is Kind.UNKNOWN and not self.computed_calls and self.blocked_calls >= _SEEN_ENOUGH:
            self.kind = Kind.WAITING

    def saw_computing(self) -> None:
        """A running call was seen to compute for longer than a short call does."""
        self.computed_calls += 1
        if self.kind in (Kind.UNKNOWN, Kind.SHORT):
            self.kind = Kind.LONG

    def said_waiting(self, opening_ns: int) -> None:
        """A running call is about to wait, and has said so; once a call.

        Args:
            opening_ns: CPU time of the call so far.
        """
        self.opening_ns = max(opening_ns, self.opening_ns - self.opening_ns // 16)
        self.still_until, self.marks = self.calls + _STILL, MARKS
        self.misses = max(0, self.misses - 1)
        self.seen_waiting += 1
        if self.puzzling:
            self.puzzling, self.gated = False, self.kind is Kind.WAITING

    @property
    def leaves_gil(self) -> bool:
        """Return True if several calls at once do more than one: by trial, else by what is seen of the
        GIL.
        """
        return self.gil.may_release if self.parallel is None else self.parallel >= GAIN

    def saw_beside(self, running: int) -> None:
        """A call ended of a function of which `running` calls were allowed to compute at once."""
        calls, total = self.parallel_sums
        self.parallel_sums = (calls + 1, total + running)

    def _judge_trial(self, cpu_mean: float, computing: float) -> None:
        """Weigh what several calls at once did.

        CPU seconds are worth less where a call takes more of them than it does alone: threads get in
        each other's way in memory, and in their fights for the GIL.

        Args:
            cpu_mean: CPU time of a call.
            computing: Share of their time, waits for a core left out, in which they computed.
        """
        calls, total = self.parallel_sums
        if not calls and cpu_mean > _GROWN * self.cpu_alone_ns:
            self.cpu_alone_ns = cpu_mean
        self.cpu_alone_ns = min(cpu_mean, _FADING * (self.cpu_alone_ns or cpu_mean))
        self.parallel_sums = (0, 0)
        if self.parallel is not None and self.parallel < GAIN:
            if self.calls >= self.try_at:
                self.parallel = None
            return
        if not calls or total < _AT_ONCE * calls:
            if self.gil.never_free:  # what several at once did before holds no more
                self.parallel = None
            return
        worth = 1.0 if self.gil.releases else self.cpu_alone_ns / max(1.0, cpu_mean)
        found = total / calls * computing * worth
        if self.parallel is None:
            self.parallel, self.try_at = found, self.calls + _TRY_AFTER
        else:
            self.parallel = (self.parallel + found) / 2.0
        if self.parallel < GAIN:
            self.try_at, self.patience = self.calls + self.patience, min(2 * self.patience, 1 << 16)
        elif self.calls >= self.try_at:
            self.try_at, self.patience = self.calls + _TRY_AFTER, max(_TRY_AFTER, self.patience // 2)

    def saw_free(self) -> None:
        """A running call computed, and the GIL was free."""
        self.gil.saw_free()
        if self.leaves_gil and self.kind in (Kind.SHORT, Kind.LONG, Kind.UNKNOWN):
            self.kind = Kind.FREE

    @property
    def beta_corrected(self) -> float | None:
        """Intrinsic blocking ratio w0 / (w0 + c) of the last windows; None where w0 cannot be told."""
        return _share(self.wait_mean_ns, self.cpu_mean_ns) if self.corrected else None


Copied = tuple[Any, ...]
"""What `summary_of` needs of a profile."""
copy_of: Callable[[Profile], Copied] = attrgetter(
    "name", "kind", "calls", "failed", "wall_ns", "cpu_ns", "queue_wait_ns", "corrected", "cpu_mean_ns",
    "wait_mean_ns", "native.drives", "native.native_ns", "native.own_ns", "gil.releases",
    "gil.waiting", "gil.free", "gil.taken", "gil.yielded", "gil.held", "gil.longest_hold_ns",
)  # fmt: skip
"""Copies a profile in a third of a microsecond, because the shared lock is held."""


def summary_of(copied: Copied) -> FunctionStatistics:
    """Return the public view of a profile; no lock is needed."""
    name, kind, calls, failed, wall_ns, cpu_ns, queue_wait_ns, corrected, cpu_mean_ns, *rest = copied
    wait_mean_ns, drives, native_ns, own_ns, releases, waiting, free, taken, yielded, held, hold_ns = rest
    return FunctionStatistics(
        name=name,
        kind=kind,
        calls=calls,
        failed=failed,
        wall=wall_ns / 1e9,
        cpu=cpu_ns / 1e9,
        queue_wait=queue_wait_ns / 1e9,
        beta=blocking_ratio(wall_ns, cpu_ns),
        beta_corrected=_share(wait_mean_ns, cpu_mean_ns) if corrected else None,
        work_cpu=cpu_mean_ns / 1e9 if calls else None,
        work_wait=wait_mean_ns / 1e9 if corrected or kind is Kind.WAITING else None,
        native=native_ns / max(1, own_ns) if drives else None,
        gil=gil_class(waits=kind is Kind.WAITING, releases=releases, yielded=yielded, held=held),
        evidence=evidence_of(waiting, free, taken, yielded, held, hold_ns),
    )


def blocking_ratio(wall_ns: int, cpu_ns: int) -> float | None:
    """Return the raw blocking ratio beta = 1 - cpu/wall of the seed paper, or None without a call."""
    return None if wall_ns <= 0 else min(1.0, max(0.0, 1.0 - cpu_ns / wall_ns))


def _share(wait_ns: int, cpu_ns: int) -> float | None:
    return wait_ns / (wait_ns + cpu_ns) if wait_ns + cpu_ns else None


def _detail_mask(wall_mean: float, *, settled: bool) -> int:
    """Return which calls of a function are asked for their waits, by how long they take."""
    if wall_mean < DETAILED_NS:
        return _NEVER_AGAIN
    if settled:
        return 7
    return 0 if wall_mean >= ALL_DETAILED_NS else 3


_NEVER = 1 << 62
_NEVER_AGAIN = -1
"""A mask that lets the very first call through and no other."""
