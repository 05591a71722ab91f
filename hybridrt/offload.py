"""The decorator: a synchronous function becomes one that is awaited and runs off the loop."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, get_args, overload

from hybridrt.errors import LaneNestingError
from hybridrt.loop.call import LoopCall
from hybridrt.loop.port import Port, current_port
from hybridrt.observe.functions import Profile
from hybridrt.observe.naming import function_name, unwrap
from hybridrt.pool.call import QUEUED
from hybridrt.pool.gates import Gate, lane_gate
from hybridrt.pool.worker import current_worker
from hybridrt.values import Where

__all__ = ["Offloaded", "is_async", "offload"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Binding = Literal["object", "class", "nothing"]
"""What a function binds to as a class attribute: method, class method or static method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How calls of one function run; see `offload`."""

    pure: bool = False
    where: Where = "auto"
    timeout: float | None = None
    queue_timeout: float | None = None
    limit: int | None = None
    lane: object = None
    abandon_on_cancel: bool = False

    def __post_init__(self) -> None:
        if self.where not in get_args(Where):
            raise ValueError(
                f"where must be one of {', '.join(map(repr, get_args(Where)))}, got {self.where!r}"
            )
        if self.where not in ("auto", "thread"):
            raise NotImplementedError(
                f"where={self.where!r} is not there yet; this version runs calls in threads: use 'auto' or "
                "'thread'"
            )
        for name in ("pure", "abandon_on_cancel"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("timeout", "queue_timeout"):
            _check_seconds(name, getattr(self, name))
        if self.limit is not None and (isinstance(self.limit, bool) or not isinstance(self.limit, int)):
            raise TypeError(f"limit is a number of calls, an int or None, got {self.limit!r}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1 or None, got {self.limit}")

    @property
    def special(self) -> bool:
        """Tell whether anything beyond the plain path is asked for."""
        return (
            self.timeout is not None
            or self.queue_timeout is not None
            or self.limit is not None
            or self.lane is not None
            or self.abandon_on_cancel
        )


def _check_seconds(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is in seconds and must be a number or None, got {value!r}")
    if not value >= 0:
        raise ValueError(f"{name} is in seconds and must be >= 0 or None, got {value!r}")


class Offloaded(Generic[P, R]):
    """A function whose calls run off the event loop.

    Calling it gives a coroutine, always; the call is submitted when that is awaited. As a class
    attribute it binds like a function: `await obj.method(x)`, `obj.method.sync(x)`.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        options: Options,
        *,
        binding: Binding = "object",
        head: tuple[Any, ...] = (),
        limiter: Gate | None = None,
    ) -> None:
        self._fn = fn
        self._binding = binding
        self._options = options
        self._special = options.special
        self._head = head
        self._profile: Profile | None = None
        self._limiter = limiter
        if limiter is None and options.limit is not None:
            self._limiter = Gate(options.limit, getattr(fn, "__qualname__", repr(fn)))
        update_wrapper(self, fn)
        _mark_as_coroutine_function(self)

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function off the loop and return what it returns."""
        call = self._make(current_port(), self._head + args if self._head else args, kwargs)
        try:
            if self._special:
                return await self._run_specially(call)  # type: ignore[no-any-return]
            call.pool.push(call)
            return await call  # type: ignore[no-any-return]
        finally:
            del call  # an error's traceback holds this frame

    def sync(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not decorated."""
        self._check_class()
        return self._fn(*self._head, *args, **kwargs)

    def options(self, **changes: Any) -> Offloaded[P, R]:
        """Return the same function with other options."""
        self._check_class()
        limiter = None if "limit" in changes else self._limiter
        chosen = _options(replace, self._options, changes)
        return Offloaded(self._fn, chosen, binding=self._binding, head=self._head, limiter=limiter)

    def _check_class(self) -> None:
        """Refuse to work without the class that `@classmethod` above us keeps from us on 3.13 and later.

        There it binds like a method, whose attributes are those of the unbound function.
        """
        if _CLASSMETHOD_HIDES and not self._head and _is_below_classmethod(self):
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
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if self._binding == "class":
            obj = type(obj) if owner is None else owner
        if obj is None or self._head or self._binding == "nothing":  # what is bound is not bound again
            return self
        # Made at each look at the attribute, so nothing is worked out anew.
        bound: Offloaded[..., Any] = Offloaded.__new__(Offloaded)
        bound.__dict__.update(self.__dict__)
        bound.__dict__.pop("__signature__", None)
        bound._head = (obj,)
        return bound

    def __getattr__(self, name: str) -> Any:
        """Work out the signature when it is asked for."""
        if name != "__signature__":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            fn = MethodType(self._fn, self._head[0]) if self._head else self._fn
            self.__signature__ = inspect.signature(fn)
        except (ValueError, TypeError):
            raise AttributeError("__signature__") from None  # some builtins have none
        return self.__signature__

    def __repr__(self) -> str:
        return f"<offloaded {self._fn!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._head:
            return getattr, (self._head[0], self._fn.__name__)
        return self._fn.__qualname__

    async def run_on(self, port: Port, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call through a given loop's port."""
        call = self._make(port, self._head + args, kwargs)
        try:
            if self._special:
                return await self._run_specially(call)
            call.pool.push(call)
            return await call
        finally:
            del call

    def _make(self, port: Port, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoopCall:
        call = LoopCall(loop=port.loop)
        call.state = QUEUED
        call.fn = self._fn
        call.args = args
        call.kwargs = kwargs
        call.context = copy_context() if port.copies_context else None
        call.outlet = port.outlet
        pool = call.pool = port.pool
        profile = self._profile
        if profile is None or profile.owner is not pool.profiles:
            profile = self._profile = pool.profiles.of(self._fn)
        call.profile = profile
        return call

    async def _run_specially(self, call: LoopCall) -> Any:
        options, loop = self._options, call.get_loop()
        call.gates = self._gates()
        call.abandon_on_cancel = options.abandon_on_cancel
        call.pool.push(call)
        timers = []
        if options.timeout is not None:
            timers.append(loop.call_later(options.timeout, call.expire, options.timeout))
        if options.queue_timeout is not None:
            timers.append(loop.call_later(options.queue_timeout, call.expire_in_queue, options.queue_timeout))
        try:
            return await call
        finally:
            for timer in timers:
                timer.cancel()
            del call  # an error's traceback holds this frame

    def _gates(self) -> tuple[Gate, ...]:
        gates = () if self._limiter is None else (self._limiter,)
        if self._options.lane is None:
            return gates
        gate = lane_gate(self._options.lane)
        worker = current_worker()
        if worker is not None and worker.call is not None and gate in worker.call.gates:
            raise LaneNestingError(
                f"{function_name(self._fn)} asks for the lane {gate.name} inside a call that holds it and "
                "would wait for itself; call it with .sync(...) there"
            )
        return (*gates, gate)


Q = ParamSpec("Q")


_CLASSMETHOD_HIDES = sys.version_info >= (3, 13)


def _is_below_classmethod(offloaded: Offloaded[..., Any]) -> bool:
    """Tell whether a class of a module has the function as a class method; others are not found."""
    *path, name = getattr(offloaded, "__qualname__", "").split(".")
    owner: Any = sys.modules.get(offloaded.__module__) if path else None
    for part in path:
        owner = getattr(owner, part, None)
    found = getattr(owner, "__dict__", {}).get(name)
    return isinstance(found, classmethod) and found.__func__ is offloaded


def _options(make: Callable[..., Options], *args: Any) -> Options:
    """Make options from names, with an error that lists the names there are."""
    *rest, changes = args
    unknown = set(changes) - set(Options.__slots__)
    if unknown:
        raise TypeError(
            f"offload has no option {', '.join(sorted(unknown))}; it has {', '.join(Options.__slots__)}"
        )
    return make(*rest, **changes)


@overload
def offload(fn: Callable[P, R], /) -> Offloaded[P, R]: ...
@overload
def offload(
    fn: Callable[P, R],
    /,
    *,
    pure: bool = ...,
    where: Where = ...,
    timeout: float | None = ...,
    queue_timeout: float | None = ...,
    limit: int | None = ...,
    lane: object = ...,
    abandon_on_cancel: bool = ...,
) -> Offloaded[P, R]: ...
@overload
def offload(
    *,
    pure: bool = ...,
    where: Where = ...,
    timeout: float | None = ...,
    queue_timeout: float | None = ...,
    limit: int | None = ...,
    lane: object = ...,
    abandon_on_cancel: bool = ...,
) -> Callable[[Callable[P, R]], Offloaded[P, R]]: ...
def offload(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Run calls of a synchronous function off the event loop.

    Use it for parsing, tokenising, embedding, scoring, serialising, and blocking calls. Do not use
    it for functions of a few microseconds (one hand-over costs some 25 to 150 us when made alone),
    and do not expect a thread to help against a single C call that holds the GIL (`json.loads` of
    megabytes): the loop stands still for its length, in whatever thread it runs.

    All times are in seconds. Inside a `Runtime` calls run on its executor, elsewhere on one private
    executor shared by all loops; the loop's default executor is left alone. Each call runs in a copy
    of the caller's context variables. An exception arrives as it was raised; `StopIteration` as the
    cause of a `RuntimeError`.

    Args:
        fn: The function; a coroutine function or generator function is refused.
        pure: It shares no state, its arguments can be pickled, and it may run elsewhere and twice.
            Accepted; calls run in threads in this version.
        where: "auto" or "thread", which mean the same in this version.
        timeout: From call to result. When it is over, `OffloadTimeoutError` is raised; a queued
            call is removed, a running one is abandoned: it goes on, its result is dropped. None: no
            limit. 0: only a result that is there already would do.
        queue_timeout: Until the call must have started; one that has not is removed and never runs.
        limit: Calls of this function at once, over all loops. The others wait in order.
        lane: A name, or an object by its identity. Calls in one lane never overlap, whatever their
            function and loop. For things that are not thread-safe.
        abandon_on_cancel: What cancelling does to a running call. False: the await ends when the
            call ends, then raises `CancelledError`. True: it raises at once and the call goes on
            unwatched. A queued call is removed at once and never runs, either way.

    Returns:
        An `Offloaded`: awaited where it is called, with `.sync(...)` and `.options(...)`.

    In a class write `@offload` above `@classmethod` and `@staticmethod`. Below them calls can be awaited
    just as well, but from Python 3.13 on `@classmethod` hides the class from `.sync` and `.options`.

    Raises:
        TypeError: `fn` cannot be offloaded, or an option is unknown or of the wrong type.
        ValueError: An option is out of its range.
        NotImplementedError: `where` names a placement of a later version.

    Example:
        >>> @offload(timeout=5.0)
        ... def count_words(text: str) -> int:
        ...     return len(text.split())
        >>> count_words.sync("two words")
        2
    """
    chosen = _options(Options, options)
    if fn is None:
        return lambda fn: offload(fn, **options)
    fn, binding = _peel(fn)
    _check_function(fn)
    return Offloaded(fn, chosen, binding=binding)


def _peel(fn: Any) -> tuple[Any, Binding]:
    """Return the function that a class or static method is made of, and what it binds to."""
    if isinstance(fn, classmethod):
        return fn.__func__, "class"
    return (fn.__func__, "nothing") if isinstance(fn, staticmethod) else (fn, "object")


def _check_function(fn: Any) -> None:
    if isinstance(fn, Offloaded):
        raise TypeError(f"{fn!r} is offloaded already; use .options(...) to change its options")
    if not callable(fn):
        raise TypeError(f"offload needs a synchronous function, got {fn!r}")
    inner = unwrap(fn)
    for candidate in (inner, type(inner).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"offload needs a synchronous function, got the coroutine function {fn!r}; "
                "await it on the loop, and offload the computing part that it calls"
            )
        if inspect.isgeneratorfunction(candidate):
            raise TypeError(f"offload cannot run the generator function {fn!r} yet; return a list instead")


async def _as_coroutine_function() -> None:
    """Lends its code flags to offloaded functions: `inspect` on 3.11 goes by them alone."""


def _mark_as_coroutine_function(target: Any) -> None:
    """Make `inspect`, asyncio and frameworks see an async function."""
    for name, value in (("__name__", "offloaded"), ("__defaults__", None), ("__kwdefaults__", None)):
        if not hasattr(target, name):
            setattr(target, name, value)
    target.__code__ = _as_coroutine_function.__code__


def is_async(fn: Any) -> bool:
    """Tell whether calling `fn` gives something to await."""
    return (
        isinstance(fn, Offloaded)
        or inspect.iscoroutinefunction(fn)
        or inspect.iscoroutinefunction(type(fn).__call__)
    )
