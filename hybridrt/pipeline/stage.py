"""Stages: what kind of function one is, and how many of its items are in work at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hybridrt.arguments import check_count
from hybridrt.batches.offloaded import Batched
from hybridrt.callables import gives
from hybridrt.observe.function_name import function_name
from hybridrt.offload import offload_awaited
from hybridrt.offloaded import Offloaded
from hybridrt.streams.offloaded import OffloadedGenerator

__all__ = ["Stage", "StageKind", "as_stage", "stage"]

StageKind = Literal["chunks", "items", "batches", "generator", "async generator"]
"""How a stage runs: several items in one offloaded call; each item awaited on the loop; the items of an
offloaded batch; a generator in worker threads; an asynchronous generator on the loop, or an
offloaded one that may run outside of threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipe; made by `stage`.

    Attributes:
        fn: The function; offloaded, where it is not asynchronous.
        kind: How it runs.
        name: For errors and statistics.
        concurrency: Items, or calls with several short ones, in work at once; None: chosen.
        buffer: Items that may wait for the stage; None: chosen.
    """

    fn: Callable[..., Any]
    kind: StageKind
    name: str
    concurrency: int | None = None
    buffer: int | None = None


def stage(
    fn: Callable[[Any], Any],
    *,
    concurrency: int | None = None,
    buffer: int | None = None,
    name: str | None = None,
) -> Stage:
    """Describe a stage of a `pipe` where the function alone does not say enough.

    Args:
        fn: A function of one item. `def` is offloaded, short items several at a time; `async def` runs on the
            loop. A generator function, of either kind, gives any number of items for one. A function that is
            offloaded already keeps its options; a batched one gets its items in batches.
        concurrency: Items in work at once, at least 1; of short items of a `def`: calls at once. None: for
            functions that wait 32, for those that compute as many as keep GIL or cores busy.
        buffer: Items that may wait before the stage, at least 1. None: as many short ones as keep it busy for
            some milliseconds, a few long ones.
        name: For errors and statistics. None: the function's.

    Raises:
        TypeError: `fn` is no function, or `name` is no text.
        ValueError: A number is too small.

    Example:
        >>> stage(len, concurrency=2).name
        'len'
    """
    if not callable(fn):
        raise TypeError(f"stage needs a function of one item, got {fn!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str or None, got {name!r}")
    check_count("concurrency", concurrency, least=1, unit="items at once", optional=True)
    check_count("buffer", buffer, least=1, unit="items", optional=True)
    kind, ready = _classify(fn)
    shown = name or re.sub(
        r".*(:|<locals>\.)", "", function_name(fn._fn if isinstance(fn, Offloaded) else fn)
    )
    return Stage(fn=ready, kind=kind, name=shown, concurrency=concurrency, buffer=buffer)


def as_stage(given: Any) -> Stage:
    """Return a stage as it is, and one of a function.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(given, Stage):
        return given
    if not callable(given):
        raise TypeError(f"a stage of a pipe is a function or hybridrt.stage(function), got {given!r}")
    return stage(given)


def _classify(fn: Any) -> tuple[StageKind, Any]:
    if isinstance(fn, Batched):
        return "batches", fn
    if isinstance(fn, OffloadedGenerator):
        return ("generator" if fn._router is None else "async generator"), fn
    if isinstance(fn, Offloaded):
        # Options are for each call, and so is the place of a pure one: it is called for each item.
        return ("items" if fn._special or fn._router is not None else "chunks"), fn
    if (given := gives(fn)) == "asynchronous generator":
        return "async generator", fn
    if given == "coroutine":
        return "items", fn
    made: Any = offload_awaited(fn)
    return _classify(made) if isinstance(made, OffloadedGenerator) else ("chunks", made)
