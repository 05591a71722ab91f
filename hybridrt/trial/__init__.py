"""`trial`: what a function does to an event loop, inline, in a thread and in an isolate.

It knows placements by the public API alone and takes its figures from a heartbeat and a GIL watch of
its own (`watch`), so that what is judged does not judge itself. `measurement` makes the calls,
`verdict` reads the rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hybridrt.arguments import check_count
from hybridrt.measure.host import gil_enabled
from hybridrt.observe.function_name import function_name, unwrap
from hybridrt.offload import Offloaded, offload
from hybridrt.options import IN_PLACE
from hybridrt.runner import run
from hybridrt.trial.measurement import Call, Plan, idle_delay, measure
from hybridrt.trial.progress import ProgressLine
from hybridrt.trial.values import Trial, TrialRow
from hybridrt.trial.verdict import judge

__all__ = ["Trial", "TrialRow", "trial"]

_PLAIN = {"timeout": None, "queue_timeout": None, "limit": None, "lane": None, "abandon_on_cancel": None}
"""Options of an offloaded function that would get between the trial and its calls."""
_PATIENCE = 1.0
"""Seconds that a running call has to end in after Ctrl-C."""


def trial(fn: Callable[..., Any], /, *args: Any, calls: int | None = None, **kwargs: Any) -> Trial:
    """Run a function inline, in a thread and in an isolate, and tell what each does to the loop.

    Use it to find out where a function belongs before declaring it `pure`. The function is called
    from some dozen times, if it takes a second, to a hundred thousand times, if it takes a microsecond;
    eight times at once among them, and in other processes or interpreters: do not try one that must not
    run twice. The table shows, for each placement, the time of a call made
    alone, the delay of the loop meanwhile, the longest stall as a share of the call, how much of the time
    this interpreter's GIL was taken, and what eight calls at once get done.

    It runs an event loop (asyncio's, with a `Runtime`) and returns when all is measured: some 5 seconds
    for a short function, and some 36 calls for one that takes longer than a second. On a terminal it
    says on standard error what it does.

    Args:
        fn: A synchronous function, offloaded or not; a function of a module can be carried to an isolate,
            a lambda or a local function cannot, and its row says so.
        *args: Its arguments; the same objects for every call.
        calls: Calls of each half (one at a time, eight at once) of each placement, at least 1; None: as
            many as fit in 0.7 s, and no fewer than 3. Eight at once are no fewer than 8.
        **kwargs: Its keyword arguments.

    Returns:
        The figures and the verdict; `print` shows the table.

    Raises:
        RuntimeError: An event loop runs in this thread; from there, `await asyncio.to_thread(trial, fn)`. Or
            HYBRIDRT_WHERE in the environment leaves one place for all calls.
        TypeError: `fn` is not a synchronous function, or it is a generator function.
        Exception: What a call made inline raises; the first is made before everything else.

    Example:
        >>> import json
        >>> found = trial(json.loads, "[1, 2, 3]", calls=3)  # print(found) shows the table
        >>> [row.where for row in found.rows]
        ['inline', 'thread', 'isolate']
    """
    check_count("calls", calls, least=1, optional=True)
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "trial runs an event loop of its own and was called from a running one; "
            "use `await asyncio.to_thread(hybridrt.trial, fn, ...)` there"
        )
    if IN_PLACE is not None:
        raise RuntimeError(
            f"trial compares places, and HYBRIDRT_WHERE={IN_PLACE!r} in the environment leaves one; unset it"
        )
    offloaded = (fn if isinstance(fn, Offloaded) else offload(fn)).options(**_PLAIN)
    name = function_name(unwrap(fn))
    if offloaded._yields:
        raise TypeError(
            f"trial needs a function that returns once, got the generator function {name}; "
            "try one that returns the items in a list"
        )
    plain = partial(offloaded.sync, *args, **kwargs)
    with ProgressLine() as progress:
        progress.say("first call")
        begun = time.perf_counter()
        plain()
        first = time.perf_counter() - begun
        trying = _try(
            name,
            _Inline(plain),
            _offloaded_call(offloaded, args, kwargs, where="thread", isolation="auto"),
            _offloaded_call(offloaded, args, kwargs, where="isolate", pure=True),
            plan=Plan(calls=calls, say=progress.say),
            first=first,
        )
        # asyncio's loop: uvloop's timers count milliseconds, which is the beat that the loop is watched with.
        return run(trying, loop="asyncio", shutdown_timeout=_PATIENCE)


class _Inline:
    """Calls made where they are, and the share of their time that the process computed."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._wall = self._cpu = 0.0

    async def __call__(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self._call()
        self._cpu += time.process_time() - cpu
        self._wall += time.perf_counter() - wall

    def cpu_share(self) -> float:
        return self._cpu / self._wall if self._wall else 0.0


def _offloaded_call(
    offloaded: Offloaded[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
) -> Call:
    """Return a call to await; that a placement is refused shows when it is made, not here."""
    chosen: list[Offloaded[..., Any]] = []

    async def run_there() -> None:
        if not chosen:
            chosen.append(offloaded.options(**options))
        await chosen[0](*args, **kwargs)

    return run_there


async def _try(name: str, inline: _Inline, thread: Call, isolate: Call, *, plan: Plan, first: float) -> Trial:
    idle = await idle_delay(plan)
    rows = (
        await measure("inline", inline, plan, first),
        await measure("thread", thread, plan),
        await measure("isolate", isolate, plan),
    )
    cpu_share = inline.cpu_share()
    verdict = judge(*rows, cpu_share=cpu_share, gil=gil_enabled())
    return Trial(function=name, cpu_share=cpu_share, idle=idle, rows=rows, verdict=verdict)
