"""The runtime: builds the parts for one loop, and closes them by a deadline."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from hybridrt.errors import QueueFullError, RuntimeClosedError
from hybridrt.loop.anyio_limiter import AnyioLimiter, may_govern_anyio
from hybridrt.loop.call import LoopCall
from hybridrt.loop.mapping import bounded_map
from hybridrt.loop.outlet import forget_closed
from hybridrt.loop.port import Port, has_port, set_port
from hybridrt.loop.watch import LoopWatch
from hybridrt.offload import Offloaded, is_async, offload, submit
from hybridrt.pool.closing import close, closed_error
from hybridrt.pool.executor import AdaptiveThreadPoolExecutor, default_max_workers
from hybridrt.pool.hooks import Hooks
from hybridrt.values import PolicyName, Statistics

__all__ = ["Runtime", "install"]

logger = logging.getLogger("hybridrt")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


CLEAN_UP = 1.0
"""Seconds that tasks have to end in after the deadline, once they are cancelled and their calls given up."""
LAST_STEP = 0.1
"""Seconds that a thread has to end in after it has said that it is about to; it takes microseconds."""
_runtimes: dict[asyncio.AbstractEventLoop, Runtime] = {}


class Runtime:
    """The hybrid runtime of one event loop.

    Within `async with Runtime() as runtime:` the runtime's executor is the loop's default one, so
    `asyncio.to_thread`, name resolution and frameworks use it, and `@offload` functions run on it.

    On leaving the block background tasks get `shutdown_timeout` to end, and may still make calls. Then no
    more are taken, and those under way get what is left of that time; what has not ended by then is named
    in the log with its function and line and left behind. The loop keeps a fresh plain executor, because
    asyncio cannot go back to having none.

    Use it from its loop's thread; `statistics()` is safe from any thread.

    Args:
        max_workers: Hard limit of threads. None: 256, less where memory is short.
        min_workers: Idle threads that stay.
        policy: "demand", or "paper" for the published controller.
        loop_delay_target: Seconds that the 99th percentile of the loop's delay should stay below while
            calls compute; the switch interval is governed by it.
        shield: Whether the interpreter's switch interval may be governed while this runtime is open;
            False keeps other runtimes from it, too. Off for good with `HYBRIDRT_SHIELD=0` in the
            environment at import, and where there is no GIL.
        govern_anyio: Whether anyio's limit of 40 worker threads on this loop, which FastAPI's and
            Starlette's synchronous endpoints queue for, may grow while its calls wait, up to
            `max_workers`. Off too with `HYBRIDRT_GOVERN_ANYIO=0` in the environment.
        queue_max: Queued calls at most. Beyond it `submit` raises `QueueFullError`, and so does
            `asyncio.to_thread` on uvloop, which submits; other awaited calls wait for space.
        background_max: Background tasks at most.
        shutdown_timeout: Seconds that closing may take, 0 or more.
        memory_max: Bytes that threads may take up; lowers the default of `max_workers`. None: what
            the host or cgroup allows.
        idle_timeout: Seconds a thread waits for a call before it leaves.
        hooks: What to tell about calls and threads.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        min_workers: int = 1,
        policy: PolicyName = "demand",
        loop_delay_target: float = 0.002,
        shield: bool = True,
        govern_anyio: bool = True,
        queue_max: int | None = 10_000,
        background_max: int = 1_000,
        shutdown_timeout: float = 30.0,
        memory_max: int | None = None,
        idle_timeout: float = 10.0,
        hooks: Hooks | None = None,
    ) -> None:
        _check_positive("loop_delay_target", loop_delay_target)
        _check_positive("memory_max", memory_max)
        _check_positive("background_max", background_max)
        if isinstance(shutdown_timeout, bool) or not isinstance(shutdown_timeout, (int, float)):
            raise TypeError(f"shutdown_timeout is in seconds and must be a number, got {shutdown_timeout!r}")
        if not shutdown_timeout >= 0:
            raise ValueError(f"shutdown_timeout is in seconds and must be >= 0, got {shutdown_timeout!r}")
        for name, switch in (("shield", shield), ("govern_anyio", govern_anyio)):
            if not isinstance(switch, bool):
                raise TypeError(f"{name} must be True or False, got {switch!r}")
        self.loop_delay_target = loop_delay_target
        self.shield = shield
        self.govern_anyio = govern_anyio and may_govern_anyio()
        self.background_max = background_max
        self.shutdown_timeout = shutdown_timeout
        self.executor = AdaptiveThreadPoolExecutor(
            default_max_workers(memory_max) if max_workers is None else max_workers,
            "hybridrt",
            min_workers=min_workers,
            policy=policy,
            queue_max=queue_max,
            idle_timeout=idle_timeout,
            hooks=hooks,
        )
        self._background: set[asyncio.Task[Any]] = set()
        self._watch: LoopWatch | None = None
        self._limiter: AnyioLimiter | None = None
        self._port: Port | None = None
        self._state: Literal["new", "open", "closing", "closed"] = "new"
        self._closed = asyncio.Event()
        self._deadline: float | None = None

    @staticmethod
    def current() -> Runtime:
        """Return the runtime of the running loop, as inside of `run`.

        Raises:
            RuntimeClosedError: The loop has none.
        """
        runtime = _runtimes.get(asyncio.get_running_loop())
        if runtime is None:
            raise RuntimeClosedError(
                "this event loop has no Runtime; use `run`, `install` or `async with Runtime()`"
            )
        return runtime

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> Runtime:
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._state != "new":
            raise RuntimeError(f"a Runtime serves once, and this one is {self._state}; make a new one")
        if has_port(loop):
            raise RuntimeError("this event loop has a Runtime already; close it first, or use it")
        self._state = "open"
        self._port = self._make_port(loop)
        set_port(loop, self._port)
        forget_closed(_runtimes)
        _runtimes[loop] = self
        loop.set_default_executor(self.executor)
        if self.govern_anyio:
            self._limiter = AnyioLimiter(loop, self._port.pool)
        self._watch = LoopWatch(
            loop,
            self._port.pool,
            target=self.loop_delay_target,
            shield=self.shield,
            listener=self._limiter,
        )
        self._watch.start()

    def _make_port(self, loop: asyncio.AbstractEventLoop) -> Port:
        return Port(loop, self.executor)

    async def aclose(self) -> None:
        """Close by the deadline. Closing twice is fine; the second waits for the first to be done.

        Order: background tasks end or are cancelled, queued and running calls end, the rest is left
        behind. Being cancelled meanwhile leaves the rest behind at once. A background task that closes
        its runtime a second time does not wait, since that close waits for the task.
        """
        if self._state == "closing" and asyncio.current_task() not in self._background:
            await self._closed.wait()
        if self._state != "open":
            self._state = "closed" if self._state == "new" else self._state
            return
        self._state = "closing"
        try:
            await self._end_background()
            await self._end_calls()
            self._leave_behind()
            if self._background:
                await asyncio.wait(self._background, timeout=CLEAN_UP)
        finally:
            self._leave_behind()
            self._uninstall()
            self._state = "closed"
            self._closed.set()

    def _time_left(self) -> float:
        """Return the seconds until the deadline, which the first question sets."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self.shutdown_timeout
        return max(0.0, self._deadline - now)

    async def _end_background(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=self._time_left())
        for task in tuple(self._background):
            logger.warning("background task %r did not end by the deadline and is cancelled", task.get_name())
            task.cancel()

    async def _end_calls(self) -> None:
        assert self._port is not None
        loop = asyncio.get_running_loop()
        empty = loop.create_future()
        close(self._port.pool, closed_error, cancel_queued=False)
        self._port.pool.crew.when_empty(lambda: _call_soon(loop, _emptied, self._port, empty))
        await asyncio.wait({empty}, timeout=self._time_left())
        if empty.done():
            for thread in tuple(self._port.pool.crew.threads):
                if thread.is_alive():
                    thread.join(LAST_STEP)

    def _leave_behind(self) -> None:
        """Fail what is queued, give up what runs, and say what that is."""
        assert self._port is not None
        pool = self._port.pool
        close(pool, closed_error, cancel_queued=True)
        for stint in tuple(pool.crew.stints()):
            calls = stint.calls()
            if not stint.leave_behind():  # told before
                continue
            for call in calls:
                age = (pool.crew.wall_ns() - call.started_ns) / 1e9
                logger.warning(
                    "%s still runs after %.3g s, %s; the runtime closes and leaves %s behind",
                    call.profile.name, age, stint.position(), stint.bearer,
                )  # fmt: skip
                if isinstance(call, LoopCall):
                    call.give_up(RuntimeClosedError(f"the runtime closed while {call.profile.name} ran"))

    def _uninstall(self) -> None:
        assert self._port is not None
        loop = self._port.loop
        if self._watch is not None:
            self._watch.stop()
        if self._limiter is not None:
            self._limiter.close()
        set_port(loop, None)
        _runtimes.pop(loop, None)
        if not loop.is_closed():
            loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))

    def _hurry(self) -> None:
        """Whatever closing waits for, it waits no longer: the second Ctrl-C."""
        self._deadline = 0.0
        if self._port is not None and self._state in ("open", "closing"):
            self._leave_behind()

    # ------------------------------------------------------------------ work

    @overload
    async def offload(self, fn: Offloaded[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def offload(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def offload(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn(*args, **kwargs)` off the loop and return its value; see `offload`.

        Raises:
            RuntimeClosedError: The runtime is not open.
        """
        port = self._open_port()
        if isinstance(fn, Offloaded):
            return await fn.run_on(port, args, kwargs)
        return await submit(port, fn, args, kwargs)

    @overload
    async def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T] | AsyncIterable[T], *, limit: int = 32
    ) -> list[R]: ...
    @overload
    async def map(
        self, fn: Callable[[T], R], items: Iterable[T] | AsyncIterable[T], *, limit: int = 32
    ) -> list[R]: ...
    async def map(
        self, fn: Callable[[Any], Any], items: Iterable[Any] | AsyncIterable[Any], *, limit: int = 32
    ) -> list[Any]:
        """Apply `fn` to every item, at most `limit` at a time; return the results in order.

        A `def` is offloaded, an `async def` or an offloaded function is awaited on the loop. Items
        are taken from `items` only as places come free. When one fails, the others are cancelled and
        awaited, and its error is raised; several errors come as an `ExceptionGroup`.

        Args:
            fn: Takes one item.
            items: An iterable or asynchronous iterable; it may be endless only if `fn` raises.
            limit: Items in work at once, at least 1.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit is the number of items in work at once, an int, got {limit!r}")
        if limit < 1:
            raise ValueError(f"limit is the number of items in work at once and must be >= 1, got {limit!r}")
        port = self._open_port()
        apply = fn if is_async(fn) else offload(fn)
        if isinstance(apply, Offloaded):
            apply = partial(_apply_on, port, apply)
        return await bounded_map(apply, items, limit)

    def background(self, coro: Coroutine[Any, Any, R], *, name: str | None = None) -> asyncio.Task[R]:
        """Run a coroutine beside the request; it is tracked, and drained at close.

        An exception that nobody retrieves goes to the loop's exception handler.

        Raises:
            QueueFullError: `background_max` tasks run already; the coroutine is closed.
            RuntimeClosedError: The runtime is not open; the coroutine is closed.
        """
        if not inspect.iscoroutine(coro):
            raise TypeError(f"background needs a coroutine, as in background(send(mail)), got {coro!r}")
        if self._state != "open":
            coro.close()
            raise self._not_open()
        if len(self._background) >= self.background_max:
            coro.close()
            raise QueueFullError(
                f"background_max={self.background_max} background tasks run already; await some, or raise it"
            )
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def statistics(self) -> Statistics:
        """Return what the runtime knows about itself; see `Statistics`."""
        return replace(
            self.executor.statistics(),
            loop_delay=None if self._watch is None else self._watch.summary(),
            background=len(self._background),
            anyio=None if self._limiter is None else self._limiter.statistics(),
        )

    def _open_port(self) -> Port:
        """Return the port; while background tasks drain they may still use it, until the pool refuses."""
        if self._state not in ("open", "closing") or self._port is None:
            raise self._not_open()
        return self._port

    def _not_open(self) -> RuntimeClosedError:
        remedy = "use it within `async with Runtime()`" if self._state == "new" else "make a new one"
        return RuntimeClosedError(f"the runtime is {self._state}, not open; {remedy}")


def install(**options: Any) -> Runtime:
    """Give the running loop a `Runtime` without a context manager, and return it.

    For loops that somebody else runs, as in a web server's start-up hook. Close it with
    `await runtime.aclose()`; a loop that ends without that lets the executor's calls end, as it
    would with any default executor.

    Raises:
        RuntimeError: No loop is running, or it has a runtime already.
    """
    asyncio.get_running_loop()
    runtime = Runtime(**options)
    runtime._open()
    return runtime


async def _apply_on(port: Port, offloaded: Offloaded[..., Any], item: Any) -> Any:
    return await offloaded.run_on(port, (item,), {})


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # closed meanwhile
        logger.debug("the last worker left after its event loop was closed")


def _emptied(port: Port, empty: asyncio.Future[None]) -> None:
    port.outlet.settle_all()  # the loop may end before it would look by itself
    if not empty.done():
        empty.set_result(None)


def _check_positive(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number or None, got {value!r}")
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value!r}")
