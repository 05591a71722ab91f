"""What of a caller's context goes with its call to an isolate.

Context variables that a runtime was told of go by the name under which a module holds them. Contexts of other
packages go as those packages carry them between processes: a `Propagator` puts them into a message here, and
takes them out there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias

from hybridrt.isolates.reference import MAIN_MODULES, NotFoundHereError, resolve

__all__ = [
    "Carried", "Propagator", "Variables", "carry", "crossing_context", "name_variables", "register",
    "run_within",
]  # fmt: skip

Variables: TypeAlias = tuple[tuple[str, str, ContextVar[Any]], ...]
"""Context variables, each with the module and the name under which it is found."""
Carried: TypeAlias = list[tuple[str, str, Any]]
"""What crosses: module and name of the function that takes it out over there, and what that is given."""
_MISSING: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagator:
    """How the context of another package crosses.

    Attributes:
        is_active: Whether there is anything to carry; asked on the loop, for each call, so it takes no time.
        inject: Returns what is to be carried, within the caller's context, in a worker thread; None: nothing.
        module: Where the function is that is given this in the isolate.
        attach: The name of that function.
    """

    is_active: Callable[[], bool]
    inject: Callable[[], Any]
    module: str
    attach: str


_propagators: list[Propagator] = []


def register(propagator: Propagator) -> None:
    """Ask a propagator at each call from now on."""
    _propagators.append(propagator)


def name_variables(variables: Iterable[ContextVar[Any]]) -> Variables:
    """Find the names of context variables.

    Raises:
        TypeError: One of them is something else.
        ValueError: No module that another interpreter could import has one under any name.
    """
    try:
        given = tuple(variables)
    except TypeError:
        raise TypeError(f"isolate_context must be context variables, as a list, got {variables!r}") from None
    return tuple((*_find(variable), variable) for variable in given)


def _find(variable: Any) -> tuple[str, str]:
    if not isinstance(variable, ContextVar):
        raise TypeError(f"isolate_context must have instances of contextvars.ContextVar, got {variable!r}")
    for module, loaded in tuple(sys.modules.items()):
        if module not in MAIN_MODULES:
            for name, value in tuple(getattr(loaded, "__dict__", {}).items()):
                if value is variable:
                    return module, name
    raise ValueError(
        f"isolate_context has {variable!r}, which no module but the program's main one has as a global "
        "variable; define it at the top level of a module that can be imported"
    )


def crossing_context(variables: Variables) -> Context | None:
    """Return the caller's context if anything of it is to cross."""
    crosses = variables or any(propagator.is_active() for propagator in _propagators)
    return copy_context() if crosses else None


def carry(variables: Variables) -> Carried:
    """Return what is to cross of the context in which this is called."""
    values = [
        (module, name, value)
        for module, name, variable in variables
        if (value := variable.get(_MISSING)) is not _MISSING
    ]
    carried: Carried = [(__name__, "set_variables", values)] if values else []
    for propagator in _propagators:
        if propagator.is_active() and (injected := propagator.inject()) is not None:
            carried.append((propagator.module, propagator.attach, injected))
    return carried


def run_within(carried: Carried, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in a context of its own, into which what was carried is put.

    Raises:
        NotFoundHereError: A module that takes it out, or that has one of the variables, is missing.
        BaseException: What the function raises.
    """
    context = copy_context()
    try:
        for module, attach, given in carried:
            context.run(resolve(module, attach, 0, None), given)
    except BaseException as error:  # a module may want to end the program
        raise NotFoundHereError from error
    return context.run(fn, *args, **kwargs)


def set_variables(values: Iterable[tuple[str, str, Any]]) -> None:
    """Set context variables in this isolate."""
    for module, name, value in values:
        variable: Any = resolve(module, name, 0, None)
        variable.set(value)
