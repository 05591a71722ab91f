"""Find out where calls wait of functions that wait and compute by turns.

Their calls hold no permit while they wait, so the sampler has no reason to look at them. Those that come back
from a known site hold one, and it would take the sampler longer to be sure than many a further wait lasts. So
some of both are looked at twice within milliseconds: one that stands at the same instruction, whose thread
has used no CPU and was not put on a core, or had the GIL free all the time, waits there. A thread that waits
for the GIL wakes at least every switch interval.

Called by the governor alone, without the shared lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType

from hybridrt.measure.frames import top_frames
from hybridrt.pool.permits import NONE
from hybridrt.pool.roster import all_workers
from hybridrt.pool.site_events import STILL_NS, SiteEvents, is_never_site
from hybridrt.pool.state import Call, Pool, Worker

__all__ = ["SiteFinder"]

_AT_ONCE = 8
"""Calls that are looked at; each costs some 20 us."""
_PAUSE_NS = 20_000_000
_PAUSE_MAX_NS = 1_280_000_000
"""Time from one attempt to the next: at first, and doubling while nothing is found. Not measured."""
_INTERVALS = 1.2
"""Switch intervals between the two looks, at least, within which a GIL waiter would have woken."""


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where a call stood at the first look; times in nanoseconds."""

    worker: Worker
    started_ns: int
    code: CodeType
    offset: int
    cpu_ns: int
    ins: int | None


class SiteFinder:
    """Looks for the sites of one interpreter.

    Args:
        sites: What is found goes there.
    """

    def __init__(self, sites: SiteEvents) -> None:
        self._sites = sites
        self._stands: list[_Stand] = []
        self._seen_ns = self._next_ns = 0
        self._pause_ns = _PAUSE_NS
        self._turn = 0

    @property
    def is_looking(self) -> bool:
        """Whether the next step should come soon."""
        return bool(self._stands)

    def step(self, now_ns: int, pools: list[Pool], *, steady: bool, interval_ns: int, native: bool) -> None:
        """Look once, or a second time.

        Args:
            now_ns: The time.
            pools: All of the interpreter.
            steady: The GIL was free at this step and the one before.
            interval_ns: The switch interval.
            native: Native threads compute: what stands still may wait for them to be done.
        """
        if not self._stands:
            if now_ns >= self._next_ns and self._sites.sees_waits:
                self._stands = self._first_look(pools)
                self._seen_ns = now_ns
            return
        if not steady and now_ns - self._seen_ns < _INTERVALS * interval_ns:
            return
        stands, self._stands = self._stands, []
        found = self._second_look(stands, steady=steady, native=native)
        self._pause_ns = _PAUSE_NS if found else min(2 * self._pause_ns, _PAUSE_MAX_NS)
        self._next_ns = now_ns + self._pause_ns

    def _first_look(self, pools: list[Pool]) -> list[_Stand]:
        workers = [worker for pool in pools if pool.phases for worker in all_workers(pool)]
        waiting = [
            worker
            for worker in workers
            if (call := worker.call) is not None and _may_tell(worker, call) and worker.probe is not None
        ]
        if not waiting:
            return []
        self._turn = (self._turn + _AT_ONCE) % len(waiting)
        chosen = (waiting[self._turn :] + waiting[: self._turn])[:_AT_ONCE]
        frames = top_frames()
        return [stand for worker in chosen if (stand := _stand(worker, frames)) is not None]

    def _second_look(self, stands: list[_Stand], *, steady: bool, native: bool) -> bool:
        frames = top_frames()
        found = False
        for before in stands:
            now = _stand(before.worker, frames)
            if now is None or (now.started_ns, now.offset) != (before.started_ns, before.offset):
                continue
            if now.code is not before.code or now.cpu_ns - before.cpu_ns > STILL_NS:
                continue
            if now.worker.probe is None or now.worker.probe.is_runnable():
                continue  # it would compute, had it a core
            if steady or (now.ins is not None and now.ins == before.ins):
                doubtful = native and before.worker.permit != NONE
                call = before.worker.call
                profile = None if call is None else call.profile
                found |= self._sites.add(now.code, now.offset, doubtful=doubtful, profile=profile)
        return found


def _may_tell(worker: Worker, call: Call) -> bool:
    """Return True if it may show a further site: none is known of its function, or it is beyond one."""
    return call.profile.puzzling or (call.profile.gated and worker.permit != NONE)


def _stand(worker: Worker, frames: dict[int, FrameType]) -> _Stand | None:
    """Return where a worker's call stands; None if it is over, or where no site is."""
    call, probe = worker.call, worker.probe
    frame = frames.get(worker.thread.ident or 0)
    cpu_ns = None if probe is None else probe.cpu_ns()
    if call is None or probe is None or frame is None or cpu_ns is None:
        return None
    if is_never_site(frame.f_globals.get("__name__", "")):
        return None
    ins = probe.schedule_ins()
    return _Stand(worker, call.started_ns, frame.f_code, frame.f_lasti, cpu_ns, ins)
