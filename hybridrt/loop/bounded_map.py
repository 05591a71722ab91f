"""Apply an asynchronous function to many items, a bounded number at a time, in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Any

from hybridrt.loop.cancel_scopes import new_scope, wait_or_shield
from hybridrt.loop.notes import add_note

__all__ = ["bounded_map"]


async def bounded_map(
    apply: Callable[[Any], Awaitable[Any]], items: Iterable[Any] | AsyncIterable[Any], limit: int
) -> list[Any]:
    """Return `apply(item)` for every item, in order, with `limit` in work at once.

    Items are taken only as places come free. One failure cancels the rest and is raised as it is;
    several come as a group.
    """
    results: dict[int, Any] = {}
    source: Any = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
    take = _taker(source)
    failed, scope = False, new_scope()
    failure: BaseException | None = None
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        # A function that never suspends would not notice that it is cancelled: ask before each item.
        nonlocal failed
        try:
            while not failed and (taken := await take()) is not None:
                index, item = taken
                results[index] = await apply(item)
        except BaseException:
            failed = True
            raise

    try:
        with scope or nullcontext():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(limit, _length(items, limit))):
                    if failed:  # an eager task has ended by now, and its group takes no more
                        break
                    tasks.append(group.create_task(work()))
                if failed:
                    await asyncio.sleep(0)  # takes the group's cancel, which up to 3.12 would outlive it
                if scope is not None and tasks:
                    await wait_or_shield(scope, tasks)
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0] if len(failures.exceptions) == 1 else failures
        failures.__traceback__ = None  # up to Python 3.13.0 its last frame refers to it
    except asyncio.CancelledError as error:
        failure = error.with_traceback(None)  # as above
    except BaseException as error:
        failure = error
    if isinstance(source, AsyncGenerator):
        try:
            await source.aclose()  # it may not have come to its end
        except Exception as error:
            if failure is None:
                raise
            add_note(failure, f"Closing the source of the map raised {error!r}, too.")
    if failure is not None:
        try:
            raise failure
        finally:
            del failure, tasks, group  # which refers to the task that is to get it
    if failed:  # by a CancelledError of user code, which a group takes for an end in good order
        raise asyncio.CancelledError("a function of the map, or its source, was cancelled")
    return [results[index] for index in range(len(results))]


def _taker(source: Any) -> Callable[[], Awaitable[tuple[int, Any] | None]]:
    """Return a function that takes the next (index, item), or None at the end; many may take at once."""
    lock = asyncio.Lock()  # an asynchronous generator must not be asked twice at a time
    count = itertools.count()
    is_async = hasattr(source, "__anext__")

    async def take() -> tuple[int, Any] | None:
        if is_async:
            async with lock:
                item = await anext(source, _END)
                return None if item is _END else (next(count), item)
        item = next(source, _END)
        return None if item is _END else (next(count), item)

    return take


_END = object()


def _length(items: Any, otherwise: int) -> int:
    try:
        return len(items)
    except (TypeError, OverflowError):
        return otherwise
