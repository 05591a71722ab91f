"""Tools: functions that a model may call, described to it by their hints and their docstring."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, overload

from hybridrt.agents.measured import Measure, WatchedFunction, measure_coroutine, measure_offloaded
from hybridrt.agents.retrying import Retries
from hybridrt.agents.schema import describe, plain_function, read_docstring
from hybridrt.arguments import check_count, check_flag, check_seconds
from hybridrt.batches.offloaded import Batched
from hybridrt.callables import gives, mark_as_coroutine_function
from hybridrt.errors import OffloadTimeoutError
from hybridrt.loop.completions import forget_idle
from hybridrt.offload import Offloaded, offload_awaited
from hybridrt.values import Where

__all__ = ["Tool", "as_tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
"""What the chat completions protocol allows."""
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """How a tool is called; see `tool`."""

    name: str | None = None
    description: str | None = None
    timeout: float | None = None
    retries: Retries = field(default_factory=Retries)
    limit: int | None = None
    pure: bool = False
    where: Where = "auto"

    def __post_init__(self) -> None:
        for name in ("name", "description"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a str or None, got {value!r}")
        check_seconds("timeout", self.timeout, optional=True, zero=False)
        check_count("limit", self.limit, least=1, optional=True)
        check_flag("pure", self.pure)

    def options(self) -> dict[str, Any]:
        """Return those that `offload` has, too, as far as they say something."""
        given = {"timeout": self.timeout, "limit": self.limit, "pure": self.pure, "where": self.where}
        usual = {"timeout": None, "limit": None, "pure": False, "where": "auto"}
        return {name: value for name, value in given.items() if value != usual[name]}


class Tool(Generic[P, R]):
    """A function that a model may call; `tool` makes it.

    Calling it calls the function, as if it were not decorated: a plain function at once and here, a
    coroutine function gives its coroutine. `invoke` calls it as an agent does: checked, in its place,
    with its timeout, retries and limit.

    Attributes:
        name: What the model calls it.
        description: What the model is told of it.
        parameters: The JSON schema of its arguments, an object.
    """

    def __init__(self, fn: Callable[P, R], settings: _Settings) -> None:
        functools.update_wrapper(self, fn, updated=())
        docstring = read_docstring(inspect.getdoc(plain_function(fn)))
        self.name = _name_of(fn, settings.name)
        self.description = docstring.text if settings.description is None else settings.description
        self._fn = fn
        self._settings = settings
        self._call = _caller(fn, self.name, settings)
        self._arguments = describe(fn, self.name, docstring)
        if inspect.iscoroutinefunction(fn):
            mark_as_coroutine_function(self)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self._arguments.schema

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were not decorated."""
        return self._fn(*args, **kwargs)

    def definition(self) -> dict[str, Any]:
        """Return the tool as the chat completions protocol describes one."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    async def invoke(self, arguments: str | Mapping[str, Any] = "") -> Any:
        """Call the function in its place, with timeout, retries and limit, and return its value.

        Args:
            arguments: A JSON object, as a model gives it, or keyword arguments; empty for none.

        Raises:
            ArgumentsError: They do not fit the schema; the function was not called.
            OffloadTimeoutError: The last attempt took longer than `timeout`.
            Exception: What the function raised in its last attempt.
        """
        return await self._invoke(arguments, Measure())

    async def _invoke(self, arguments: str | Mapping[str, Any], measure: Measure) -> Any:
        read = self._arguments.read
        kwargs = read(arguments)

        async def attempt() -> Any:
            measure.attempts += 1
            measure.place, measure.queue_wait, measure.wall, measure.cpu = None, 0.0, 0.0, None
            # The attempt before may have changed its arguments, or may still use them.
            fresh = kwargs if measure.attempts == 1 else read(arguments)
            return await self._call(measure, fresh)

        return await self._settings.retries.run(attempt)

    def __repr__(self) -> str:
        return f"<tool {self.name} {self._fn!r}>"

    def __reduce__(self) -> str:
        return getattr(self._fn, "__qualname__", self.name)


def _name_of(fn: Any, given: str | None) -> str:
    name = given if given is not None else getattr(fn, "__name__", "")
    if not _NAME.match(name):
        raise TypeError(
            f"expected a tool's name of 1 to 64 letters, digits, _ and -, got {name!r} of {fn!r}; "
            'say another, as in tool(name="search")'
        )
    return name


_Call = Callable[[Measure, dict[str, Any]], Awaitable[Any]]


def _caller(fn: Any, name: str, settings: _Settings) -> _Call:
    """Return what calls a function in its place.

    Raises:
        TypeError: It returns no single value, or an option makes no sense for it.
    """
    given = gives(fn)
    if given in ("generator", "asynchronous generator"):
        raise TypeError(
            f"expected a tool that returns one value, got the generator function {name}; return a list"
        )
    if isinstance(fn, Batched):
        raise TypeError(
            f"expected a tool that takes the arguments of one call, got {name}, which takes a list of them "
            "(batch=); call it from a coroutine function, and make that one the tool"
        )
    if given == "coroutine" and not isinstance(fn, Offloaded):
        return _coroutine_caller(fn, name, settings)
    offloaded: Offloaded[..., Any] = fn if isinstance(fn, Offloaded) else offload_awaited(fn)
    if options := settings.options():
        offloaded = offloaded.options(**options)
    wait = _coroutine_caller(_awaited, name, replace(settings, pure=False, where="auto"))
    return partial(_call_offloaded, WatchedFunction.of(offloaded), wait)


async def _call_offloaded(
    fn: WatchedFunction[..., Any], wait: _Call, measure: Measure, kwargs: dict[str, Any]
) -> Any:
    value = await measure_offloaded(measure, fn, kwargs)
    if not inspect.isawaitable(value):
        return value
    try:
        return await wait(measure, {"value": value})
    finally:
        if inspect.iscoroutine(value):
            value.close()  # it may not have begun


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _coroutine_caller(fn: Callable[..., Any], name: str, settings: _Settings) -> _Call:
    if settings.pure or settings.where not in ("auto", "inline"):
        raise TypeError(
            f"expected pure and where of a plain function, got the coroutine function {name}, which runs on "
            "the loop; make its computing part a function of its own under @offload"
        )
    slots = _Slots(settings.limit)

    async def call(measure: Measure, kwargs: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        timer = asyncio.timeout(settings.timeout)
        try:
            async with timer, slots.of(loop):
                measure.queue_wait = loop.time() - asked
                return await measure_coroutine(measure, fn(**kwargs))
        except TimeoutError as error:
            if not timer.expired():
                raise
            what = "still ran" if measure.place else "did not start"
            raise OffloadTimeoutError(
                f"{name} {what} after its timeout of {settings.timeout} s and was cancelled",
                started=measure.place is not None,
            ) from error

    return call


class _Slots:
    """At most so many calls of one coroutine function at once, on each loop."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._of: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
        """Return what a call on the loop goes through; without a limit, one that is always free."""
        if self._limit is None:
            return asyncio.Semaphore(1)
        slots = self._of.get(loop)
        if slots is None:
            forget_idle(self._of, asyncio.Semaphore.locked)
            slots = self._of[loop] = asyncio.Semaphore(self._limit)
        return slots


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    retries: int = ...,
    retry_on: type[Exception] | tuple[type[Exception], ...] = ...,
    backoff: float = ...,
    limit: int | None = ...,
    pure: bool = ...,
    where: Where = ...,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    retries: int = ...,
    retry_on: type[Exception] | tuple[type[Exception], ...] = ...,
    backoff: float = ...,
    limit: int | None = ...,
    pure: bool = ...,
    where: Where = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Any = _ABSENT,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
    backoff: float = 0.1,
    limit: int | None = None,
    pure: bool = False,
    where: Where = "auto",
) -> Any:
    """Let a model call a function, which stays the function that it is.

    Its name, its hints and its docstring (the text, and in Google's style `Args:`) become what the model is
    told. An agent runs a plain function off the loop, as `offload` does, and a coroutine function on it.
    Use it for anything that a model may decide to call; do not hand it what must not run twice together with
    `retries`. All times are in seconds.

    Args:
        fn: A function, a coroutine function, an offloaded function or a bound method.
        name: What the model calls it. None: the function's own name.
        description: What the model is told. None: the docstring up to its first section.
        timeout: Of each attempt, above 0. Then the attempt fails with `OffloadTimeoutError`: a coroutine is
            cancelled, a function that runs in a thread is left to it, in a process ended. None: no limit.
        retries: Attempts after the first, for the errors in `retry_on`. Between them passes a random time of
            up to `backoff`, twice `backoff` and so on, 30 s at most.
        retry_on: The errors that may go away by themselves, as `ConnectionError`; `OffloadTimeoutError` may
            be among them.
        backoff: Seconds that the wait after the first failure takes at most.
        limit: Calls of it at once: of a plain function over all loops, of a coroutine function on each loop.
        pure: As in `offload`: it shares no state and its arguments can be pickled, so it may run in another
            process. For plain functions only.
        where: As in `offload`, for plain functions only.

    Returns:
        A `Tool`, called as the function was.

    Raises:
        TypeError: It cannot be described by a JSON schema, or an option does not go with it.
        ValueError: An option is out of its range.

    Example:
        >>> @tool(timeout=5.0)
        ... def add(first: int, second: int = 1) -> int:
        ...     \"\"\"Add two numbers.
        ...
        ...     Args:
        ...         first: The one.
        ...         second: The other.
        ...     \"\"\"
        ...     return first + second
        >>> add(1, 2)
        3
        >>> add.parameters["properties"]["second"]
        {'description': 'The other.', 'type': 'integer', 'default': 1}
    """
    settings = _Settings(
        name=name,
        description=description,
        timeout=timeout,
        retries=Retries(
            times=retries, on=retry_on if isinstance(retry_on, tuple) else (retry_on,), backoff=backoff
        ),
        limit=limit,
        pure=pure,
        where=where,
    )
    if fn is _ABSENT:
        return partial(_make_tool, settings=settings)
    return _make_tool(fn, settings)


def _make_tool(fn: Any, settings: _Settings) -> Tool[..., Any]:
    if isinstance(fn, Tool):
        raise TypeError(f"{fn!r} is a tool already; say its options where it is made")
    if isinstance(fn, (classmethod, staticmethod)) or not callable(fn):
        raise TypeError(f"expected a function for a tool, got {fn!r}; decorate what can be called")
    return Tool(fn, settings)


def as_tool(fn: Any) -> Tool[..., Any]:
    """Return a tool, or make one of a function; one below `@offload` keeps what was said of it.

    Raises:
        TypeError: It cannot be a tool.
    """
    if isinstance(fn, Tool):
        return fn
    inner = getattr(fn, "__wrapped__", None)
    if isinstance(fn, Offloaded) and isinstance(inner, Tool):
        own = inner._settings
        return Tool(fn, replace(own, name=inner.name, description=inner.description))
    return _make_tool(fn, _Settings())
