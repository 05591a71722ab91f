"""Find the function that a submitted callable stands for.

asyncio, LangChain, LlamaIndex and others submit wrappers: `partial(ctx.run, f)`, closures around
`func`. Keyed by the wrapper, all statistics would fall into one row named "wrapper"; so wrappers
are peeled off until the user's function appears. Peeling reads attributes and calls nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import socket
from collections.abc import Callable
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["function_key", "function_name", "identify", "resolves_names", "unwrap"]

_DEEPEST = 16
_CELLS = ("func", "fn", "original_func", "partial_func", "call_func")
"""Names under which the closures of known wrappers keep what they wrap."""
_FRAMEWORKS = frozenset({
    "langchain", "langchain_core", "langgraph", "llama_index", "workflows", "crewai", "fastapi",
    "haystack", "opentelemetry", "pydantic_ai", "sentry_sdk",
})  # fmt: skip
"""Packages whose closures and tool objects are peeled. Without this guard a user's own closure over
a callback would be booked on the callback."""


def identify(fn: Any, args: tuple[Any, ...] = ()) -> tuple[Any, str, bool]:
    """Return key and name under which `fn`, submitted with `args`, is booked, and whether it resolves names.

    Raises nothing: a remote proxy, which may answer every question about itself or raise at each, is
    booked on its type.
    """
    try:
        inner = unwrap(fn, args)
        identity = function_key(inner), function_name(inner), resolves_names(inner)
        hash(identity)
    except Exception:
        return type(fn), f"{type(fn).__module__}:{type(fn).__qualname__}", False
    return identity


def unwrap(fn: Any, args: tuple[Any, ...] = ()) -> Any:
    """Return what `fn`, submitted with `args`, stands for; `fn` itself when it wraps nothing known."""
    if _is_context_run(fn) and args:
        fn = args[0]
    for _ in range(_DEEPEST):
        inner = _inner(fn)
        if inner is None:
            break
        fn = inner
    return fn


def function_key(fn: Callable[..., Any]) -> Any:
    """Return the key of a function's profile: its code object where there is one.

    Closures and lambdas that are made anew for each call share their code object, and so their
    profile. A `__call__` that classes inherit, or a framework's method, has a profile for each of them.
    A C function is known by its type and name.
    """
    owner = _owner(fn)
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    if isinstance(code, CodeType):
        return code if owner is None else (owner, code)
    call = getattr(type(fn).__call__, "__code__", None)  # a callable object
    if isinstance(call, CodeType):
        return call if "__call__" in vars(type(fn)) else (type(fn), call)
    owner = getattr(fn, "__self__", None)
    return (type(owner), getattr(fn, "__qualname__", type(fn).__qualname__), getattr(fn, "__module__", None))


def function_name(fn: Any) -> str:
    """Return `module:qualname`, as a user would look for it."""
    if (owner := _owner(fn)) is not None:
        return f"{owner.__module__}:{owner.__qualname__}.{fn.__name__}"
    fn = getattr(fn, "__func__", fn)
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None)
    if name is None:
        module, name = type(fn).__module__, type(fn).__qualname__
    if module is None:
        module = type(getattr(fn, "__self__", fn)).__module__
    return f"{module}:{name}"


def _owner(fn: Any) -> type | None:
    """Return the class of a method's object if the method is a framework's: the class says what it runs."""
    if isinstance(fn, MethodType) and not isinstance(fn.__self__, type) and _of_framework(fn.__func__):
        return type(fn.__self__)
    return None


def resolves_names(fn: Any) -> bool:
    """Return True if asyncio asks for a name or an address with it, in debug mode too."""
    if fn is socket.getaddrinfo or fn is socket.getnameinfo:
        return True
    return _debug_getaddrinfo is not None and getattr(fn, "__func__", None) is _debug_getaddrinfo


_debug_getaddrinfo = getattr(asyncio.BaseEventLoop, "_getaddrinfo_debug", None)


def _inner(fn: Any) -> Any:
    """Return the callable one layer further in, or None."""
    if type(fn) is functools.partial:
        if _is_context_run(fn.func):
            return fn.args[0] if fn.args else None
        return _given_by_name(fn) or fn.func
    wrapped = getattr(fn, "__dict__", {}).get("__wrapped__")
    if callable(wrapped):
        return wrapped
    if isinstance(fn, MethodType) and _of_framework(fn.__func__):
        return _field_func(fn.__self__)
    if isinstance(fn, MethodType) and _is_sync(fn.__func__):
        return fn.__self__.__dict__.get("__wrapped__")
    if type(fn) is FunctionType and fn.__closure__ and _of_framework(fn):
        return _closed_over(fn)
    return None


def _is_context_run(fn: Any) -> bool:
    return isinstance(fn, BuiltinMethodType) and isinstance(fn.__self__, contextvars.Context)


def _is_sync(fn: Any) -> bool:
    """Return True if this is `Offloaded.sync`, the plain call of an offloaded function."""
    place = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    return place == ("hybridrt.offloaded", "Offloaded.sync")


def _of_framework(fn: Any) -> bool:
    return (getattr(fn, "__module__", None) or "").partition(".")[0] in _FRAMEWORKS


def _given_by_name(fn: functools.partial[Any]) -> Any:
    """Return the function that a framework's own is to call, as FastAPI's tracer is to call an endpoint."""
    inner = fn.keywords.get("function")
    return inner if callable(inner) and _of_framework(fn.func) else None


def _closed_over(fn: FunctionType) -> Any:
    """Return the callable that a wrapper's closure keeps under a known name."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for name in _CELLS:
        inner = _content(cells.get(name))
        if callable(inner):
            return inner
    return _field_func(_content(cells.get("self")))


def _content(cell: CellType | None) -> Any:
    try:
        return None if cell is None else cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _field_func(owner: Any) -> Any:
    """Return the function that a framework's tool object carries; no property of it is run."""
    fields = getattr(owner, "__dict__", {})
    return next((fields[name] for name in ("func", "function") if callable(fields.get(name))), None)
