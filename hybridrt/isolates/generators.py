"""Generators inside an isolate: advanced a few items at a time, by calls that are like any other.

One isolate serves the generator from its first step to its end, so a step finds it under its number.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from hybridrt.isolates.reference import NotFoundHereError, resolve

__all__ = ["finish", "step"]

_open: dict[int, Iterator[Any]] = {}
_late: dict[int, BaseException] = {}
"""What generators have raised after items that had to be sent first."""

Beginning = tuple[tuple[Any, ...], tuple[Any, ...], Mapping[str, Any]]


def step(number: int, beginning: Beginning | None, most: int, slice_ns: int) -> tuple[list[Any], bool]:
    """Advance a generator; return what it has yielded, and whether it has ended.

    Args:
        number: The generator's.
        beginning: Reference, arguments and keyword arguments of its function; None once it has begun.
        most: Items at most.
        slice_ns: After which the step ends with what there is.

    Raises:
        NotFoundHereError: Its function was not found.
        BaseException: What the generator raises.
    """
    if beginning is not None:
        reference, args, kwargs = beginning
        try:
            fn = resolve(*reference)
        except BaseException as error:  # a module may want to end the program
            raise NotFoundHereError from error
        generator = _open[number] = fn(*args, **kwargs)
    else:
        generator = _open[number]
    if (late := _late.pop(number, None)) is not None:
        del _open[number]
        raise late
    items: list[Any] = []
    until = time.perf_counter_ns() + slice_ns
    try:
        while len(items) < most:
            items.append(next(generator))
            if time.perf_counter_ns() > until:
                break
    except StopIteration:
        del _open[number]
        return items, True
    except BaseException as error:
        if not items:
            del _open[number]
            raise
        _late[number] = error
    return items, False


def finish(number: int) -> None:
    """Close a generator, whose `finally` runs here; one that has ended is left alone."""
    _late.pop(number, None)
    generator = _open.pop(number, None)
    if isinstance(generator, Generator):
        generator.close()
