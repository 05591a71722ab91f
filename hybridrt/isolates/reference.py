"""References: how a function is named so that another interpreter finds it.

A module and a qualified name, by which the other side imports it. Decorators leave something else
under the name, with the function below in `__wrapped__` (`@offload` does); the reference then says how
deep, so that the function itself runs over there and not what wraps it.

What has no name, a bound method or a `functools.partial`, travels pickled instead.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from hybridrt.errors import NotPortableError
from hybridrt.observe.function_name import identify

__all__ = ["MAIN_MODULES", "NotFoundHereError", "Reference", "find", "refer", "resolve", "without_thread"]

MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
"""Names of the program's main module; the second is the one in children that multiprocessing spawns."""
_DEEPEST = 16
_OR_THREAD = ", or run it in a thread (where='thread')"
_REMEDY = f"define it at the top level of a module that can be imported{_OR_THREAD}"


class NotFoundHereError(Exception):
    """What a call needs was not found in this isolate, so it has not begun; the cause says why."""


class Reference(NamedTuple):
    """Where to find a function. As a plain tuple, which is quicker to unpickle, it is what travels.

    Attributes:
        module: The module to import.
        qualname: The name in it, with dots.
        depth: How many `__wrapped__` lie between what has the name and the function.
        pickled: The callable itself, pickled or as it is, if it has no name. Module and name are then those
            of the function below it, or of its type.
    """

    module: str
    qualname: str
    depth: int = 0
    pickled: Any = None

    @property
    def place(self) -> tuple[str, str, int]:
        """The function alone: there are no more of these than functions, whatever pickled callables hold."""
        return self[:3]

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


def refer(fn: Callable[..., Any], *, pickles: bool = True) -> Reference:
    """Return the reference of a function.

    Args:
        fn: The function.
        pickles: Pickle what has no name now, which takes as long as it is large. False: it is sent as it is.

    Raises:
        NotPortableError: Another interpreter could not find it: a lambda, a function inside another
            one, one of `__main__`; or a callable without a name that cannot be pickled.
    """
    module = getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", None)
    qualname = getattr(fn, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str):
        depth = _depth(module, qualname, fn)
        if depth is not None and module not in MAIN_MODULES:
            return Reference(module, qualname, depth)
        if depth is not None or isinstance(fn, FunctionType):
            raise NotPortableError(
                f"{module}:{qualname} cannot run in another interpreter: {_obstacle(fn)}; {_REMEDY}"
            )
    place, _, qualname = identify(fn)[1].partition(":")
    return Reference(place, qualname, pickled=_pickled(fn) if pickles else fn)


def without_thread(error: NotPortableError) -> str:
    """Return what `refer` says, for what a thread is no remedy for."""
    return str(error).removesuffix(_OR_THREAD)


def find(module: str, qualname: str) -> Any:
    """Return what has the name now, which may wrap the function; None if nothing has."""
    try:
        return _look_up(module, qualname)
    except (KeyError, AttributeError):
        return None


def resolve(module: str, qualname: str, depth: int, pickled: Any) -> Callable[..., Any]:
    """Return the function that a reference stands for, importing its module if need be.

    What came pickled is made anew for each call and not kept: it may be another one each time, with all
    that it holds.

    Raises:
        ImportError: The module cannot be imported here.
        AttributeError: It has no such name.
    """
    if pickled is None:
        return _find(module, qualname, depth)
    return pickled if callable(pickled) else pickle.loads(pickled)  # type: ignore[no-any-return]


@functools.lru_cache(512)
def _find(module: str, qualname: str, depth: int) -> Callable[..., Any]:
    importlib.import_module(module)
    found = _look_up(module, qualname)
    for _ in range(depth):
        found = _below(found)
    return found  # type: ignore[no-any-return]


def _depth(module: str, qualname: str, fn: Any) -> int | None:
    """Return how far below the name the function lies; None if it does not."""
    found = find(module, qualname)
    for depth in range(_DEEPEST):
        if found is fn:
            return depth
        found = _below(found)
        if found is None:
            break
    return None


def _look_up(module: str, qualname: str) -> Any:
    found: Any = sys.modules[module]
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _below(wrapper: Any) -> Any:
    """Return what a decorated function wraps, or a class method's function."""
    inner = getattr(wrapper, "__wrapped__", None)
    return getattr(wrapper, "__func__", None) if inner is None else inner


def _obstacle(fn: Callable[..., Any]) -> str:
    if fn.__module__ in MAIN_MODULES:
        return "it belongs to the program's main module, which is not imported a second time"
    if fn.__name__ == "<lambda>":
        return "it is a lambda"
    if "<locals>" in fn.__qualname__:
        return "it is defined inside another function"
    return "it is not what its module has under that name"


def _pickled(fn: Callable[..., Any]) -> bytes:
    try:
        return pickle.dumps(fn, 5)
    except Exception as error:
        raise NotPortableError(
            f"{fn!r} cannot run in another interpreter: it has no name there and cannot be pickled "
            f"({error}); {_REMEDY}"
        ) from error
