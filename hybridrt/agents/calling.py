"""Calling the tools that a model asked for, side by side, each in its place."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import traceback
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from hybridrt.agents.events import ToolResult
from hybridrt.agents.measured import Measure
from hybridrt.agents.requested import RequestedCall
from hybridrt.agents.schema import ArgumentsError
from hybridrt.agents.tools import Tool
from hybridrt.loop.cancel_scopes import wait_out

__all__ = ["call_tools"]

logger = logging.getLogger("hybridrt")

Tools = Mapping[str, Tool[..., Any]]


async def call_tools(
    tools: Tools, calls: Sequence[RequestedCall], max_concurrent: int
) -> AsyncGenerator[tuple[int, ToolResult], None]:
    """Call tools and yield what came of each, with its number, as it ends. Closing this ends the others.

    A cancelled function that runs in a thread ends when it ends, as ever, and so does the closing.
    """
    free = asyncio.Semaphore(max_concurrent)
    tasks = [asyncio.create_task(_call(tools, call, free), name=f"tool {call.name}") for call in calls]
    waiting = set(tasks)
    try:
        while waiting:
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for number in sorted(map(tasks.index, ended)):
                yield number, _result(calls[number], tasks[number])
    finally:
        await _end(tasks)


def _result(call: RequestedCall, task: asyncio.Task[ToolResult]) -> ToolResult:
    if task.cancelled():  # by its tool: nothing here has cancelled one yet
        return ToolResult(id=call.id, name=call.name, text=_cancelled(call), error="CancelledError")
    return task.result()


async def _end(tasks: Collection[asyncio.Task[ToolResult]]) -> None:
    """Cancel tasks and wait for them; being cancelled meanwhile is heard of when they have ended."""
    for task in tasks:
        task.cancel()
    cancelled = await wait_out(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # it was looked at
    if cancelled is not None:
        raise cancelled


async def _call(tools: Tools, call: RequestedCall, free: asyncio.Semaphore) -> ToolResult:
    measure, loop = Measure(), asyncio.get_running_loop()
    asked = loop.time()
    async with free:
        waited = loop.time() - asked
        text, error = await _attempt(tools, call, measure)
    measure.queue_wait += waited
    return ToolResult(id=call.id, name=call.name, text=text, error=error, **asdict(measure))


async def _attempt(tools: Tools, call: RequestedCall, measure: Measure) -> tuple[str, str | None]:
    """Return what the model is told, and the name of the error's type if it is one."""
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(tools) or "none"
        return _error(f"expected one of the tools {known}, got {call.name!r}"), "LookupError"
    try:
        return _text(await tool._invoke(call.arguments, measure)), None
    except ArgumentsError as error:
        return _error(str(error)), type(error).__name__
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _cancelled(call), "CancelledError"
    except (Exception, SystemExit) as error:  # whatever a tool raises, the model may find another way
        if isinstance(error, SystemExit) and _is_of_a_signal(error):
            raise
        logger.debug("the tool %s raised, and the model is told", call.name, exc_info=error)
        return _error(_described(error)), type(error).__name__


def _is_of_a_signal(error: SystemExit) -> bool:
    """Return True if a signal handler has raised it, which may run within any tool on the main thread."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else _as_json(value)
    return text.encode(errors="replace").decode()  # half a surrogate pair is no JSON


def _as_json(value: Any) -> str:
    try:
        return to_json(value, fallback=_plain, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, TypeError):  # of bytes that are no text, half an emoji, NaT of pandas
        pass
    try:
        text = json.dumps(value, ensure_ascii=False, default=_as_plain)
    except TypeError:  # of keys such as dates
        text = json.dumps(_as_plain(value), ensure_ascii=False)
    return json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)  # "NaN" for NaN


def _as_plain(value: Any) -> Any:
    """Return what JSON can say of a value alone."""
    for bytes_mode in ("utf8", "base64"):
        with suppress(ValueError, TypeError):
            return to_jsonable_python(value, fallback=_plain, bytes_mode=bytes_mode)
    return str(value)


def _plain(value: Any) -> Any:
    """Return lists for arrays, all of whose values the model is to see, dicts for mappings, and else a text.

    A text for a Series of pandas, too, which has its labels, and for times, which would become numbers.
    """
    kind = type(value)
    has_times = str(getattr(value, "dtype", "")).startswith(("datetime64", "timedelta64"))
    if has_times or hasattr(kind, "to_dict"):
        return str(value)
    if hasattr(kind, "keys"):  # rows of sqlite3, too
        return dict(value)
    return value.tolist() if hasattr(kind, "tolist") else str(value)


def _described(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):  # which says itself only how many they are
        return "; ".join(map(_described, error.exceptions))
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of an error that cannot say what it is
        return type(error).__name__


def _cancelled(call: RequestedCall) -> str:
    return _error(f"{call.name} was cancelled")


def _error(message: str) -> str:
    return json.dumps({"error": message})
