"""`statistics()`: one consistent look at a pool, in public values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybridrt.control.checked import CheckedPolicy
from hybridrt.control.window import Policy
from hybridrt.observe.functions import Copied, blocking_ratio, copy_of, summary_of
from hybridrt.placements import PlacementStatistics
from hybridrt.pool.lock import without_convoy
from hybridrt.pool.protocols import Batching, Placed
from hybridrt.pool.state import Call, Pool, Worker
from hybridrt.statistics import Statistics
from hybridrt.values import (
    FunctionStatistics,
    HostStatistics,
    LoopDelay,
    PhaseReason,
    PhaseStatistics,
    RunningCall,
)

__all__ = ["function_statistics", "pool_statistics"]


def pool_statistics(pool: Pool, policy: str, loop_delay: LoopDelay | None = None) -> Statistics:
    """Return what a pool knows about itself, and its loops; O(workers + functions), safe from any thread.

    Every call needs the lock, so under it figures are copied and nothing is built of them.
    """
    now = pool.budget.clock.wall_ns()
    with without_convoy(pool.budget.lock):
        figures = _figures_locked(pool)
        copies = pool.profiles.copy_locked()
        batched = dict(pool.batched)
        in_line = pool.budget.permits.waits
        placed = [(profile.key, copy_of(profile), shown) for profile, shown in tuple(pool.placed.values())]
        running = [_run_locked(worker, call) for worker in pool.roster.workers for call in worker.calls()]
    calls = [_running(now, *run) for run in running]
    functions = _functions(copies, placed, batched, pool.delay_shares.shares())
    return Statistics(
        policy=policy,
        running=tuple(sorted(calls, key=lambda call: -call.age)),
        abandoned_running=sum(call.abandoned for call in calls),
        functions=tuple(sorted(functions, key=lambda function: -function.cpu)),
        phases=_phases(pool, in_line),
        loop_delay=loop_delay,
        **figures,
    )


def function_statistics(pool: Pool, key: object) -> FunctionStatistics | None:
    """Return the row of the function whose profile has the key; None if the pool does not know it.

    What is kept by the name, batches and delay shares, is not in it.
    """
    profile, shown = pool.placed.get(key, (None, ()))
    profile = pool.profiles.known(key) or profile
    if profile is None:
        return None
    with without_convoy(pool.budget.lock):
        copied = copy_of(profile)
    row = summary_of(copied)
    return replace(row, placement=_together(shown)) if shown else row


def _figures_locked(pool: Pool) -> dict[str, Any]:
    """Return what `Statistics` says of the whole pool."""
    tally, budget = pool.tally, pool.budget
    return {
        "workers": len(pool.roster.workers),
        "idle": len(pool.roster.idle),
        "target": pool.sizing.state.workers,
        "max_workers": pool.limits.highest,
        "queued": pool.admission.counts()
        | {
            "resolve": len(pool.resolve_lane),
            "gated": len(pool.at_limiters),
            "backlog": len(pool.backlog),
        },
        "submitted": tally.submitted,
        "completed": tally.completed,
        "failed": tally.failed,
        "cancelled": tally.cancelled,
        "rejected": tally.rejected,
        "abandoned": tally.abandoned,
        "overdrafts": tally.overdrafts,
        "workers_lost": tally.workers_lost,
        "beta": blocking_ratio(tally.wall_ns, tally.cpu_ns),
        "decisions": tuple(pool.sizing.decisions),
        "gil_share": budget.gil_load.share,
        "gil_delay": budget.gil_load.wait_mean,
        "governor_error": budget.governor.error,
        "governor_failures": budget.governor.failures,
        **_failure(pool.policy),
        "shield": pool.shield.statistics_locked(),
        "host": HostStatistics(
            cores=budget.cores,
            memory_limit=budget.memory.limit,
            memory_share=budget.memory.share,
        ),
    }


def _phases(pool: Pool, in_line: int) -> PhaseStatistics:
    if not pool.phases:
        return PhaseStatistics(reason=PhaseReason.OFF, in_line=in_line)
    return replace(pool.budget.phases.statistics(), in_line=in_line)


def _failure(policy: Policy) -> dict[str, Any]:
    if not isinstance(policy, CheckedPolicy):
        return {}
    error = policy.error
    return {"policy_error": None if error is None else repr(error), "policy_failures": policy.failures}


def _functions(
    copies: list[tuple[Any, Copied]],
    placed: list[tuple[Any, Copied, tuple[Placed, ...]]],
    batched: dict[str, Batching],
    delay_shares: dict[str, float],
) -> list[FunctionStatistics]:
    """Return a row for each function, those that only ran on the loop included, with where its calls run.

    Functions of the same name have a row each; what is kept by the name is in the one with the most calls.
    """
    rows = {key: summary_of(copied) for key, copied in copies}
    for key, copied, shown in placed:
        rows[key] = replace(rows.get(key) or summary_of(copied), placement=_together(shown))
    most = {rows[key].name: key for key in sorted(rows, key=lambda key: rows[key].calls)}
    for name in most.keys() & batched.keys():
        rows[most[name]] = replace(rows[most[name]], batches=batched[name].statistics())
    for name in most.keys() & delay_shares.keys():
        rows[most[name]] = replace(rows[most[name]], delay_share=delay_shares[name])
    return list(rows.values())


def _together(shown: tuple[Placed, ...]) -> PlacementStatistics:
    """Return where the calls of a function run, those with other options included."""
    all_of_it = [one.statistics() for one in shown]
    sizes = (size for each in all_of_it for size in each.sizes)
    return PlacementStatistics(
        inline_calls=sum(each.inline_calls for each in all_of_it),
        inline_wall=sum(each.inline_wall for each in all_of_it),
        overruns=sum(each.overruns for each in all_of_it),
        longest_overrun=max(each.longest_overrun for each in all_of_it),
        paused=max(each.paused for each in all_of_it),
        isolate_calls=sum(each.isolate_calls for each in all_of_it),
        not_portable=next((each.not_portable for each in all_of_it if each.not_portable), None),
        sizes=tuple(sorted(sizes, key=lambda size: -size.calls)),
        held=sum(each.held for each in all_of_it),
    )


_Run = tuple[str, int, int | None, bool, str]
"""Of a call that runs: function, start, CPU time so far, whether it was abandoned, thread."""


def _run_locked(worker: Worker, call: Call) -> _Run:
    return call.profile.name, call.started_ns, worker.cpu_so_far(), call.abandoned, worker.thread.name


def _running(
    now_ns: int, name: str, started_ns: int, cpu_ns: int | None, abandoned: bool, thread: str
) -> RunningCall:
    return RunningCall(
        name=name,
        age=max(0, now_ns - started_ns) / 1e9,
        cpu=None if cpu_ns is None else cpu_ns / 1e9,
        abandoned=abandoned,
        thread=thread,
    )
