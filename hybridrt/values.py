"""Frozen values that cross a boundary: what `statistics()` and the hooks hand out.

Everything here is plain data with public names; nothing knows where it came from. Times are float
seconds, shares lie in [0, 1], and a source that the platform lacks is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Any, Literal

from hybridrt.placements import Placement, PlacementStatistics, time_text

__all__ = [
    "CallEvent",
    "Decision",
    "EventKind",
    "FunctionStatistics",
    "GilClass",
    "GilEvidence",
    "HostStatistics",
    "Isolation",
    "Kind",
    "LimiterStatistics",
    "LoopDelay",
    "PolicyName",
    "Reason",
    "RunningCall",
    "ShieldReason",
    "ShieldStatistics",
    "Statistics",
    "Where",
]

PolicyName = Literal["demand", "paper"]
Where = Literal["auto", "inline", "thread", "isolate", "cluster"]
Isolation = Literal["auto", "process", "interpreter"]


class Kind(StrEnum):
    """What a function is known to do with its time."""

    UNKNOWN = "unknown"
    """Not seen yet: its calls start in doubling cohorts."""
    WAITING = "waiting"
    """Blocked for three tenths of its time or more: its calls need no permit."""
    SHORT = "short"
    """Computes for less than some 20 ms a call."""
    LONG = "long"
    """Computes for longer than that."""
    FREE = "free"
    """Computes and leaves the GIL to others meanwhile; limited by the cores."""


class GilClass(StrEnum):
    """What a function does with the GIL; learned of calls that take some milliseconds."""

    UNKNOWN = "unknown"
    """Not seen often enough, or its calls are too short to tell."""
    RELEASES = "releases"
    """Leaves the GIL to others while it computes: zlib, hashing, onnxruntime, most of numpy."""
    COOPERATES = "cooperates"
    """Python code: gives the GIL away within a switch interval when somebody waits."""
    HOLDS = "holds"
    """C code that keeps the GIL until it returns: `json.loads`, pydantic, `tokenizers.encode`. No thread
    and no switch interval protects the loop from it."""
    WAITS = "waits"
    """Blocked for three tenths of its time or more."""


class Reason(StrEnum):
    """Why a pool has the size it has."""

    START = "start"
    """No window has been judged yet."""
    DEMAND = "demand"
    """Calls were queued and nothing forbade another thread."""
    STALL = "stall"
    """Calls were queued, all threads were blocked, and nothing completed."""
    BETA_VETO = "beta_veto"
    """Calls were queued, but the blocking ratio was at or below the threshold."""
    SATURATED = "saturated"
    """Calls were queued, but the GIL or the cores were already busy."""
    HYSTERESIS = "hysteresis"
    """Growth was due, but not yet often enough in a row, or the last one was a moment ago."""
    MEMORY = "memory"
    """Calls were queued, but the memory budget was nearly used up."""
    PROBE = "probe"
    """More or fewer threads are tried; they stay if throughput rises with more, or holds with fewer."""
    KNEE = "knee"
    """Calls were queued, but more threads would only wait for each other: measured throughput stood still."""
    NO_DEMAND = "no_demand"
    """Nothing was queued."""
    AT_MAX = "at_max"
    """Growth was due at `max_workers`."""
    AT_MIN = "at_min"
    """Shrinking was due at `min_workers`."""
    HOLD = "hold"
    """The size fits what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One sizing decision.

    Attributes:
        at: Seconds since the executor was made.
        workers: The size decided: waiting calls at once (`demand`) or threads (`paper`).
        previous: The size before.
        reason: Why.
        beta: The blocking ratio the policy worked with, or None before the first sample.
        queued: Calls queued at that moment, over all lanes.
        running: Calls running at that moment.
    """

    at: float
    workers: int
    previous: int
    reason: Reason
    beta: float | None
    queued: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GilEvidence:
    """What the class of a function rests on: counts of the last looks at its calls; old ones fade.

    Attributes:
        waiting: Looks that saw a call blocked.
        free: Wake-ups of the governor beside a computing call that found the GIL free.
        yielded: Those that got it within some switch intervals.
        held: Those that waited for longer.
        longest_hold: The longest such wait, in seconds.
    """

    waiting: int = 0
    free: int = 0
    yielded: int = 0
    held: int = 0
    longest_hold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStatistics:
    """The profile of one function; times are sums over its finished calls, in seconds.

    Attributes:
        name: Qualified name, `module:qualname`; `other` collects functions beyond the bound.
        kind: What the function is known to do.
        gil: What it does with the GIL.
        evidence: What that rests on.
        beta_corrected: Blocking ratio of the last calls without their waits for the GIL and for a core;
            None where that cannot be told.
        calls: Finished calls, failures included.
        failed: Calls that raised.
        wall: From start to end.
        cpu: CPU time of the worker thread.
        queue_wait: From submission to start.
        beta: Raw blocking ratio, 1 - cpu/wall, time-weighted; None before the first call ends.
        work_cpu: CPU time of one call, by the last of them; None before the first ends.
        work_wait: What one waits by itself, by the same calls: for I/O or a sleep, not for the GIL, a core
            or a permit. None where that cannot be told.
        native: CPU time of native threads, as those of BLAS and OpenMP, for each second that its calls
            compute in their own; None of a function that does not use any, and where that cannot be told.
        placement: Where its calls run, if that is chosen; None of functions that run in threads alone.
        delay_share: Share of the lateness of the runtime's loop that its calls have caused lately: they had
            the GIL, or the loop, while a timer waited for its turn. None if none was seen.
    """

    name: str
    kind: Kind
    calls: int
    failed: int
    wall: float
    cpu: float
    queue_wait: float
    beta: float | None
    beta_corrected: float | None = None
    work_cpu: float | None = None
    work_wait: float | None = None
    native: float | None = None
    gil: GilClass = GilClass.UNKNOWN
    evidence: GilEvidence = GilEvidence()
    placement: PlacementStatistics | None = None
    delay_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """A call that runs now.

    Attributes:
        name: Qualified name of the function.
        age: Seconds since it started.
        cpu: CPU seconds so far; None where threads have no readable CPU clock.
        abandoned: True when nobody waits for its result any more.
        thread: Name of its thread; "event loop" of a call in an isolate that no thread waits for.
    """

    name: str
    age: float
    cpu: float | None
    abandoned: bool
    thread: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDelay:
    """Lateness of a timer on the loop, weighted by time, over the last `window` seconds.

    It fires every 10 ms when calls begin, every 25 ms once they have gone on for a second, every 200 ms on a
    loop that has other things to do, and every 500 ms on one that rests, so a shorter stall that ends a rest
    may go unseen.
    """

    p50: float
    p99: float
    max: float
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStatistics:
    """anyio's limiter of worker threads, as of the last beat of the loop.

    Attributes:
        total: Calls that may run at once; None for any number, and if the governing stopped before it found
            the limiter.
        floor: The value found, below which it is never set; None as for `total`.
        borrowed: Calls that run.
        waiting: Tasks that wait for their turn.
        decisions: The last 200 decisions, oldest first; their sizes are totals.
        stopped: Why it is governed no more, or not at all; None while it is.
    """

    total: int | None
    floor: int | None
    borrowed: int
    waiting: int
    decisions: tuple[Decision, ...]
    stopped: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatistics:
    """What the host gives to this process, as of the last look, every two seconds at most while calls run.

    Attributes:
        cores: Cores it may keep busy, by affinity and by the CPU quotas of its control groups, rounded up.
        memory_limit: Bytes it may use: the least of the host's memory, the limits of its control groups, and
            `memory_max`.
        memory_share: Part in use of the one of these that is nearest to its end. From 0.9 on no thread is
            added. None where it cannot be read.
    """

    cores: int
    memory_limit: int
    memory_share: float | None


class ShieldReason(StrEnum):
    """Why the switch interval is what it is."""

    REST = "rest"
    """Nothing computes: it is the user's own."""
    TIGHT = "tight"
    """One call computes, undisturbed: the shortest, which costs it next to nothing."""
    RELAX = "relax"
    """Several compute, or calls come and go fast, and the loop keeps its target: it grows step by step."""
    HOLD = "hold"
    """The same, and the loop comes near its target."""
    LATE = "late"
    """The loop misses its target: as short as helps, or as a crowd can bear."""
    UNMEASURED = "unmeasured"
    """The same, and no runtime measures a loop: by the number of computing calls."""
    FOREIGN = "foreign"
    """Somebody else has changed it: left alone until nothing computes."""
    VETO = "veto"
    """A runtime with `shield=False` is open: left alone."""
    FAILED = "failed"
    """The governor has failed: the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldStatistics:
    """The switch interval of the interpreter, in seconds; see `sys.setswitchinterval`.

    Attributes:
        interval: What it is now.
        user: What it is, or was, without the shield.
        target: Loop delay aimed at, the smallest of all runtimes.
        delay: 99th percentile of the loops' recent delay, the worst of all; None without a runtime.
        reason: Why it is what it is.
        changes: How often the shield has set it.
    """

    interval: float
    user: float
    target: float
    delay: float | None
    reason: ShieldReason
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What an executor, or a runtime, knows about itself; `print` shows what matters on one screen.

    Attributes:
        policy: The sizing policy.
        workers: Live threads.
        idle: Those that wait for a call.
        target: The size decided last: waiting calls at once (`demand`) or threads (`paper`).
        max_workers: The hard limit; the name-resolution lane has threads of its own beyond it.
        queued: Queued calls by lane.
        running: The calls that run now.
        submitted: Calls accepted.
        completed: Calls that returned a value.
        failed: Calls that raised.
        cancelled: Calls cancelled or timed out while queued; they never ran.
        rejected: Calls refused by a full queue.
        abandoned: Calls whose caller left while they ran.
        abandoned_running: Those of them that still hold a thread.
        overdrafts: Calls started beyond the limits, because for too long none of their kind had started.
        workers_lost: Threads that ended in the middle of a call, which failed with `WorkerLostError`. Others
            take their place when there are calls for them.
        beta: Raw blocking ratio over all finished calls, 1 - cpu/wall; None before the first.
        gil_share: Share of the governor's last wake-ups that found the GIL taken; None before the first
            and without a GIL.
        gil_delay: Mean time it then waited for it, in seconds.
        functions: Profiles, the largest CPU time first.
        decisions: The last 200 sizing decisions, oldest first.
        governor_error: Why the governor does not work now, or None while it does. Calls need no permit
            meanwhile, and it tries again every second.
        governor_failures: How often it failed, or no thread could be started for it; of the interpreter.
        loop_delay: None without a runtime.
        background: Background tasks that run now.
        anyio: anyio's limiter of worker threads; None without a runtime, when it is not to be governed,
            and before anything used it.
        shield: The switch interval; None where it is switched off, or there is no GIL.
        host: What the process may use of cores and memory.
    """

    policy: str
    workers: int
    idle: int
    target: int
    max_workers: int
    queued: dict[str, int]
    running: tuple[RunningCall, ...]
    submitted: int
    completed: int
    failed: int
    cancelled: int
    rejected: int
    abandoned: int
    abandoned_running: int
    overdrafts: int
    beta: float | None
    functions: tuple[FunctionStatistics, ...]
    decisions: tuple[Decision, ...]
    gil_share: float | None = None
    gil_delay: float | None = None
    governor_error: str | None = None
    governor_failures: int = 0
    workers_lost: int = 0
    loop_delay: LoopDelay | None = None
    background: int = 0
    anyio: LimiterStatistics | None = None
    shield: ShieldStatistics | None = None
    host: HostStatistics | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the same as nested dicts, tuples and numbers, ready for `json.dumps`."""
        return asdict(self)

    def __str__(self) -> str:
        """Return what matters of it on one screen; `repr` and `to_dict` have all."""
        lines = (
            *_pool_lines(self),
            *_environment_lines(self),
            *_table(
                ("function", "calls", "cpu/call", "wall/call", "kind", "GIL"),
                [_function_row(row) for row in self.functions[:_FUNCTIONS_SHOWN]],
                len(self.functions),
            ),
            *_table(
                ("running call", "age", "cpu", "thread"),
                [_running_row(call) for call in self.running[:_RUNNING_SHOWN]],
                len(self.running),
            ),
        )
        return "\n".join(lines)


_FUNCTIONS_SHOWN, _RUNNING_SHOWN = 10, 5
"""Rows of the tables in `str(statistics)`."""
_WIDTH, _REASON_WIDTH = 50, 60
"""Characters of a name in them, and of what an error says."""


def _pool_lines(statistics: Statistics) -> list[str]:
    size = "waiting calls at once" if statistics.policy == "demand" else "threads wanted"
    reason = f" ({statistics.decisions[-1].reason})" if statistics.decisions else ""
    counts = [
        f"{getattr(statistics, name):,} {name}"
        for name in ("submitted", "completed", "failed", "cancelled", "rejected", "abandoned")
        if name in ("submitted", "completed") or getattr(statistics, name)
    ]
    if statistics.overdrafts:
        counts.append(f"{statistics.overdrafts:,} overdraft{'s' if statistics.overdrafts > 1 else ''}")
    queued = [f"{lane} {count:,}" for lane, count in statistics.queued.items() if count]
    return [
        f"{statistics.policy}: {statistics.workers} threads of at most {statistics.max_workers}, "
        f"{statistics.idle} idle; {statistics.target} {size}{reason}",
        f"calls: {', '.join(counts)}",
        *([f"queued: {', '.join(queued)}"] if queued else []),
        *(
            [f"governor stopped: {statistics.governor_error[:_REASON_WIDTH]}"]
            if statistics.governor_error
            else []
        ),
    ]


def _host_line(host: HostStatistics) -> str:
    used = "in use unknown" if host.memory_share is None else f"{100 * host.memory_share:.0f} % in use"
    return f"host: cores {host.cores}, memory {host.memory_limit / 2**20:,.0f} MiB, {used}"


def _environment_lines(statistics: Statistics) -> Iterator[str]:
    """Yield what is known of the loop, the GIL and anyio's threads, a line each."""
    delay, shield, anyio = statistics.loop_delay, statistics.shield, statistics.anyio
    if delay is not None:
        p50, p99, longest = map(time_text, (delay.p50, delay.p99, delay.max))
        yield f"loop delay: p50 {p50}, p99 {p99}, max {longest} in the last {time_text(delay.window)}"
    if statistics.gil_share is not None:
        waited = time_text(statistics.gil_delay)
        yield f"GIL: taken at {100 * statistics.gil_share:.0f} % of the governor's wake-ups, for {waited}"
    if shield is not None:
        interval, user = time_text(shield.interval), time_text(shield.user)
        yield f"switch interval: {interval} ({shield.reason}), {user} without the shield"
    if statistics.host is not None:
        yield _host_line(statistics.host)
    if anyio is not None:
        governed = "" if anyio.stopped is None else f"; not governed: {anyio.stopped[:_REASON_WIDTH]}"
        total = "any number" if anyio.total is None else anyio.total
        yield f"anyio: {anyio.borrowed} calls of {total} run, {anyio.waiting} wait{governed}"
    if statistics.background:
        yield f"background tasks: {statistics.background}"


def _function_row(row: FunctionStatistics) -> tuple[str, ...]:
    cpu, wall = (time_text(total / row.calls if row.calls else None) for total in (row.cpu, row.wall))
    return row.name, f"{row.calls:,}", cpu, wall, row.kind, row.gil


def _running_row(call: RunningCall) -> tuple[str, ...]:
    return call.name, time_text(call.age), time_text(call.cpu), call.thread


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], count: int) -> list[str]:
    """Return the lines of a table, the first column as wide as its names need; none without rows."""
    if not rows:
        return []
    names = [name if len(name) <= _WIDTH else f"...{name[3 - _WIDTH :]}" for name, *_ in rows]
    width = max(map(len, (head[0], *names)))
    cells = [
        f"{name:<{width}}" + "".join(f"  {cell[:20]:>10}" for cell in row)
        for name, (_, *row) in zip((head[0], *names), (head, *rows), strict=True)
    ]
    return ["", *cells, *([f"and {count - len(rows):,} more"] if count > len(rows) else [])]


EventKind = Literal["submitted", "started", "abandoned", "finished", "withdrawn", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """What an event hook sees of a call; never its arguments or its result.

    The first event of a call is `submitted`. The last is one of these three:

    - `finished`: it ran and ended, or its worker was lost.
    - `withdrawn`: it was accepted and never runs: cancelled, too late, or dropped when a pool closed.
    - `rejected`: it was not accepted: the queue is full, or the pool is closed.

    In between comes `started`, if it starts; an isolated call starts when a thread begins to carry it. And
    `abandoned`, if its caller leaves while it runs and does not wait for its end. That may be told after
    `finished`, by another thread; `at_ns` tells the order.

    Attributes:
        kind: What has happened.
        id: The same in all events of a call; unique in the process.
        name: Qualified name of the function.
        at_ns: When it happened, by `time.perf_counter_ns`.
        place: Where the call runs: "inline" (on the loop), "thread" or "isolate".
        context: A copy of the context in which the call was submitted, the event's own:
            `event.context.run(opentelemetry.context.get_current)` has the span that the call belongs to.
        queue_wait: Seconds from submission to start; None before the start.
        wall: Seconds from start to end; None before the end, and of a call whose worker was lost.
        cpu: CPU seconds of the call; None where `wall` is.
        error: Name of the class of what it raised, or of why it was abandoned, withdrawn or rejected.
        cancel_requested: It finished after its caller had been cancelled or had timed out.
    """

    kind: EventKind
    id: int
    name: str
    at_ns: int
    place: Placement
    context: Context = field(default_factory=Context, repr=False, compare=False)
    queue_wait: float | None = field(default=None)
    wall: float | None = field(default=None)
    cpu: float | None = field(default=None)
    error: str | None = field(default=None)
    cancel_requested: bool = field(default=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the context behind, which cannot be pickled; the other side gets an empty one."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "context"}
        return partial(CallEvent, **kept), ()
