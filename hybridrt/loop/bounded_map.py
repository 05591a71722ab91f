"""Apply an asynchronous function to many items, a bounded number at a time, in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Any

from hybridrt.loop.cancel_scopes import new_scope, wait_or_shield

__all__ = ["bounded_map"]


async def bounded_map(
    apply: Callable[[Any], Awaitable[Any]], items: Iterable[Any] | AsyncIterable[Any], limit: int
) -> list[Any]:
    """Return `apply(item)` for every item, in order, with `limit` in work at once.

    Items are taken only as places come free. One failure cancels the rest and is raised as it is;
    several come as a group.
    """
    results: dict[int, Any] = {}
    take = _taker(items)
    failed, scope = False, new_scope()

    async def work() -> None:
        # A function that never suspends would not notice that it is cancelled: ask before each item.
        nonlocal failed
        while not failed and (taken := await take()) is not None:
            index, item = taken
            try:
                results[index] = await apply(item)
            except BaseException:
                failed = True
                raise

    try:
        with scope or nullcontext():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work()) for _ in range(min(limit, _length(items, limit)))]
                if scope is not None and tasks:
                    await wait_or_shield(scope, tasks)
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from None
    if failed:  # by a CancelledError of `apply`, which a group takes for an end in good order
        raise asyncio.CancelledError("a function of the map was cancelled")
    return [results[index] for index in range(len(results))]


def _taker(items: Iterable[Any] | AsyncIterable[Any]) -> Callable[[], Awaitable[tuple[int, Any] | None]]:
    """Return a function that takes the next (index, item), or None at the end; many may take at once."""
    lock = asyncio.Lock()  # an asynchronous generator must not be asked twice at a time
    count = itertools.count()
    source = None if isinstance(items, AsyncIterable) else iter(items)
    async_source = aiter(items) if isinstance(items, AsyncIterable) else None

    async def take() -> tuple[int, Any] | None:
        if source is not None:
            item = next(source, _END)
        else:
            assert async_source is not None
            async with lock:
                item = await anext(async_source, _END)
                return None if item is _END else (next(count), item)
        return None if item is _END else (next(count), item)

    return take


_END = object()


def _length(items: Any, otherwise: int) -> int:
    try:
        return len(items)
    except TypeError:
        return otherwise
