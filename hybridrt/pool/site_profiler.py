"""Learned wait sites on CPython 3.11, which has no `sys.monitoring`: seen by a profile function.

A profile function is called at each call and return of its thread, and slows down what comes between, by
half in the worst case. So it is set only for a call of a function that has a learned site, from its start,
and taken off as early as it can be:

    - after as many waits as the calls of the function have,
    - when an eighth of the usual CPU time of a call is over at the end of a wait,
    - after `EVENTS_MAX` calls and returns without a known site between them, and at the end of the call.

A function whose calls come to no site so, or compute first, or hardly compute at all, gets none. A profile
function of the user is never replaced, and one that the call sets is never taken off.

Actors: workers, each for its own call, and the governor (`add`). What a worker keeps of a call is its own.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from hybridrt.observe.functions import Profile
from hybridrt.observe.wait_sites import WaitSite, WaitSites, WaitsPerCall
from hybridrt.pool.phases import computes_between_waits
from hybridrt.pool.site_events import SiteEvents, arrive, come_back
from hybridrt.pool.state import Call, Worker
from hybridrt.values import PhaseReason

__all__ = ["EVENTS_MAX", "SiteProfiler"]

EVENTS_MAX = 256
"""Calls and returns in a row without a site, each of which costs about 0.1 us. Not tuned."""
_LEAST_NS = 2_000_000
"""CPU time of a call from which this is worth it. Not tuned."""
_SHARE = 8
"""The part of that in which a call may be slowed down."""
_UNKNOWN_NS = 10_000_000
"""What a call is taken to compute of whose function none has ended."""
_CALL_AFTER_PRECALL = 4
"""Bytes: specialized code makes a call in the first of two instructions, profiled code in the second."""

Follower = Callable[[FrameType, str, Any], None]


class SiteProfiler(SiteEvents):
    """The wait sites of one interpreter, seen by profile functions."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = PhaseReason.READY

    def add(
        self, code: CodeType, offset: int, *, doubtful: bool = False, profile: Profile | None = None
    ) -> bool:
        """Know a site from now on, and that calls of a function come there; see `SiteEvents.add`."""
        if dis.opname[code.co_code[offset]] == "PRECALL":
            offset += _CALL_AFTER_PRECALL
        new = super().add(code, offset, doubtful=doubtful)
        if profile is not None and (profile.sited is None or (new and not profile.sited.worth_it)):
            profile.sited = WaitsPerCall()  # calls that have come to no site so far may come to this one
        return new

    def follow(self, worker: Worker, call: Call) -> Follower | None:
        """Set a profile function for a call that starts now, in its thread, if that is worth it.

        Returns:
            What `unfollow` wants; None if there is none.
        """
        profile = call.profile
        sited, usual_ns = profile.sited, profile.cpu_mean_ns if profile.calls else _UNKNOWN_NS
        if sited is None or not self._sites.by_code or not worker.pool.phases or not sited.is_due():
            return None
        if usual_ns < _LEAST_NS or sys.getprofile() is not None:
            return None
        follower = _Follower(self, worker, self._sites.by_code, sited, usual_ns // _SHARE).saw
        sys.setprofile(follower)
        return follower

    def unfollow(self, follower: Follower) -> None:
        """Take the profile function off at the end of a call, unless it is another one by now."""
        if sys.getprofile() is follower:
            sys.setprofile(None)
        follower.__self__.ended()  # type: ignore[attr-defined]  # a method

    def _take_tool(self) -> bool:
        self._tool, self.reason = 0, PhaseReason.ON
        return True

    def _watch(self, code: CodeType) -> None:
        """Do nothing: it is the calls that are followed."""

    def _unwatch(self, site: WaitSite) -> None:
        """Do nothing, as above."""

    def _give_tool_back(self, tool: int, sites: WaitSites) -> None:
        """Do nothing: each call takes off what it has set."""


class _Follower:
    """Sees the waits of one call.

    Args:
        sites: Who forgets a site.
        worker: Whose call.
        by_code: The sites; see `WaitSites`.
        sited: How many waits the calls of the function have.
        most_ns: CPU time of the call after which a wait is the last that is seen.
    """

    __slots__ = (
        "_at",
        "_by_code",
        "_events",
        "_frame",
        "_last",
        "_most_ns",
        "_sited",
        "_sites",
        "_worker",
        "waits",
    )

    def __init__(
        self,
        sites: SiteProfiler,
        worker: Worker,
        by_code: dict[int, dict[int, WaitSite]],
        sited: WaitsPerCall,
        most_ns: int,
    ) -> None:
        self._sites, self._worker, self._by_code, self._sited = sites, worker, by_code, sited
        self._most_ns = most_ns
        self._last = sited.starts()
        self._events = EVENTS_MAX
        self._frame: FrameType | None = None
        self._at = -1
        self.waits = 0

    def saw(self, frame: FrameType, event: str, function: Any) -> None:
        """Be the profile function."""
        if self._frame is not None:
            if frame is self._frame and frame.f_lasti == self._at and event != "c_call":
                self._came_back()
            return
        self._events -= 1
        if self._events < 0:
            sys.setprofile(None)
        elif event == "c_call" and (places := self._by_code.get(id(frame.f_code))) is not None:
            site = places.get(frame.f_lasti)
            if site is None:
                return
            if site.doubtful and not site.calls(function):
                self._sites.forget(site)
                return
            self._comes_to(site, frame)

    def _comes_to(self, site: WaitSite, frame: FrameType) -> None:
        worker = self._worker
        phase = worker.phase
        if phase is not None and phase.within:
            return
        if self._computed_ns() > self._most_ns and not self.waits:  # the sampler sees it wait
            sys.setprofile(None)
            return
        call = worker.call
        self._events = EVENTS_MAX
        self._frame, self._at = frame, frame.f_lasti
        if phase is not None:
            phase.site = None
        if call is not None and (worker.permit or call.unclassified or computes_between_waits(call.profile)):
            arrive(worker, call, site)

    def _came_back(self) -> None:
        worker = self._worker
        self._frame = None
        self.waits += 1
        come_back(self._sites, worker)
        if self.waits == self._last or self._computed_ns() > self._most_ns:
            sys.setprofile(None)

    def _computed_ns(self) -> int:
        return self._worker.pool.roster.cpu_ns() - self._worker.cpu_start_ns

    def ended(self) -> None:
        """Tell how many waits the call had."""
        self._frame = None
        self._sited.ended(self.waits, self._last)
