"""What a policy is shown of its lane: one window, from running sums and one look at the running calls.

Costs O(calls running), once a window. The shared lock protects what is read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hybridrt.control.window import Window
from hybridrt.measure.moved import MovedBytes
from hybridrt.observe.functions import Profile
from hybridrt.pool.state import Call, Pool, SharedBudget, Worker

__all__ = ["Sums", "crowd_of", "look_at_lane"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What has come together by the end of a window, running calls included; times in nanoseconds.

    Attributes:
        completed: Calls of the lane that ended.
        wall: Their wall time.
        cpu: Their CPU time.
        busy: Wall time of the lane.
        lane_cpu: CPU time of the lane.
        asked: Wall time and certain blocking of the calls that were asked.
        wakes: Wake-ups of the governor, and those that found the GIL taken.
    """

    completed: int = 0
    wall: int = 0
    cpu: int = 0
    busy: int = 0
    lane_cpu: int = 0
    asked: tuple[int, int] = (0, 0)
    wakes: tuple[int, int] = (0, 0)


def look_at_lane(
    pool: Pool, before: Sums, now_ns: int, seconds: float, bytes_moved: MovedBytes | None = None
) -> tuple[Window, Sums]:
    """Return what happened since `before`, and the sums to begin the next window with."""
    everything = pool.admission.governs_all
    lane = [
        (worker, call)
        for worker in pool.roster.workers
        if (worker.waits or (everything and not worker.resolves)) and (call := worker.call) is not None
    ]
    profiles = Counter([call.profile for _, call in lane])
    sums = _sum_up(pool, lane, profiles, now_ns)
    completed = sums.completed - before.completed
    asked_wall, blocked = (new - old for new, old in zip(sums.asked, before.asked, strict=True))
    wakes, taken = (new - old for new, old in zip(sums.wakes, before.wakes, strict=True))
    moved = None if bytes_moved is None else bytes_moved.since(_native_ids(pool))
    window = Window(
        seconds=seconds,
        queued=pool.admission.governed(),
        running=pool.governed_running(),
        completed=completed,
        wall=(sums.wall - before.wall) / 1e9,
        cpu=(sums.cpu - before.cpu) / 1e9,
        busy=max(0, sums.busy - before.busy) / 1e9 / seconds,
        # Bounded, for the clock of a call that was known to sleep is read only when it computes or ends.
        lane_cpu=min(max(0, sums.lane_cpu - before.lane_cpu) / 1e9 / seconds, pool.budget.cores),
        beta_certified=blocked / asked_wall if asked_wall else None,
        gil_share=taken / wakes if wakes else None,
        knee=_knee(pool.budget, profiles),
        loop_lateness=pool.shield.lateness_locked(),
        memory=pool.budget.memory.share,
        moved=None if moved is None else moved / seconds,
    )
    return window, sums


def _native_ids(pool: Pool) -> list[int]:
    """Return the kernel's numbers of the threads; one that starts just now has none yet."""
    return [number for worker in pool.roster.workers if (number := worker.thread.native_id) is not None]


def _sum_up(pool: Pool, lane: list[tuple[Worker, Call]], profiles: Counter[Profile], now_ns: int) -> Sums:
    tally, load = pool.tally, pool.budget.gil_load
    everything = pool.admission.governs_all
    completed = tally.completed + tally.failed if everything else tally.lane_calls
    wall, cpu = (tally.wall_ns, tally.cpu_ns) if everything else (tally.lane_wall_ns, tally.lane_cpu_ns)
    sleep = {profile for profile in profiles if profile.sleeps}
    lane_cpu = sum(
        worker.cpu_so_far() or 0
        for worker, call in lane
        if worker.permit or call.profile not in sleep  # to read a clock takes longer than these compute
    )
    return Sums(
        completed=completed,
        wall=wall,
        cpu=cpu,
        busy=wall + sum([now_ns - call.started_ns for _, call in lane]),
        lane_cpu=cpu + lane_cpu,
        asked=(tally.asked_wall_ns, tally.asked_blocked_ns),
        wakes=(load.wakes, load.taken),
    )


def _knee(budget: SharedBudget, profiles: Counter[Profile]) -> float | None:
    """Return how many calls like these just fill the GIL or the cores."""
    known = [
        (calls, demand)
        for profile, calls in profiles.items()
        if (demand := _demand(budget, profile)) is not None
    ]
    if not known:
        return None
    return sum(calls for calls, _ in known) / max(1e-6, sum(calls * demand for calls, demand in known))


def _demand(budget: SharedBudget, profile: Profile) -> float | None:
    """Return the share of the GIL, or of the cores, that one call keeps busy while it runs alone."""
    if profile.beta_corrected is None:
        return None
    of_gil = _share_of_gil(profile) if budget.gil else 0.0
    return (1.0 - profile.beta_corrected) * max(of_gil, 1.0 / budget.cores)


def _share_of_gil(profile: Profile) -> float:
    share = profile.gil.share
    return 1.0 if share is None else share


def crowd_of(pool: Pool, window: Window) -> float:
    """Return how many of the lane's calls computed at once, or waited for the GIL: those not blocked.

    By Little's law the blocked ones are the throughput times the intrinsic wait of a call.
    """
    if not (pool.budget.gil and window.completed):
        return 0.0
    profiles = Counter(
        call.profile for worker in pool.roster.workers if worker.waits and (call := worker.call)
    )
    if not profiles:
        return 0.0
    wait = sum(calls * profile.wait_mean_ns for profile, calls in profiles.items())
    of_gil = sum(calls * _share_of_gil(profile) for profile, calls in profiles.items())
    blocked = window.completed / window.seconds * wait / profiles.total() / 1e9
    return of_gil / profiles.total() * max(0.0, window.busy - blocked)
