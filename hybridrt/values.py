"""Frozen values that cross a boundary: what `statistics()` and the hooks hand out.

Everything here is plain data with public names; nothing knows where it came from. Times are float
seconds, shares lie in [0, 1], and a source that the platform lacks is None.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Any, Literal

from hybridrt.decisions import Decision, Reason
from hybridrt.placements import Placement, PlacementStatistics

__all__ = [
    "AnyioStatistics",
    "BackgroundStatistics",
    "BatchStatistics",
    "CallEvent",
    "Decision",
    "EventKind",
    "FunctionStatistics",
    "GilClass",
    "GilEvidence",
    "HostStatistics",
    "Isolation",
    "Kind",
    "LoopDelay",
    "PhaseReason",
    "PhaseStatistics",
    "PolicyName",
    "Reason",
    "RunningCall",
    "ShieldReason",
    "ShieldStatistics",
    "WaitSiteStatistics",
    "Where",
]

PolicyName = Literal["demand", "paper", "throughput"]
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
    """Python code: gives the GIL away within a switch interval when another thread waits."""
    HOLDS = "holds"
    """C code that keeps the GIL until it returns: `json.loads`, pydantic, `tokenizers.encode`. No thread
    and no switch interval protects the loop from it."""
    WAITS = "waits"
    """Blocked for three tenths of its time or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GilEvidence:
    """What the class of a function rests on: counts of the last looks at its calls; old ones fade.

    Attributes:
        waiting: Looks that saw a call blocked.
        free: Wake-ups of the governor beside a computing call that found the GIL free.
        taken: Those that found it taken.
        yielded: Those of them that got it within some switch intervals; only short intervals tell.
        held: Those of them that waited for longer.
        longest_hold: The longest such wait, in seconds.
    """

    waiting: int = 0
    free: int = 0
    taken: int = 0
    yielded: int = 0
    held: int = 0
    longest_hold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """What batches of a function were like; see `offload(batch=...)`.

    Attributes:
        batches: How many have ended.
        items: Calls in them.
        size_mean: Calls in a batch on average; None before the first.
        size_max: The largest so far.
        failed: Batches that raised, or returned another number of results.
        dropped: Calls that were cancelled or timed out before their batch ended.
        wait_mean: Seconds that a call waited for its batch to start; None before the first.
        gain: How many times as many calls a second as batches of one would have done, by a line through the
            batches' times over their sizes; None while all had one size.
    """

    batches: int
    items: int
    size_mean: float | None
    size_max: int
    failed: int
    dropped: int
    wait_mean: float | None
    gain: float | None


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
        batches: What its batches were like; None of functions that are not batched.
        delay_share: Share of the lateness of the runtime's loop that its calls have caused lately: they had
            the GIL, or the loop, while a timer waited for its turn. None if none was seen. After the process
            stood still for seconds, as a suspended one, it reads too small for some minutes.
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
    batches: BatchStatistics | None = None
    delay_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """A call that runs now.

    Attributes:
        name: Qualified name of the function.
        age: Seconds since it started.
        cpu: CPU seconds so far; None where threads have no readable CPU clock.
        abandoned: True when its caller no longer waits for the result.
        thread: Name of its thread.
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
class AnyioStatistics:
    """Calls of `anyio.to_thread.run_sync` on the runtime's loop, which run on its threads.

    Attributes:
        calls: Calls that came so far.
        in_flight: Those of them that are queued or run.
        stopped: Why calls run on anyio's own threads instead; None while they do not.
    """

    calls: int
    in_flight: int
    stopped: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundStatistics:
    """The background tasks of a runtime; counts are since it was made.

    Attributes:
        running: Tasks that run now, dropped ones that have not ended yet included.
        queued: Calls of `spawn_background` that wait for a place now.
        spawned: Tasks made.
        completed: Those that returned.
        failed: Those that raised.
        cancelled: Those that were cancelled, dropped ones included.
        shed: Coroutines that were refused, and tasks that were dropped for newer ones.
        queue_wait: Seconds that calls of `spawn_background` waited for a place; a sum.
        errors: How often tasks failed, by cause: `function: ErrorClass`; `other` collects causes beyond 100.
    """

    running: int
    queued: int
    spawned: int
    completed: int
    failed: int
    cancelled: int
    shed: int
    queue_wait: float
    errors: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatistics:
    """What the host gives to this process, as of the last look: one in two seconds at most, while calls run.

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
    """The same, and no loop is measured: by the number of computing calls."""
    FOREIGN = "foreign"
    """Other code has changed it: left alone until nothing computes."""
    VETO = "veto"
    """A runtime with `shield=False` is open: left alone."""
    FAILED = "failed"
    """The governor has failed: the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldStatistics:
    """What is done for the loops; times in seconds. The interval is that of `sys.setswitchinterval`.

    Attributes:
        interval: What it is now.
        user: What it is, or was, without the shield.
        target: Loop delay aimed at, the smallest of all loops.
        delay: 99th percentile of the loops' recent delay, the worst of all; None without a measured loop.
        reason: Why it is what it is.
        changes: How often the shield has set it.
        gave_way: Calls that hold the GIL for long and have let a loop that worked go first.
        collections: Full garbage collections while a loop was there; each stops all threads. 0 where
            the program freezes objects itself.
        longest_collection: How long the longest of them took.
    """

    interval: float
    user: float
    target: float
    delay: float | None
    reason: ShieldReason
    changes: int
    gave_way: int = 0
    collections: int = 0
    longest_collection: float = 0.0


class PhaseReason(StrEnum):
    """Whether calls are seen from within to wait."""

    ON = "on"
    """Some call site is known at which calls wait."""
    READY = "ready"
    """None is known yet."""
    NO_TOOL_ID = "no_tool_id"
    """All tool ids of `sys.monitoring` are taken by others."""
    UNSUPPORTED = "unsupported"
    """There is no `sys.monitoring`, and this is not CPython 3.11, which has a profile function instead."""
    OFF = "off"
    """Switched off: `phases=False` or `HYBRIDRT_PHASES=0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSiteStatistics:
    """A call site at which calls wait, and give their permit to compute to another call meanwhile.

    Attributes:
        function: Qualified name of the function that has it.
        file: Its file.
        line: And its line there; None if that is not known.
        waits: Waits so far.
        wait: Seconds of them.
        quick: Calls from there that came back at once.
    """

    function: str
    file: str
    line: int | None
    waits: int
    wait: float
    quick: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatistics:
    """Permits for the computing phases of calls that wait in between; of the interpreter.

    Attributes:
        reason: Whether waits are seen from within, and if not, why.
        sites: Where, the longest waits first; at most 256.
        forgotten: Sites that were known once and did not wait any more.
        in_line: Calls that have come back from a wait and want to go on.
    """

    reason: PhaseReason
    sites: tuple[WaitSiteStatistics, ...] = ()
    forgotten: int = 0
    in_line: int = 0


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
    queue_wait: float | None = None
    wall: float | None = None
    cpu: float | None = None
    error: str | None = None
    cancel_requested: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the context behind, which cannot be pickled; the other side gets an empty one."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "context"}
        return partial(CallEvent, **kept), ()
