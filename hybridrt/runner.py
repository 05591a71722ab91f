"""`run`: an event loop, a runtime on it, and a way out by a deadline."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Literal, TypeVar

from hybridrt.compat import leave_behind
from hybridrt.loop.interrupts import ctrl_c_held_back
from hybridrt.runtime import CLEAN_UP, Runtime

__all__ = ["run"]

logger = logging.getLogger("hybridrt")

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
        loop: "auto" is uvloop if it can be imported and standard input, output and error are open, else
            asyncio.
        debug: asyncio's debug mode; None takes the environment's.
        **options: The arguments of `Runtime`.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        RuntimeError: A loop is running in this thread already.
    """
    if not isinstance(main, Coroutine):
        raise TypeError(f"run needs a coroutine, as in run(main()), got {main!r}")
    try:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("run cannot be called from a running event loop; await main instead")
        factory = _loop_factory(loop)
        runtime = Runtime(**options)
    except BaseException:
        main.close()
        raise
    runtime._ends_loop = True
    supervisor = _Supervisor(main, runtime)
    runner = asyncio.Runner(debug=debug, loop_factory=factory)
    try:
        result: T = runner.run(supervisor.run())
        return result
    except KeyboardInterrupt:
        supervisor.hurry()
        if supervisor.is_over():
            with ctrl_c_held_back():
                _take_stop(runner.get_loop())
        raise
    finally:
        runtime._interrupts.close()
        with ctrl_c_held_back():
            try:
                runner.close()
            except RuntimeError:
                if not supervisor.loop_runs():
                    raise  # else Ctrl-C struck uvloop in its last step: it takes itself for running for ever


def _take_stop(loop: asyncio.AbstractEventLoop) -> None:
    """Run some turns of a loop: a stop that Ctrl-C has left behind ends them, and not the close."""

    async def turns() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    if not loop.is_running():
        with suppress(RuntimeError):
            loop.run_until_complete(turns())


class _Supervisor(Generic[T]):
    """Runs `main` in a task of its own, so that a deadline can end its wait for a stuck call."""

    def __init__(self, main: Coroutine[Any, Any, T], runtime: Runtime) -> None:
        self._main = main
        self._runtime = runtime
        self._task: asyncio.Task[T] | None = None
        self._own: asyncio.Task[T] | None = None

    def is_over(self) -> bool:
        """Return True if `run` has ended, with which the loop is told to stop."""
        return self._own is not None and self._own.done()

    def loop_runs(self) -> bool:
        """Return True if the loop takes itself for running; its `Runner` does not tell once it is closed."""
        return self._own is not None and self._own.get_loop().is_running()

    async def run(self) -> T:
        """Return what `main` returns; cancelled, cancel `main` and see it end by the deadline."""
        self._own = asyncio.current_task()
        async with self._runtime:
            task = self._task = asyncio.get_running_loop().create_task(self._main)
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                unheard = task.done() and not task.cancelled() and task.exception() is None
                await self._end(task)
                if unheard or not task.done() or task.cancelled() or _leaves(task.exception()):
                    raise
            return task.result()

    async def _end(self, task: asyncio.Task[T]) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=self._runtime._time_left())
        if not task.done():
            assert self._runtime._draining is not None
            self._runtime._draining.give_up()
            await asyncio.wait({task}, timeout=CLEAN_UP)
        self._leave_main()

    def hurry(self) -> None:
        """Wait for nothing any longer: the second Ctrl-C."""
        self._runtime._hurry()
        self._leave_main()

    def _leave_main(self) -> None:
        """Keep the end of the loop from waiting for a `main` that has not heeded its cancelling."""
        task = self._task
        if task is None or task.done():
            if task is not None and not task.cancelled():
                task.exception()  # Ctrl-C may have struck inside of it: it is not to be told twice
            return
        logger.warning("%r goes on although it was cancelled and is left behind", task.get_coro())
        leave_behind(task)


def _leaves(error: BaseException | None) -> bool:
    """Return True if the loop has let the error through already, as it does with `sys.exit`."""
    return isinstance(error, (SystemExit, KeyboardInterrupt))


def _loop_factory(loop: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop not in ("auto", "asyncio", "uvloop"):
        raise ValueError(f"loop must be 'auto', 'asyncio' or 'uvloop', got {loop!r}")
    if loop == "uvloop" or (loop == "auto" and _has_standard_files()):
        try:
            import uvloop

            return uvloop.new_event_loop
        except ImportError:
            if loop == "uvloop":
                raise
    return asyncio.new_event_loop


def _has_standard_files() -> bool:
    """Return True if descriptors 0 to 2 are open; uvloop aborts where it closes one of its own there."""
    try:
        for descriptor in range(3):
            os.fstat(descriptor)
    except OSError:
        return False
    return True
