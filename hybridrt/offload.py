"""The decorator: a synchronous function becomes one that is awaited and runs off the loop."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from sys import modules
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, final, overload

from hybridrt.batches.offloaded import Batched
from hybridrt.callables import check_function, is_generator_function, peel
from hybridrt.deadline import current_scope, scopes
from hybridrt.loop.binding import LoopBinding, make_call
from hybridrt.loop.cancel_scopes import BACKEND, within_scope
from hybridrt.observe.function_name import function_name
from hybridrt.offloaded import Offloaded
from hybridrt.options import IN_PLACE, Options, make_options
from hybridrt.streams.offloaded import OffloadedGenerator
from hybridrt.values import Isolation, Where

__all__ = ["Offloaded", "is_async", "offload", "offload_awaited", "submit"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
_ABSENT: Any = object()


class CallOptions(TypedDict, total=False):
    """The options of a function that returns; see `offload`."""

    pure: bool
    where: Where
    timeout: float | None
    queue_timeout: float | None
    limit: int | None
    lane: object
    abandon_on_cancel: bool | None
    isolation: Isolation


class StreamOptions(CallOptions, total=False):
    """The options of a generator function."""

    buffer: int | None


class BatchOptions(CallOptions, total=False):
    """The options of a batched function beside its size."""

    batch_wait: float | None


class _Results(Protocol[R_co]):
    """What a batched function may return: a list, a tuple, an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> R_co: ...


class _BatchedMethod(Protocol[T, R]):
    """A batched function of an object and a list, which becomes one of an item when it is bound."""

    def __get__(self, obj: object, owner: type | None = None) -> Batched[T, R]: ...


class _BatchDecorator(Protocol):
    """What `offload(batch=...)` gives."""

    @overload
    def __call__(self, fn: Callable[[list[T]], _Results[R]], /) -> Batched[T, R]: ...
    @overload
    def __call__(self, fn: Callable[[Any, list[T]], _Results[R]], /) -> _BatchedMethod[T, R]: ...


@final
class _Nothing:
    """What no function returns. A type checker takes `Any` for any type, also for this one, and stops at the
    first overload: without this it would take a function that returns `Any` for a generator function."""


class _Decorator(Protocol):
    """What `offload(option=...)` gives."""

    @overload
    def __call__(self, fn: Callable[P, _Nothing], /) -> Offloaded[P, Any]: ...
    @overload
    def __call__(self, fn: Callable[P, Iterator[T]], /) -> OffloadedGenerator[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Offloaded[P, R]: ...


@overload
def offload(
    fn: Callable[[list[T]], _Results[R]], /, *, batch: int, **options: Unpack[BatchOptions]
) -> Batched[T, R]: ...
@overload
def offload(fn: Callable[P, _Nothing], /, **options: Unpack[CallOptions]) -> Offloaded[P, Any]: ...
@overload
def offload(
    fn: Callable[P, Iterator[T]], /, **options: Unpack[StreamOptions]
) -> OffloadedGenerator[P, T]: ...
@overload
def offload(fn: Callable[P, R], /, **options: Unpack[CallOptions]) -> Offloaded[P, R]: ...
@overload
def offload(*, batch: int, **options: Unpack[BatchOptions]) -> _BatchDecorator: ...
@overload
def offload(**options: Unpack[StreamOptions]) -> _Decorator: ...
def offload(fn: Any = _ABSENT, /, **options: Any) -> Any:
    """Run calls of a synchronous function where they are cheapest and do not stop the event loop.

    Use it for parsing, tokenising, embedding, scoring, serialising, and blocking calls. Without `pure`
    they run in threads: do not use that for functions of a few microseconds (one hand-over costs some 25
    to 150 us when made alone), and do not expect it to help against a single C call that holds the GIL
    (`json.loads` of megabytes): the loop stands still until it ends, in whatever thread it runs.

    A `pure` function runs on the loop while its calls with inputs of that size take less than 100 us, in
    an isolate (another process, or a sub-interpreter) once that is measured to cost less than a thread,
    and in a thread otherwise. `explain(fn)` says where and why; `help(hybridrt)` has what each place means
    for context variables, cancelling, timeouts and exceptions.

    Where `asyncio.to_thread` was before: `asyncio.wait_for`, `asyncio.timeout` and a cancelled request ended
    the await at once there, and the thread went on. Here the await ends when the running call ends, unless
    `abandon_on_cancel=True` is said here or to the `Runtime`.

    All times are in seconds. Inside a `Runtime` calls run on its executor, elsewhere on one private
    executor shared by all loops; the loop's default executor is left alone.

    Args:
        fn: The function; a coroutine function is refused. A generator function gives an async iterator; see
            `OffloadedGenerator`.
        pure: It shares no state, its arguments and its result can be pickled, and it may run on the loop,
            elsewhere, and twice.
        where: "auto": threads, or for a `pure` function the cheapest place. "thread". "inline": every call
            on the loop, however long it takes; none of the options below goes with it. "isolate": every
            call of a `pure` function in an isolate.
        timeout: From call to result. When it is over, `OffloadTimeoutError` is raised; a queued
            call is removed, a running one is abandoned: it goes on, its result is dropped. None: no
            limit. 0: only a result that is there already would do. Of a generator: for each item.
        queue_timeout: Until the call must have started; one that has not is removed and never runs.
        limit: Calls of this function at once, over all loops. The others wait in order.
        lane: A name, or an object by its identity. Calls in one lane never overlap, whatever their
            function and loop. For things that are not thread-safe. Within a call of the lane another of it
            raises `LaneNestingError` if the first would wait for it: in the same thread, or through the loop
            with `run_coroutine_threadsafe(...).result()`. One that is only started there queues.
        abandon_on_cancel: What cancelling does to a running call. False: the await ends when the
            call ends, then raises `CancelledError`. True: it raises at once and the call goes on
            unwatched, or is killed with its process. A queued call is removed at once and never runs,
            either way. None: as the `Runtime` says, False where it does not.
        isolation: What an isolated call runs in. "auto": a sub-interpreter on Python 3.14 and later, unless
            an extension module refuses those, else a process. "process": a crash takes the process and
            nothing else. "interpreter": a crash there takes the whole program. CPython 3.14 can also crash at
            the end of a program while a call ends that was left behind in one.
        batch: Calls that run together at most. The function takes a list and returns a list of the same
            length; callers give one item each, and it gets those of all callers that have come while its
            last batch ran. See `Batched`. None: it is called for each call.
        batch_wait: Seconds that a batch which is not full waits for more calls, from its first. None: it
            does not wait, which is best for most.
        buffer: Items that a generator may be ahead of its consumer, at least 1. None: 64.

    Returns:
        An `Offloaded`: awaited where it is called, with `.sync(...)` and `.options(...)`. Of a generator
        function an `OffloadedGenerator`, for `async for`; with `batch` a `Batched`, called with one item.

    In a class write `@offload` above `@classmethod` and `@staticmethod`. Below them calls can be awaited
    just as well, but from Python 3.13 on `@classmethod` hides the class from `.sync` and `.options`. Type
    checkers take either for a method: for them call a class method through an object, and a static method
    through the class.

    Raises:
        TypeError: `fn` cannot be offloaded, or an option is unknown or of the wrong type.
        ValueError: An option is out of its range, or does not go with another.
        NotImplementedError: `where` names a placement of a later version.

    Example:
        >>> @offload(timeout=5.0)
        ... def count_words(text: str) -> int:
        ...     return len(text.split())
        >>> count_words.sync("two words")
        2
    """
    chosen = make_options(Options, options)
    if fn is _ABSENT:
        return lambda fn: offload(fn, **options)
    return _offload(fn, chosen)


def offload_awaited(fn: Callable[..., Any]) -> Any:
    """Do the same where what the function returns is awaited: it may pass on a coroutine."""
    return _offload(fn, Options(), awaits=True)


def _offload(fn: Any, chosen: Options, *, awaits: bool = False) -> Any:
    fn, binding = peel(fn)
    if isinstance(fn, Offloaded):
        raise TypeError(f"{fn!r} is offloaded already; use .options(...) to change its options")
    if is_generator_function(fn):
        if chosen.batch is not None:
            raise ValueError(
                "batch is for a function that returns a list, got the generator function "
                f"{function_name(fn)}; return the results of the whole batch instead of yielding them"
            )
        return OffloadedGenerator(fn, chosen, binding=binding)
    check_function(fn, awaits=awaits)
    made: Offloaded[..., Any] = (Offloaded if chosen.batch is None else Batched)(fn, chosen, binding=binding)
    made._check_kind(chosen)
    return made


def submit(
    loop_binding: LoopBinding, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    """Run one call of a function that is not offloaded, without options, and return what to await.

    Raises:
        TypeError: The function cannot be offloaded.
    """
    if IN_PLACE == "inline" or (scopes.ever_used and current_scope.get() is not None):
        offloaded: Offloaded[..., Any] = offload(fn)
        return offloaded.run_on(loop_binding, args, kwargs)
    fn, _ = peel(fn)
    check_function(fn)
    call = make_call(loop_binding, fn, loop_binding.pool.profiles.of(fn), args, kwargs)
    call.go()
    return within_scope(call) if BACKEND in modules else call


def is_async(fn: Any) -> bool:
    """Return True if calling `fn` gives something to await."""
    return (
        isinstance(fn, Offloaded)
        or inspect.iscoroutinefunction(fn)
        or inspect.iscoroutinefunction(type(fn).__call__)
    )
