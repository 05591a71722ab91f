"""What one call of a tool took: where it ran, how long it queued, its time and its CPU time.

A function that is offloaded is measured by the pool: the call itself knows. A coroutine is measured here,
step by step, because its thread is the loop's and others use it between two steps.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from hybridrt.errors import OffloadTimeoutError
from hybridrt.loop.call import LoopCall
from hybridrt.offload import Offloaded

__all__ = ["Measure", "Place", "WatchedFunction", "measure_coroutine", "measure_offloaded"]

P = ParamSpec("P")
R = TypeVar("R")

Place = Literal["loop", "inline", "thread", "isolate"]
"""Where a tool ran: "loop" for a coroutine, "inline" for a function that was short enough for the loop."""


@dataclass(slots=True)
class Measure:
    """What the last attempt of a tool call took, as `ToolResult` says it; times in seconds."""

    place: Place | None = None
    attempts: int = 0
    queue_wait: float = 0.0
    wall: float = 0.0
    cpu: float | None = None


@dataclass(slots=True)
class _Times:
    """What a worker thread notes of one call; one that was left behind may still do so later."""

    call: LoopCall | None
    place: Place
    submitted_ns: int
    started_ns: int = 0
    ended_ns: int = 0
    cpu_ns: int = 0


_tries: ContextVar[list[_Times] | None] = ContextVar("hybridrt_tool_tries", default=None)
"""Gathers the calls that one call of a tool makes; two if the first could not be carried to an isolate."""


class WatchedFunction(Offloaded[P, R]):
    """An offloaded function whose calls note their times, if `measure_offloaded` makes them."""

    @classmethod
    def of(cls, offloaded: Offloaded[P, R]) -> WatchedFunction[P, R]:
        """Return the same function with the same options, limit and figures."""
        return cls(
            offloaded._fn,
            offloaded._options,
            binding=offloaded._binding,
            head=offloaded._head,
            limiter=offloaded._limiter,
            router=offloaded._router,
        )

    def _run(self, call: LoopCall, *since: Any) -> Any:
        tries = _tries.get()
        if tries is not None:
            times = _Times(call, "isolate" if call.isolated else "thread", time.perf_counter_ns())
            tries.append(times)
            assert call.fn is not None
            call.fn = partial(_note_times, times, call.fn)
        return super()._run(call, *since)


def _note_times(times: _Times, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    cpu = time.thread_time_ns()
    times.started_ns = time.perf_counter_ns()
    try:
        return fn(*args, **kwargs)
    finally:
        remote = getattr(times.call, "remote_invocation", None)  # of an isolated call: the thread only waited
        times.cpu_ns = time.thread_time_ns() - cpu if remote is None else remote.cpu_ns
        times.ended_ns = time.perf_counter_ns()
        times.call = None  # which keeps what the function returned


async def measure_offloaded(
    measure: Measure, fn: Callable[..., Coroutine[Any, Any, R]], arguments: dict[str, Any]
) -> R:
    """Call a watched function and note what the call took."""
    tries: list[_Times] = []
    token = _tries.set(tries)
    wall, cpu, ran = time.perf_counter_ns(), time.thread_time_ns(), True
    try:
        return await fn(**arguments)
    except (asyncio.CancelledError, OffloadTimeoutError):
        ran = False  # if it was to run on the loop: it has waited for its turn
        raise
    finally:
        _tries.reset(token)
        now = time.perf_counter_ns()
        if tries:
            _read(measure, tries.pop(), now)
        elif ran:  # on the loop
            measure.place, measure.queue_wait = "inline", 0.0
            measure.wall, measure.cpu = (now - wall) / 1e9, (time.thread_time_ns() - cpu) / 1e9


def _read(measure: Measure, times: _Times, now_ns: int) -> None:
    """Take over the times of a call; those of one that has not ended are those until now."""
    started_ns, ended_ns = times.started_ns, times.ended_ns
    measure.place = times.place if started_ns else None
    measure.queue_wait = ((started_ns or now_ns) - times.submitted_ns) / 1e9
    measure.wall = ((ended_ns or now_ns) - started_ns) / 1e9 if started_ns else 0.0
    measure.cpu = times.cpu_ns / 1e9 if ended_ns else None


async def measure_coroutine(measure: Measure, coro: Coroutine[Any, Any, R]) -> R:
    """Await a coroutine and note what it took, its CPU time being that of its steps on the loop."""
    begun = time.perf_counter_ns()
    measure.place, measure.cpu = "loop", 0.0
    try:
        return await _step_by_step(measure, coro)
    finally:
        measure.wall = (time.perf_counter_ns() - begun) / 1e9


@types.coroutine
def _step_by_step(measure: Measure, coro: Coroutine[Any, Any, R]) -> Generator[Any, None, R]:
    error: BaseException | None = None
    while True:
        begun = time.thread_time_ns()
        try:
            awaited = coro.send(None) if error is None else coro.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            error = None  # its traceback holds this frame
            measure.cpu = (measure.cpu or 0.0) + (time.thread_time_ns() - begun) / 1e9
        try:
            yield awaited
        except BaseException as raised:
            error = raised
