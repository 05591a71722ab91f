"""An offloaded function: what `offload` makes, and the way of its calls."""

from __future__ import annotations

import errno
import inspect
from asyncio import TimerHandle, _get_running_loop
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial, update_wrapper
from sys import modules
from types import MethodType, ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hybridrt.callables import (
    CLASSMETHOD_HIDES,
    FORWARD_HINTS,
    Binding,
    binds,
    is_below_classmethod,
    mark_as_coroutine_function,
)
from hybridrt.deadline import Bound, current_scope, scopes
from hybridrt.errors import IsolateInitializerError, IsolateStartError, NotPortableError, WorkerLostError
from hybridrt.loop.binding import LoopBinding, current_binding, known_binding, make_call
from hybridrt.loop.call import LoopCall
from hybridrt.loop.cancel_scopes import BACKEND, within_scope
from hybridrt.loop.first_calls import Held
from hybridrt.loop.inline import HANDLING_NS
from hybridrt.loop.lane_deadlock import NestingWatch, note_holder, refuse_nesting, watch_nesting
from hybridrt.loop.router import Router
from hybridrt.loop.size_class import NotInline, SizeClass
from hybridrt.observe.function_name import function_name
from hybridrt.observe.functions import Profile
from hybridrt.observe.placement import measure
from hybridrt.options import Options, make_options, place, placed_alike
from hybridrt.pool.limiters import Limiter, lane_limiter
from hybridrt.pool.state import Pool

__all__ = ["Offloaded"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


@cache
def _isolated() -> ModuleType:
    """Return the module of calls in isolates; it loads what starts processes, which few programs need.

    Raises:
        IsolateStartError: It cannot be loaded now.
    """
    try:
        from hybridrt.loop import isolated_call as isolated_call_module
    except (OSError, ImportError) as error:  # no file can be opened; the latter says so of extensions
        raise IsolateStartError(
            errno.EAGAIN, f"what starts isolates could not be loaded, so the call has not begun ({error})"
        ) from error
    return isolated_call_module


class _Signature:
    """Works out the signature when it is asked for; a `__getattr__` would slow every attribute down."""

    def __get__(self, offloaded: Offloaded[..., Any] | None, owner: type) -> inspect.Signature:
        if offloaded is None:  # the class has the one of its `__init__`
            raise AttributeError("__signature__")
        fn, head = offloaded._fn, offloaded._head
        called = MethodType(fn, head[0]) if head else fn
        try:
            found = inspect.signature(called)
        except (ValueError, TypeError):
            raise AttributeError("__signature__") from None  # some builtins have none
        except (NameError, AttributeError):
            return inspect.signature(called, **FORWARD_HINTS)
        offloaded.__dict__["__signature__"] = found
        return found


class Offloaded(Generic[P, R]):
    """A function whose calls run off the event loop.

    Calling it gives a coroutine, always; the call is submitted when that is awaited. As a class
    attribute it binds like a function: `await obj.method(x)`, `obj.method.sync(x)`.
    """

    _yields = False

    def __init__(
        self,
        fn: Callable[P, R],
        options: Options,
        *,
        binding: Binding = "object",
        head: tuple[Any, ...] = (),
        limiter: Limiter[Any] | None = None,
        router: Router | None = None,
    ) -> None:
        if attributes := getattr(fn, "__dict__", None):
            # Before ours, which they must not replace. Asking for `__dict__` keeps 3.11 from specialising
            # looks at attributes, so plain functions are spared that.
            self.__dict__.update(
                {key: value for key, value in attributes.items() if not hasattr(Offloaded, key)}
            )
        update_wrapper(self, fn, updated=())
        self._fn = fn
        self._binding: Binding = binding if binding == "class" or binds(fn) else "nothing"
        self._options = options
        self._special = options.special
        self._router = place(fn, options) if router is None else router
        self._head = head
        self._profile: Profile | None = None
        self._limiter = limiter
        if limiter is None and options.limit is not None:
            self._limiter = Limiter(options.limit, getattr(fn, "__qualname__", repr(fn)))
        mark_as_coroutine_function(self)

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function where it is cheapest, and return what it returns."""
        if self._router is not None:
            loop_binding = known_binding(_get_running_loop()) or current_binding()
            placed = self._head + args if self._head else args
            value = self._router.run_inline(loop_binding, placed, kwargs)
            if type(value) is NotInline:
                value = await self._run_placed(loop_binding, placed, kwargs, value)
            return value  # type: ignore[no-any-return]
        call = self._make(current_binding(), self._head + args if self._head else args, kwargs)
        try:
            return await self._run(call)  # type: ignore[no-any-return]
        finally:
            del call  # an error's traceback holds this frame

    def sync(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not decorated."""
        self._check_class()
        return self._fn(*self._head, *args, **kwargs)

    def options(self, **changes: Any) -> Offloaded[P, R]:
        """Return the same function with other options; keep it: each `limit` so made counts for itself."""
        self._check_class()
        limiter = None if "limit" in changes else self._limiter
        chosen = make_options(replace, self._options, changes)
        self._check_kind(chosen)
        router = self._router if placed_alike(chosen, self._options) else None
        return type(self)(
            self._fn, chosen, binding=self._binding, head=self._head, limiter=limiter, router=router
        )

    def _check_kind(self, chosen: Options) -> None:
        """Refuse options that would make another kind of function of this one.

        Raises:
            ValueError: `batch` comes or goes, or `buffer` is given for a function that returns once.
        """
        name = function_name(self._fn)
        if (chosen.batch is None) is not (self._options.batch is None):
            raise ValueError(
                f"whether calls of {name} are batched is settled where it is decorated, got "
                f"batch={chosen.batch!r}; use offload(function, batch=...) for another one"
            )
        if chosen.buffer is not None and not self._yields:
            raise ValueError(
                f"buffer is for what a generator function yields, got buffer={chosen.buffer} for {name}, "
                "which returns once; leave it out"
            )

    def _check_class(self) -> None:
        """Refuse to work without the class that `@classmethod` above us keeps from us on 3.13 and later.

        There it binds like a method, whose attributes are those of the unbound function.
        """
        if CLASSMETHOD_HIDES and not self._head and is_below_classmethod(self):
            raise TypeError(
                f"{function_name(self._fn)} is offloaded below @classmethod, which on this version of Python "
                "hides the class from .sync and .options; write @offload above @classmethod"
            )

    @overload
    def __get__(self, obj: None, owner: type | None = None) -> Offloaded[P, R]: ...
    @overload
    def __get__(
        self: Offloaded[Concatenate[S, Q], R], obj: S, owner: type | None = None
    ) -> Offloaded[Q, R]: ...
    @overload  # a class method
    def __get__(
        self: Offloaded[Concatenate[type[S], Q], R], obj: S, owner: type | None = None
    ) -> Offloaded[Q, R]: ...
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if self._binding == "class":
            obj = type(obj) if owner is None else owner
        if obj is None or self._head or self._binding == "nothing":  # what is bound is not bound again
            return self
        return self._bind(obj)

    def _bind(self, obj: Any) -> Any:
        # Made at each look at the attribute, so nothing is worked out anew.
        cls = type(self)
        bound: Offloaded[..., Any] = cls.__new__(cls)
        bound.__dict__.update(self.__dict__)
        bound.__dict__.pop("__signature__", None)
        bound._head = (obj,)
        return bound

    def __eq__(self, other: object) -> bool:
        """Return True if it is the same function of the same object with the same options, as of methods."""
        if not (isinstance(other, Offloaded) and self._head and other._head):
            return self is other
        alike = self._fn is other._fn and self._options is other._options
        return alike and self._head[0] is other._head[0]

    def __hash__(self) -> int:
        return hash((id(self._fn), id(self._head[0]))) if self._head else object.__hash__(self)

    __signature__ = _Signature()

    def __repr__(self) -> str:
        return f"<offloaded {self._fn!r}>"

    def __copy__(self) -> Offloaded[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Offloaded[P, R]:
        """Return the function itself, as of all functions; a bound one is bound to a copy of its object."""
        return self._bind(deepcopy(self._head[0], memo)) if self._head else self

    def __reduce__(self) -> str | tuple[Any, ...]:
        fn, head = self._fn, self._head
        qualname: str | None = getattr(fn, "__qualname__", None)
        if qualname is None:  # a partial or an object, which goes along
            return partial(type(self), binding=self._binding, head=head), (fn, self._options)
        if not head:
            return qualname
        found = getattr(head[0], fn.__name__, None)
        if isinstance(found, Offloaded) and found._fn is fn and found._options is not self._options:
            return Offloaded._with, (found, self._options)
        return getattr, (head[0], fn.__name__)

    def _with(self, options: Options) -> Offloaded[P, R]:
        return type(self)(self._fn, options, binding=self._binding, head=self._head)

    async def run_on(self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call through a given loop's binding."""
        args = self._head + args
        if self._router is None:
            return await self._run(self._make(loop_binding, args, kwargs))
        value = self._router.run_inline(loop_binding, args, kwargs)
        if type(value) is NotInline:
            value = await self._run_placed(loop_binding, args, kwargs, value)
        return value

    async def _run_placed(
        self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any], now: NotInline
    ) -> Any:
        """Run a call that may not run on the loop now: in its next turn, in an isolate or in a thread."""
        router = self._router
        assert router is not None
        if now.room_ns and not self._special:
            await loop_binding.turn.wait(now.room_ns)
            value = router.run_inline(loop_binding, args, kwargs, HANDLING_NS - now.room_ns)
            if type(value) is not NotInline:
                return value
        size = measure(args, kwargs) if router.forced is None else None
        waits_since = begun = loop_binding.loop.time() if self._special else None
        size_class = router.size_class(size)
        has_place = not router.is_decided(size_class) and self._may_be_held(loop_binding)
        if has_place and (held := self._enter(router, loop_binding, size_class)) is not None:
            has_place = await self._wait_for_place(held, begun)
            if (
                not has_place
                and type(value := router.run_inline(loop_binding, args, kwargs)) is not NotInline
            ):
                return value
        try:
            if router.choose(size_class) == "isolate":
                try:
                    note = partial(
                        router.crossed, size_class, size, loop_binding, self._own_profile(loop_binding.pool)
                    )
                    make, isolation = _isolated().isolated_call, self._options.isolation
                    spills = router.forced is None
                    call = make(loop_binding, self._fn, args, kwargs, isolation, note, spills=spills)
                    try:
                        return await self._run(call, begun, begun)
                    finally:
                        if call.unready and not router.warming:  # else the next calls fare no better
                            router.wants_isolates = True
                        del call
                except NotPortableError as error:
                    if router.forced is not None:
                        raise
                    router.stay(error)
                    waits_since = None
                except (IsolateInitializerError, IsolateStartError, WorkerLostError) as error:
                    if router.forced is not None or error.started:
                        raise  # else the next call tries again: what was lacking may come back
                    if isinstance(error, WorkerLostError):
                        router.no_isolate_lasted(error)
            call = self._make(loop_binding, args, kwargs)
            call.fn = partial(router.work, size_class, size, loop_binding, call.profile)
            try:
                return await self._run(call, begun, waits_since)
            finally:
                del call
        finally:
            try:
                if router.wants_isolates:
                    with suppress(IsolateStartError):
                        _isolated().warm_up(loop_binding, router, self._options.isolation)
            finally:
                if has_place:
                    router.first.leave()

    async def _wait_for_place(self, held: Held, begun: float | None) -> bool:
        """Wait until a first call may go on, within the deadline of the block it is called in."""
        scope = current_scope.get() if scopes.ever_used else None
        bound = None if scope is None else scope.bound(held)
        try:
            return await held.wait(begun, self._options.timeout, self._options.queue_timeout)
        finally:
            if bound is not None:
                bound.cancel()

    def _may_be_held(self, loop_binding: LoopBinding) -> bool:
        """Return True if first calls may have to wait; in a lane no others run beside them anyway."""
        usual = loop_binding.pool.measures and loop_binding.pool.refusal is None and not loop_binding.at_once
        return usual and self._options.lane is None

    def _enter(self, router: Router, loop_binding: LoopBinding, size_class: SizeClass) -> Held | None:
        """Let a first call go on, or return what it is to wait for."""
        is_decided = partial(router.is_decided, size_class)
        return router.first.enter(loop_binding.held, self._own_profile(loop_binding.pool), is_decided)

    def _run(
        self, call: LoopCall, begun: float | None = None, waits_since: float | None = None
    ) -> Awaitable[Any]:
        """Submit a call, now or when that is awaited, and return what to await.

        Args:
            call: The call.
            begun: Since when its `timeout` runs, by the loop's time; None for now.
            waits_since: The same of its `queue_timeout`.
        """
        if self._special or (scopes.ever_used and current_scope.get() is not None):
            return self._run_specially(call, begun, waits_since)
        call.go()
        return within_scope(call) if BACKEND in modules else call

    def _make(self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoopCall:
        return make_call(loop_binding, self._fn, self._own_profile(loop_binding.pool), args, kwargs)

    def _own_profile(self, pool: Pool) -> Profile:
        profile = self._profile
        if profile is None or profile.owner is not pool.profiles:
            profile = self._profile = pool.profiles.of(self._fn)
        return profile

    async def _run_specially(self, call: LoopCall, begun: float | None, waits_since: float | None) -> Any:
        timers = self._start(call, begun, waits_since)
        try:
            return await within_scope(call)
        finally:
            for timer in timers:
                timer.cancel()
            del call  # an error's traceback holds this frame

    def _start(
        self, call: LoopCall, begun: float | None, waits_since: float | None
    ) -> list[NestingWatch | TimerHandle | Bound]:
        """Submit a call by its options, and return what is to be cancelled when it has ended.

        Raises:
            LaneNestingError: The calling thread holds the lane.
            OffloadTimeoutError: The deadline of the block it is called in is over.
        """
        options, loop = self._options, call.get_loop()
        scope = current_scope.get()
        if scope is not None:
            scope.check(call.profile.name)
        now = loop.time()
        lane = self._lane()
        own = (self._limiter, lane)
        call.limiters = tuple(limiter for limiter in own if limiter is not None) + call.limiters
        if lane is not None:
            note_holder(call, lane)
        call.abandon_on_cancel = options.abandon_on_cancel
        call.go()
        watch = None if lane is None else watch_nesting(call, lane)
        timers: list[NestingWatch | TimerHandle | Bound] = [] if watch is None else [watch]
        if scope is not None:
            timers.append(scope.bound(call))
        if options.timeout is not None:
            left = options.timeout - (0.0 if begun is None else now - begun)
            timers.append(loop.call_later(left, call.expire, options.timeout))
        if options.queue_timeout is not None:
            left = options.queue_timeout - (0.0 if waits_since is None else now - waits_since)
            timers.append(loop.call_later(left, call.expire_in_queue, options.queue_timeout))
        return timers

    def _lane(self) -> Limiter[Any] | None:
        """Return the limiter of the lane, unless the calling thread holds it."""
        if self._options.lane is None:
            return None
        limiter = lane_limiter(self._options.lane)
        refuse_nesting(limiter, function_name(self._fn))
        return limiter
