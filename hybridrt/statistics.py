"""What an executor or a runtime knows about itself, and how that reads on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hybridrt.decisions import Decision
from hybridrt.placements import time_text
from hybridrt.values import (
    AnyioStatistics,
    BackgroundStatistics,
    FunctionStatistics,
    HostStatistics,
    LoopDelay,
    PhaseStatistics,
    RunningCall,
    ShieldStatistics,
)

__all__ = ["Statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What an executor, or a runtime, knows about itself; `print` shows what matters on one screen.

    Attributes:
        policy: The sizing policy; the name of its class if it is the user's own.
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
        overdrafts: Calls started beyond the limits, because for too long none of their kind had started, and
            calls that went on without a permit after a wait.
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
        policy_error: Why the last decision of a policy of the user's own failed, or None; the size stays.
        policy_failures: How many of its decisions failed.
        governor_failures: How often it failed, or no thread could be started for it; of the interpreter.
        loop_delay: Of the runtime's loop; of an executor without one, of that loop which suffers most among
            those that have submitted to it. None without a loop, and without a beat in the last minute.
        background: Background tasks that run now.
        anyio: Calls of `anyio.to_thread`; None without a runtime, with `govern_anyio=False`, and before the
            program has loaded anyio's backend.
        background_tasks: What became of them, and of those before; None without a runtime.
        shield: The switch interval; None where it is switched off, or there is no GIL.
        host: What the process may use of cores and memory.
        phases: Where calls wait in between, and whether that is seen.
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
    policy_error: str | None = None
    policy_failures: int = 0
    workers_lost: int = 0
    loop_delay: LoopDelay | None = None
    background: int = 0
    anyio: AnyioStatistics | None = None
    background_tasks: BackgroundStatistics | None = None
    shield: ShieldStatistics | None = None
    host: HostStatistics | None = None
    phases: PhaseStatistics | None = None

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


def _pool_lines(statistics: Statistics) -> Iterator[str]:
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
    yield (
        f"{statistics.policy}: {statistics.workers} threads of at most {statistics.max_workers}, "
        f"{statistics.idle} idle; {statistics.target} {size}{reason}"
    )
    yield f"calls: {', '.join(counts)}"
    if queued:
        yield f"queued: {', '.join(queued)}"
    if statistics.governor_error:
        yield f"governor stopped: {statistics.governor_error[:_REASON_WIDTH]}"
    if statistics.policy_error:
        yield f"policy fails: {statistics.policy_error[:_REASON_WIDTH]}"


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
        waited = "" if statistics.gil_delay is None else f", for {time_text(statistics.gil_delay)}"
        yield f"GIL: taken at {100 * statistics.gil_share:.0f} % of the governor's wake-ups{waited}"
    if shield is not None:
        interval, user = time_text(shield.interval), time_text(shield.user)
        longest = time_text(shield.longest_collection)
        garbage = (
            f"; {shield.collections:,} full collections, {longest} at most" if shield.collections else ""
        )
        yield f"switch interval: {interval} ({shield.reason}), {user} without the shield{garbage}"
    if statistics.host is not None:
        yield _host_line(statistics.host)
    if anyio is not None:
        why = "" if anyio.stopped is None else f"; not ours: {anyio.stopped[:_REASON_WIDTH]}"
        yield f"anyio: {anyio.calls:,} calls, {anyio.in_flight} in flight{why}"
    if (tasks := statistics.background_tasks) is not None and (tasks.spawned or tasks.shed):
        counts = [f"{count:,} {name}" for name in _TASK_COUNTS if (count := getattr(tasks, name))]
        yield f"background tasks: {tasks.running} run{''.join(f', {count}' for count in counts)}"
    elif statistics.background:
        yield f"background tasks: {statistics.background}"


_TASK_COUNTS = ("queued", "completed", "failed", "cancelled", "shed")


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
