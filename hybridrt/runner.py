"""`run`: an event loop, a runtime on it, and a way out by a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

from hybridrt.runtime import Runtime

__all__ = ["run"]

T = TypeVar("T")
LoopName = Literal["auto", "asyncio", "uvloop"]


def run(
    main: Coroutine[Any, Any, T],
    *,
    loop: LoopName = "auto",
    debug: bool | None = None,
    **options: Any,
) -> T:
    """Run a coroutine as `asyncio.run` does, with a `Runtime` installed.

    The first Ctrl-C cancels `main`, which has `shutdown_timeout` to end; then what still runs is
    named and left behind. The second Ctrl-C leaves at once.

    Args:
        main: The coroutine.
        loop: "auto" is uvloop if it can be imported, else asyncio.
        debug: asyncio's debug mode; None takes the environment's.
        **options: The arguments of `Runtime`.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        RuntimeError: A loop is running in this thread already.
    """
    if not inspect.iscoroutine(main):
        raise TypeError(f"run needs a coroutine, as in run(main()), got {main!r}")
    try:
        factory = _loop_factory(loop)
        runtime = Runtime(**options)
    except BaseException:
        main.close()
        raise
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        try:
            result: T = runner.run(_supervise(main, runtime))
            return result
        except BaseException:
            runtime._hurry()
            raise


async def _supervise(main: Coroutine[Any, Any, T], runtime: Runtime) -> T:
    """Run `main` in a task of its own, so that a deadline can end its wait for a stuck call."""
    async with runtime:
        task = asyncio.get_running_loop().create_task(main)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=runtime._time_left())
            if not task.done():
                runtime._leave_behind()
                await asyncio.wait({task}, timeout=1.0)
            if not task.done() or task.cancelled():
                raise
        return task.result()


def _loop_factory(loop: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop not in ("auto", "asyncio", "uvloop"):
        raise ValueError(f"loop must be 'auto', 'asyncio' or 'uvloop', got {loop!r}")
    if loop != "asyncio":
        try:
            import uvloop

            return uvloop.new_event_loop
        except ImportError:
            if loop == "uvloop":
                raise
    return asyncio.new_event_loop
