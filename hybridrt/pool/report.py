"""`statistics()`: one consistent look at a pool, in public values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hybridrt.observe.functions import blocking_ratio
from hybridrt.placements import PlacementStatistics
from hybridrt.pool.lock import patiently
from hybridrt.values import FunctionStatistics, RunningCall, Statistics

if TYPE_CHECKING:
    from hybridrt.pool.call import Call
    from hybridrt.pool.pool import Pool
    from hybridrt.pool.stint import Stint

__all__ = ["Placed", "pool_statistics"]


class Placed(Protocol):
    """Chooses where the calls of one function run."""

    def statistics(self) -> PlacementStatistics:
        """Return what it has chosen, and why."""
        ...


def pool_statistics(pool: Pool, policy: str) -> Statistics:
    """Return what a pool knows about itself; O(workers + functions), safe from any thread."""
    now = pool.interpreter.clock.wall_ns()
    tally = pool.tally
    with patiently(pool.interpreter.lock):
        running = [_running(stint, call, now) for stint in pool.crew.stints() for call in stint.calls()]
        functions = _with_placements(pool, pool.profiles.snapshot())
        queued = pool.admission.counts() | {
            "resolve": len(pool.resolve_lane),
            "gated": len(pool.at_gates),
            "backlog": len(pool.backlog),
        }
        return Statistics(
            policy=policy,
            workers=len(pool.crew.workers),
            idle=len(pool.crew.idle),
            target=pool.sizing.state.workers,
            max_workers=pool.limits.highest,
            queued=queued,
            running=tuple(sorted(running, key=lambda call: -call.age)),
            submitted=tally.submitted,
            completed=tally.completed,
            failed=tally.failed,
            cancelled=tally.cancelled,
            rejected=tally.rejected,
            abandoned=tally.abandoned,
            abandoned_running=sum(call.abandoned for call in running),
            overdrafts=tally.overdrafts,
            beta=blocking_ratio(tally.wall_ns, tally.cpu_ns),
            functions=tuple(sorted(functions, key=lambda profile: -profile.cpu)),
            decisions=tuple(pool.sizing.decisions),
            gil_share=pool.interpreter.gil_load.share,
            gil_delay=pool.interpreter.gil_load.wait_mean,
            governor_error=pool.interpreter.governor.error,
            shield=pool.shield.statistics_locked(),
        )


def _with_placements(pool: Pool, functions: list[FunctionStatistics]) -> list[FunctionStatistics]:
    """Add where calls run; functions that ran on the loop alone get a row of their own."""
    rows = {function.name: function for function in functions}
    for name, (profile, placed) in tuple(pool.placed.items()):
        rows[name] = replace(rows.get(name) or profile.summary(), placement=placed.statistics())
    return list(rows.values())


def _running(stint: Stint, call: Call, now_ns: int) -> RunningCall:
    cpu_ns = stint.cpu_so_far()
    return RunningCall(
        name=call.profile.name,
        age=max(0, now_ns - call.started_ns) / 1e9,
        cpu=None if cpu_ns is None else cpu_ns / 1e9,
        abandoned=call.abandoned,
        thread=stint.name,
    )
