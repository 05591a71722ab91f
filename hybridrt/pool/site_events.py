"""Learned wait sites, seen from within: permit back before the wait, asked for after it.

`sys.monitoring` (CPython 3.12 and later) calls us before and after each call from the functions that have a
learned site, and at all other sites of theirs just once: the answer there is DISABLE. Other functions are
not touched. What the sites are and whether they stay so is `observe.wait_sites`'s matter; who finds them is
the governor, by the frames of calls that it has seen to wait.

A tool id is taken with the first site and given back when the last executor is over. Debuggers, profilers
and coverage have ids of their own; if all are taken, no site is learned, and `statistics()` says so. Where
there is no `sys.monitoring`, `site_profiler` takes its place.

Actors: the governor (`learn`), workers in calls of users (the callbacks of the events), the thread that
closes the last pool (`rest`), and a forked child, which starts without sites. A change of events needs no
lock besides the GIL; the own lock of this part keeps two threads from changing them at once, and is never
held while the interpreter's is asked for.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from types import CodeType, FunctionType, MethodType
from typing import Any

from hybridrt.measure.frames import top_frames
from hybridrt.measure.kernel import is_readable
from hybridrt.observe.functions import PHASE_NS, Profile
from hybridrt.observe.wait_sites import WaitSite, WaitSites
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool.phases import computes_between_waits, enter, leave
from hybridrt.pool.state import Call, Worker
from hybridrt.pool.worker import current_worker
from hybridrt.values import PhaseReason, PhaseStatistics

__all__ = ["STILL_NS", "SiteEvents", "arrive", "come_back", "is_never_site"]

_TOOL_IDS = (4, 3, 1, 0)
"""Those that are tried; 2 is for profilers and 5 for optimizers by name, and 0 and 1 for debuggers and
coverage, which come first if they are there."""
_TOOL_NAME = "hybridrt"
_RETRY_NS = 60_000_000_000
"""Time until they are tried again."""
STILL_NS = 20_000
"""CPU time up to which a thread has stood still between two looks."""
_PACKAGE = __name__.partition(".")[0] + "."
_ISOLATES = _PACKAGE + "isolates."
_IMPORT_SYSTEM = (
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "_frozen_importlib",
    "_frozen_importlib_external",
)
"""Two modules, before and after `importlib` was imported."""
_IN_PYTHON = (FunctionType, MethodType)
"""Types of what has a frame of its own, and no event at its return."""
_METHOD = type(str.join)
"""Of methods in C, which are called with their object as the first argument."""
_RECEIVING = frozenset(
    getattr(socket.SocketType, name)
    for name in ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "_accept")
    if hasattr(socket.SocketType, name)
)
"""What waits for a socket to be readable; in `socket` it is called as a method of the class."""


class SiteEvents:
    """The monitored wait sites of one interpreter."""

    def __init__(self) -> None:
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool: int | None = None
        self._refused_ns = 0
        self._lock = threading.Lock()
        self._sites = WaitSites()
        self.reason = PhaseReason.READY if self._monitoring is not None else PhaseReason.UNSUPPORTED

    @property
    def sees_waits(self) -> bool:
        """Whether waits of calls can be told from within."""
        if self.reason is PhaseReason.NO_TOOL_ID:
            return time.perf_counter_ns() - self._refused_ns >= _RETRY_NS
        return self.reason in (PhaseReason.READY, PhaseReason.ON)

    def start_clean(self) -> None:
        """Forget all sites, in a forked child."""
        self._lock = threading.Lock()
        self.rest()

    # ------------------------------------------------------------------ learning

    def learn(self, worker: Worker, call: Call, cpu_ns: int | None) -> bool:
        """Learn where a call waits that was just judged to; return True if that is a new site.

        By the governor, without the shared lock.

        Args:
            worker: In whose thread it waits.
            call: The call.
            cpu_ns: The thread's CPU time when that was judged; if it has moved on since, nothing is learned.
        """
        if not self.sees_waits or not worker.pool.phases:
            return False
        frame = top_frames().get(worker.thread.ident or 0)
        probe = worker.probe
        now_ns = None if probe is None else probe.cpu_ns()
        if frame is None or now_ns is None or cpu_ns is None or worker.call is not call:
            return False
        if now_ns - cpu_ns > STILL_NS or is_never_site(frame.f_globals.get("__name__", "")):
            return False
        code, offset = frame.f_code, frame.f_lasti
        del frame
        return self.add(code, offset, profile=call.profile)

    def add(
        self, code: CodeType, offset: int, *, doubtful: bool = False, profile: Profile | None = None
    ) -> bool:
        """Know a site from now on; return True if it is a new one. By the governor.

        A call that was about to answer DISABLE there when the site was learned has disabled it since: so one
        that was never seen is enabled again, once.

        Args:
            code: The function.
            offset: Of the instruction.
            doubtful: Native threads computed meanwhile, for which the call may wait.
            profile: The function whose call was seen to wait there, for `site_profiler`.
        """
        known = self._sites.find(code, offset)
        if known is not None:
            if known.may_be_disabled:
                with self._lock:
                    self._enable_again(known)
            return False
        with self._lock:
            if self._tool is None and not self._take_tool():
                return False
            gone = self._sites.learn(code, offset, doubtful=doubtful)
            self._watch(code)
            if gone is not None:
                self._unwatch(gone)
        return True

    def _take_tool(self) -> bool:
        monitoring = self._monitoring
        for tool in _TOOL_IDS:
            try:
                monitoring.use_tool_id(tool, _TOOL_NAME)
            except ValueError:  # other code has it
                continue
            self._tool, self.reason = tool, PhaseReason.ON
            events = monitoring.events
            monitoring.register_callback(tool, events.CALL, self._make_called())
            monitoring.register_callback(tool, events.C_RETURN, _returned(self))
            monitoring.register_callback(tool, events.C_RAISE, _returned(self))
            return True
        self.reason, self._refused_ns = PhaseReason.NO_TOOL_ID, time.perf_counter_ns()
        return False

    def _enable_again(self, site: WaitSite) -> None:
        site.enabled_again = True
        if self._tool is not None and self._sites.find(site.code, site.offset) is site:
            self._watch(site.code)

    def _watch(self, code: CodeType) -> None:
        """Have the events of a function; sites that were disabled there come once more."""
        monitoring = self._monitoring
        monitoring.set_local_events(self._tool, code, 0)
        monitoring.set_local_events(self._tool, code, monitoring.events.CALL)

    def _unwatch(self, site: WaitSite) -> None:
        if id(site.code) not in self._sites.by_code and self._tool is not None:
            self._monitoring.set_local_events(self._tool, site.code, 0)

    def forget(self, site: WaitSite) -> None:
        """Have no more events of a site that does not wait any more."""
        if self._sites.forget(site) and self._lock.acquire(blocking=False):
            try:
                self._unwatch(site)
            finally:
                self._lock.release()

    def rest(self) -> None:
        """Forget all sites and give the tool id back: the last executor is over."""
        if not self._lock.acquire(blocking=False):
            return  # a signal handler, or a close in another thread, does the same
        try:
            tool, self._tool = self._tool, None
            sites, self._sites = self._sites, WaitSites()
            if self.reason is not PhaseReason.UNSUPPORTED:
                self.reason = PhaseReason.READY
            if tool is not None:
                self._give_tool_back(tool, sites)
        finally:
            self._lock.release()

    def _give_tool_back(self, tool: int, sites: WaitSites) -> None:
        monitoring = self._monitoring
        for code in {id(site.code): site.code for site in sites}.values():
            monitoring.set_local_events(tool, code, 0)
        for event in (monitoring.events.CALL, monitoring.events.C_RETURN, monitoring.events.C_RAISE):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    # ------------------------------------------------------------------ events

    def follow(self, worker: Worker, call: Call) -> Any:
        """Return None: it is the functions with sites that are watched; see `site_profiler`."""

    def unfollow(self, follower: Any) -> None:
        """Do nothing, as above."""

    def _make_called(self) -> Any:
        """Return what is called before each call from a watched function."""
        by_code, disable = self._sites.by_code, self._monitoring.DISABLE

        def called(code: CodeType, offset: int, function: object, first: object) -> object:
            places = by_code.get(id(code))
            site = None if places is None else places.get(offset)
            if site is None:
                return disable
            if site.doubtful and not site.calls(function):
                self.forget(site)
                return disable
            worker = current_worker()
            if worker is None or type(function) in _IN_PYTHON:
                return None
            call, phase = worker.call, worker.phase
            if phase is not None:
                if phase.within:
                    return None
                phase.site = None
            if call is None or not worker.pool.phases:
                return None
            if worker.permit and type(function) is _METHOD and _returns_at_once(function, first):
                return None
            if worker.permit or call.unclassified or computes_between_waits(call.profile):
                arrive(worker, call, site)
            return None

        return called

    def statistics(self) -> PhaseStatistics:
        """Return what there is to tell."""
        return PhaseStatistics(
            reason=self.reason,
            forgotten=self._sites.forgotten,
            sites=tuple(sorted((site.statistics() for site in self._sites), key=lambda site: -site.wait)),
        )


def _returns_at_once(function: object, first: object) -> bool:
    """Return True if what is called reads from a socket that has data.

    The answer to a request comes in pieces, and a read waits for the first of them at most. A permit given
    back before each of the others would have to be waited for, behind all other calls.
    """
    if function not in _RECEIVING or not isinstance(first, socket.SocketType):
        return False
    try:
        return is_readable(socket.SocketType.fileno(first))  # a subclass may have another
    except MemoryError:
        return False


def _returned(events: SiteEvents) -> Any:
    """Return what is called after each call of C code from a learned site."""

    def returned(code: CodeType, offset: int, function: object, _: object) -> None:
        worker = current_worker()
        if worker is not None:
            come_back(events, worker)

    return returned


def arrive(worker: Worker, call: Call, site: WaitSite) -> None:
    """Give the permit of a call back that is about to wait at a site; in its thread."""
    phase, now = worker.phase, time.thread_time_ns()
    if phase is not None and phase.last is not None:
        phase.ended(now)
    try:  # noqa: SIM105  # a tenth of what this costs in all
        leave(worker, call, now)
    except (SelfWaitError, MemoryError):
        pass  # the sampler sees it wait
    phase = worker.phase
    if phase is not None:
        phase.site, phase.site_wall_ns, phase.site_cpu_ns = site, time.perf_counter_ns(), now


def come_back(events: SiteEvents, worker: Worker) -> None:
    """Ask for a permit for a call that has waited at a site, if it arrived there; in its thread."""
    phase = worker.phase
    if phase is None or phase.site is None or phase.within:
        return
    site, phase.site = phase.site, None
    now = phase.last_cpu_ns = time.thread_time_ns()
    phase.last = site
    if not site.returned(time.perf_counter_ns() - phase.site_wall_ns, now - phase.site_cpu_ns):
        events.forget(site)
    if site.after_ns < PHASE_NS:
        return  # it hardly computes before it waits again
    call = worker.call
    if call is not None and (phase.left or computes_between_waits(call.profile)):
        try:  # noqa: SIM105
            enter(worker, call, cpu_ns=now)
        except (SelfWaitError, MemoryError):
            pass  # it goes on without one


def is_never_site(module: str) -> bool:
    """Return True if no wait in a frame of the module is a site.

    This package waits by rules of its own; isolates are waited for. And a thread that has waited while
    another imports a module comes back with a lock that the next one waits for: in line for a permit it
    would keep it.
    """
    return module in _IMPORT_SYSTEM or (module.startswith(_PACKAGE) and not module.startswith(_ISOLATES))
