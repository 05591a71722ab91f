"""Callables: which may be offloaded, what they are made of, and how to pass for a coroutine function."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Literal

from hybridrt.observe.naming import unwrap

__all__ = [
    "CLASSMETHOD_HIDES",
    "Binding",
    "check_function",
    "is_below_classmethod",
    "mark_as_coroutine_function",
    "peel",
]

Binding = Literal["object", "class", "nothing"]
"""What a function binds to as a class attribute: method, class method or static method."""


CLASSMETHOD_HIDES = sys.version_info >= (3, 13)


def is_below_classmethod(offloaded: Any) -> bool:
    """Tell whether a class of a module has the function as a class method; others are not found."""
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


def check_function(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"offload needs a synchronous function, got {fn!r}")
    inner = unwrap(fn)
    for candidate in (fn, inner, type(inner).__call__):
        generates = inspect.isasyncgenfunction(candidate)
        if inspect.iscoroutinefunction(candidate) or generates:
            what, use = ("asynchronous generator", "iterate over") if generates else ("coroutine", "await")
            raise TypeError(
                f"offload needs a synchronous function, got the {what} function {fn!r}; "
                f"{use} it on the loop, and offload the computing part that it calls"
            )
        if inspect.isgeneratorfunction(candidate):
            raise TypeError(f"offload cannot run the generator function {fn!r} yet; return a list instead")


async def _as_coroutine_function() -> None:
    """Lends its code flags to offloaded functions: `inspect` on 3.11 goes by them alone."""


def mark_as_coroutine_function(target: Any) -> None:
    """Make `inspect`, asyncio and frameworks see an async function."""
    for name, value in (("__name__", "offloaded"), ("__defaults__", None), ("__kwdefaults__", None)):
        if not hasattr(target, name):
            setattr(target, name, value)
    target.__code__ = _as_coroutine_function.__code__
