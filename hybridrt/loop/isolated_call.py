"""Calls that run in isolates, as a coroutine awaits them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hybridrt.errors import NotPortableError
from hybridrt.isolates.child import inside
from hybridrt.isolates.context import crossing_context
from hybridrt.isolates.frames import hide_own_frames
from hybridrt.isolates.isolate_pool import IsolatePool, dismiss_if_reloaded, processes, used_by
from hybridrt.isolates.profile import IsolateProfile
from hybridrt.isolates.reference import find, refer
from hybridrt.isolates.remote_invocation import RemoteInvocation, WarmingInvocation, isolate_pool_for
from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.call import LoopCall
from hybridrt.loop.router import Router
from hybridrt.observe.function_name import identify
from hybridrt.observe.functions import Profile
from hybridrt.pool.rebalance import LENGTHY_NS, no_isolate_free
from hybridrt.pool.state import DONE, QUEUED, Pool
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.values import Isolation

__all__ = [
    "IsolateRoute",
    "IsolatedCall",
    "calls_at_once",
    "generator_step",
    "isolate_route_of",
    "isolated_call",
    "warm_up",
]

logger = logging.getLogger("hybridrt")

_WARMING = "hybridrt:warm_up"
"""The key and the name of the profile of calls that start isolates ahead."""
_ROUTES_MAX = 256
"""Functions whose lines are kept; programs that make functions could have any number."""


class IsolatedCall(LoopCall):
    """A call in an isolate: abandoning it stops its process.

    Attributes:
        remote_invocation: Does what a worker thread does, and keeps what that cost.
        isolate_route: The way to the isolate.
    """

    # All that every call sets or asks for several times; an instance's dict would cost more.
    __slots__ = (
        "cancel_requested",
        "cpu_ns",
        "error",
        "in_waiting_lane",
        "isolate_route",
        "limiters",
        "limiters_passed",
        "permit",
        "remote_invocation",
        "spills",
        "wall_ns",
    )  # fmt: skip

    remote_invocation: RemoteInvocation
    isolate_route: IsolateRoute
    isolated = True

    def __init__(
        self,
        isolate_route: IsolateRoute,
        remote_invocation: RemoteInvocation,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self.isolate_route, self.remote_invocation = isolate_route, remote_invocation
        self.limiters = isolate_route.limiters
        self.error = None
        self.limiters_passed = self.permit = self.wall_ns = self.cpu_ns = 0
        self.cancel_requested = self.in_waiting_lane = self.spills = False

    @property
    def when_abandoned(self) -> str:
        """What the error says of a call that its caller has left."""
        return self.isolate_route.when_abandoned

    @property
    def unready(self) -> bool:
        """Whether it was abandoned while its isolate was made ready for it."""
        return self.remote_invocation.unready

    def settle(self) -> None:
        """Complete the future."""
        if self.state == DONE:
            hide_own_frames(self.error)
            if self.remote_invocation.took_ns:
                self.isolate_route.profile.took(self.remote_invocation.took_ns)
        elif self.cancel_requested:  # it never began, and there is nothing to tell of why
            self.error = None
        super().settle()

    @uninterrupted
    def cancel(self, msg: Any = None) -> bool:
        """Cancel as every call; one that may be abandoned while it runs is stopped."""
        cancelled = super().cancel(msg)
        self._stop_if_abandoned()
        return cancelled

    @uninterrupted
    def expire(self, timeout: float, limit: str = "timeout") -> None:
        """The call's time is up, as `limit` says: withdraw it, or stop it."""
        super().expire(timeout, limit)
        self._stop_if_abandoned()

    @uninterrupted
    def give_up(self, error: BaseException) -> None:
        """Fail now and stop the call: the close no longer waits for it."""
        super().give_up(error)
        self._stop_if_abandoned()

    def _stop_if_abandoned(self) -> None:
        if self.abandoned:
            self.remote_invocation.stop()


class IsolateRoute:
    """The way of one function's calls to their isolates, so that it is looked up once.

    Args:
        loop_binding: Of the calls.
        fn: The function.
        isolation: What `isolated_call` was given.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """

    def __init__(self, loop_binding: LoopBinding, fn: Callable[..., Any], isolation: Isolation) -> None:
        pool = loop_binding.pool
        self.fn, self.isolation = fn, isolation
        self.reference = refer(fn, pickles=False)
        dismiss_if_reloaded(self.reference.module)
        self.named = find(self.reference.module, self.reference.qualname)
        self.isolate_pool = isolate_pool = isolate_pool_for(self.reference, isolation)
        self.limiters = (isolate_pool.limiter,)
        self.when_abandoned = (
            "its process is ended" if isolate_pool is processes else "its interpreter is left to it"
        )
        self.profile = _profile(pool, fn, isolate_pool)
        used_by(pool)

    def holds(self) -> bool:
        """Return True if the function still has its profile, its name and its pool of isolates."""
        reference = self.reference
        return (
            self.profile.owner is not None
            and find(reference.module, reference.qualname) is self.named
            and isolate_pool_for(reference, self.isolation) is self.isolate_pool
        )


def isolated_call(
    loop_binding: LoopBinding,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    isolation: Isolation = "auto",
    on_round_trip: Callable[[RoundTrip], object] | None = None,
    *,
    spills: bool = False,
) -> LoopCall:
    """Make, and do not push, a call that runs in another interpreter.

    Inside an isolate it is a call in a thread, because nothing is carried any further from there; a pool
    that runs calls at once runs it at once.

    Args:
        loop_binding: Through which it goes out.
        fn: The function, without what wraps it.
        args: Positional arguments; they must not change until the call has ended.
        kwargs: Keyword arguments.
        isolation: "process", "interpreter", or "auto" for the latter where there are any.
        on_round_trip: Hears, in any thread, what a call cost that returned or raised.
        spills: Fail the call with `IsolateStartError` rather than let it wait for long for an isolate.

    Raises:
        NotPortableError: Another interpreter could not find the function.
        IsolateStartError: The call `spills`, and others wait in vain for an isolate.
    """
    if inside() or loop_binding.at_once:
        call = loop_binding.call_type(loop=loop_binding.loop)
        return _ready(call, loop_binding, fn, args, kwargs, loop_binding.pool.profiles.of(fn))
    isolate_route = isolate_route_of(loop_binding, fn, isolation)
    limiter, profile = isolate_route.isolate_pool.limiter, isolate_route.profile
    if spills and limiter.stands_still and profile.usual_ns < LENGTHY_NS:
        raise no_isolate_free()
    remote_invocation = RemoteInvocation(
        isolate_route.reference,
        isolate_route.isolate_pool,
        on_round_trip,
        loop_binding.setup,
        loop_binding.variables,
        crossing_context(loop_binding.variables),
    )
    call = IsolatedCall(isolate_route, remote_invocation, loop_binding.loop)
    call.spills = spills
    return _ready(call, loop_binding, remote_invocation, args, kwargs, profile)


def isolate_route_of(loop_binding: LoopBinding, fn: Callable[..., Any], isolation: Isolation) -> IsolateRoute:
    """Return the way of a function's calls to their isolates.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """
    isolate_route = loop_binding.isolate_routes.get((isolation, id(fn)))
    if isolate_route is None or not isolate_route.holds():
        isolate_route = _new_route(loop_binding, fn, isolation)
    return isolate_route


def generator_step(
    loop_binding: LoopBinding,
    isolate_route: IsolateRoute,
    remote_invocation: RemoteInvocation,
    run: Callable[[], None],
) -> LoopCall:
    """Make, and do not push, a call that advances or closes a generator in its isolate."""
    if isolate_route.profile.owner is not loop_binding.pool.profiles:  # its runtime has closed
        isolate_route = isolate_route_of(loop_binding, isolate_route.fn, isolate_route.isolation)
    call = IsolatedCall(isolate_route, remote_invocation, loop_binding.loop)
    return _ready(call, loop_binding, run, (), {}, isolate_route.profile)


def warm_up(loop_binding: LoopBinding, router: Router, isolation: Isolation = "auto") -> None:
    """Start isolates for a function ahead of its calls, as many as may run at once, and import its module.

    The calls of the function run in threads until all of them are ready.
    """
    router.wants_isolates, router.warmed = False, True
    if inside() or loop_binding.at_once or loop_binding.pool.refusal is not None:
        return
    try:
        isolate_route = IsolateRoute(loop_binding, router.fn, isolation)
    except NotPortableError as error:
        router.stay(error)
        return
    calls = [
        _warming_call(loop_binding, isolate_route) for _ in range(isolate_route.isolate_pool.limiter.limit)
    ]
    loop_binding.warming.update(calls)
    router.warming_calls = tuple(calls)
    for call in calls:
        call.add_done_callback(partial(_warmed, loop_binding))
        try:
            call.go()
        except RuntimeError as error:  # the pool closes
            call.set_exception(error)


def calls_at_once(loop_binding: LoopBinding, fn: Callable[..., Any], isolation: Isolation = "auto") -> int:
    """Return how many calls of a function may run in isolates at once.

    Raises:
        NotPortableError: Another interpreter could not find the function.
    """
    if inside() or loop_binding.at_once:
        return 1
    return isolate_pool_for(refer(fn, pickles=False), isolation).limiter.limit


def _warming_call(loop_binding: LoopBinding, isolate_route: IsolateRoute) -> LoopCall:
    remote_invocation = WarmingInvocation(
        isolate_route.reference, isolate_route.isolate_pool, None, loop_binding.setup
    )
    call = IsolatedCall(isolate_route, remote_invocation, loop_binding.loop)
    profile = loop_binding.pool.profiles.under(_WARMING, lambda: IsolateProfile(_WARMING, _WARMING))
    return _ready(call, loop_binding, remote_invocation, (), {}, profile)


def _warmed(loop_binding: LoopBinding, call: asyncio.Future[Any]) -> None:
    """Take note that one isolate is ready, or will not be: the first call then tells why."""
    assert isinstance(call, IsolatedCall)
    loop_binding.warming.discard(call)
    if not call.cancelled() and (error := call.exception()) is not None:
        logger.debug("an isolate for %s could not be made ready: %r", call.isolate_route.reference, error)


def _new_route(loop_binding: LoopBinding, fn: Callable[..., Any], isolation: Isolation) -> IsolateRoute:
    isolate_route, key = IsolateRoute(loop_binding, fn, isolation), (isolation, id(fn))
    if isolate_route.reference.pickled is None:  # else what it holds may change between two calls
        if len(loop_binding.isolate_routes) >= _ROUTES_MAX and key not in loop_binding.isolate_routes:
            loop_binding.isolate_routes.clear()
        loop_binding.isolate_routes[key] = isolate_route
    return isolate_route


def _ready(
    call: LoopCall,
    loop_binding: LoopBinding,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    profile: Profile,
) -> LoopCall:
    call.state = QUEUED
    call.fn, call.args, call.kwargs = fn, args, kwargs
    call.context = None  # the remote invocation takes along what is to cross
    call.completions, call.pool, call.profile = loop_binding.completions, loop_binding.pool, profile
    return call


def _profile(pool: Pool, fn: Callable[..., Any], isolate_pool: IsolatePool) -> IsolateProfile:
    """Return the profile of the function in this kind of isolate, beside that of its calls in threads."""
    own_key, own_name, _ = identify(fn)
    name = "process" if isolate_pool is processes else "interpreter"
    key = (name, own_key)
    profile = pool.profiles.under(key, lambda: IsolateProfile(key, f"{own_name} [{name}]"))
    assert isinstance(profile, IsolateProfile)
    return profile
