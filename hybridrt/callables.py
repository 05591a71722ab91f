"""Callables: which may be offloaded, what they are made of, and how to pass for a coroutine function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import FunctionType, MethodType, WrapperDescriptorType
from typing import Any, Literal

from hybridrt.observe.function_name import unwrap

__all__ = [
    "CLASSMETHOD_HIDES",
    "FORWARD_HINTS",
    "Binding",
    "as_iterator",
    "binds",
    "check_function",
    "gives",
    "is_below_classmethod",
    "is_generator_function",
    "mark_as_async_generator_function",
    "mark_as_coroutine_function",
    "peel",
]

Binding = Literal["object", "class", "nothing"]
"""What a function binds to as a class attribute: method, class method or static method."""


CLASSMETHOD_HIDES = sys.version_info >= (3, 13)
FORWARD_HINTS: dict[str, Any] = {}
"""For `inspect.signature`: hints may name what is not there, or not yet."""
if sys.version_info >= (3, 14):
    from annotationlib import Format

    FORWARD_HINTS["annotation_format"] = Format.FORWARDREF


def is_below_classmethod(offloaded: Any) -> bool:
    """Return True if a class of a module has the function as a class method; others are not found."""
    *path, name = getattr(offloaded, "__qualname__", "").split(".")
    owner: Any = sys.modules.get(offloaded.__module__) if path else None
    for part in path:
        owner = getattr(owner, part, None)
    found = getattr(owner, "__dict__", {}).get(name)
    return isinstance(found, classmethod) and found.__func__ is offloaded


def peel(fn: Any) -> tuple[Any, Binding]:
    """Return the function that a class or static method is made of, and what it binds to."""
    if isinstance(fn, classmethod):
        return fn.__func__, "class"
    return (fn.__func__, "nothing") if isinstance(fn, staticmethod) else (fn, "object")


_NEVER_BOUND = (MethodType,) if sys.version_info >= (3, 14) else (MethodType, partial)


def binds(fn: Any) -> bool:
    """Return True if `fn` as a class attribute becomes a method."""
    return hasattr(type(fn), "__get__") and not isinstance(fn, _NEVER_BOUND)


_SPECIAL = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def _is_plain(fn: Any) -> bool:
    """Return True for most functions that just return, in a fraction of the time that `inspect` takes."""
    if type(fn) is MethodType:
        fn = fn.__func__
    if type(fn) is FunctionType:
        return not (fn.__code__.co_flags & _SPECIAL or fn.__dict__)  # there may be a mark
    return type(fn) is WrapperDescriptorType


def gives(fn: Any) -> Literal["coroutine", "asynchronous generator", "generator"] | None:
    """Return what calling `fn` gives, whatever it wraps; None if it just returns."""
    while isinstance(fn, partial):
        fn = fn.func
    for candidate in (fn, type(fn).__call__):
        if _is_plain(candidate):
            continue
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
        if inspect.isasyncgenfunction(candidate):
            return "asynchronous generator"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return None


def check_function(fn: Any, *, awaits: bool = False) -> None:
    """Refuse what cannot be called, or does not just return.

    Args:
        fn: The function.
        awaits: What it returns is awaited, so a wrapper may pass on a coroutine.

    Raises:
        TypeError: It is something else than a synchronous function.
    """
    if not callable(fn):
        raise TypeError(f"offload needs a synchronous function, got {fn!r}")
    own = gives(fn)
    found = own or gives(unwrap(fn))
    if found is None or (awaits and own is None and found == "coroutine"):
        return
    rest = "" if own else "; or delete the `__wrapped__` of a wrapper that returns a plain value"
    if found == "generator":
        raise TypeError(
            f"expected a function that returns, got the generator function {fn!r}; decorate it with "
            f"@offload and iterate over its call with `async for`{rest}"
        )
    use = "await" if found == "coroutine" else "iterate over"
    raise TypeError(
        f"offload needs a synchronous function, got the {found} function {fn!r}; "
        f"{use} it on the loop, and offload the computing part that it calls{rest}"
    )


def is_generator_function(fn: Any) -> bool:
    """Return True if calling `fn`, or what it wraps, gives a generator."""
    return callable(fn) and (gives(fn) or gives(unwrap(fn))) == "generator"


def as_iterator(made: Any) -> Iterator[Any]:
    """Return what a function has made that was taken for a generator function.

    Raises:
        TypeError: It is no iterator: the function is a wrapper of one, and gives something else.
    """
    if not hasattr(made, "__next__"):
        raise TypeError(
            f"expected an iterator, as a generator function gives, got {type(made).__name__}; "
            "delete the `__wrapped__` of a wrapper that returns a plain value"
        )
    return made  # type: ignore[no-any-return]


async def _as_coroutine_function() -> None:
    """Lends its code flags to offloaded functions: `inspect` on 3.11 goes by them alone."""


async def _as_async_generator_function() -> AsyncIterator[None]:
    """Lends its code flags to offloaded generator functions."""
    yield


def mark_as_async_generator_function(target: Any) -> None:
    """Make `inspect` and frameworks see an async generator function."""
    mark_as_coroutine_function(target)
    target.__code__ = _as_async_generator_function.__code__


def mark_as_coroutine_function(target: Any) -> None:
    """Make `inspect`, asyncio and frameworks see an async function."""
    for name, value in (("__name__", "offloaded"), ("__defaults__", None), ("__kwdefaults__", None)):
        if not hasattr(target, name):
            setattr(target, name, value)
    target.__code__ = _as_coroutine_function.__code__
