"""The runtime: builds the parts for one loop, and closes them by a deadline."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, overload

from hybridrt.arguments import check_choice, check_count, check_flag, check_seconds
from hybridrt.background import BackgroundPolicy, BackgroundTasks
from hybridrt.control.window import Policy
from hybridrt.drain import Draining, keep
from hybridrt.errors import RuntimeClosedError
from hybridrt.executor.executor import AdaptiveThreadPoolExecutor
from hybridrt.integrations.anyio import AnyioThreads, may_govern_anyio
from hybridrt.isolates.context import name_variables
from hybridrt.isolates.setup import make_setup
from hybridrt.loop.binding import LoopBinding, has_binding, running_loop, set_binding
from hybridrt.loop.bounded_map import bounded_map
from hybridrt.loop.completions import forget_closed
from hybridrt.loop.interrupts import Interrupts
from hybridrt.loop.watch import LoopWatch
from hybridrt.offload import Offloaded, is_async, offload, offload_awaited, submit
from hybridrt.pool.hooks import Hooks
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.remembered import remembered
from hybridrt.statistics import Statistics
from hybridrt.values import PolicyName
from hybridrt.warming import warm

__all__ = ["Runtime", "install"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


CLEAN_UP = 1.0
"""Seconds that tasks have to end in after the deadline, once they are cancelled and their calls given up."""
_runtimes: dict[asyncio.AbstractEventLoop, Runtime] = {}


class Runtime:
    """The hybrid runtime of one event loop.

    Within `async with Runtime() as runtime:` the runtime's executor is the loop's default one, so
    `asyncio.to_thread`, name resolution and frameworks use it, and `@offload` functions run on it.

    On leaving the block background tasks get `shutdown_timeout` to end, and may still make calls. Then no
    more are taken, and those under way get what is left of that time; what has not ended by then is named
    in the log with its function and line and left behind. The loop keeps a fresh plain executor, because
    asyncio cannot go back to having none; one that the program has set meanwhile stays (not on uvloop).

    Use it from its loop's thread; `statistics()` is safe from any thread.

    Args:
        max_workers: Hard limit of threads. None: 256, less where memory is short.
        min_workers: Idle threads that stay.
        policy: "demand", "paper", "throughput", or a `Policy` of your own; see `AdaptiveThreadPoolExecutor`.
        loop_delay_target: Seconds that the 99th percentile of the loop's delay should stay below while
            calls compute; the switch interval is governed by it.
        shield: Whether the interpreter's switch interval may be governed while this runtime is open, and the
            priority of threads and isolates be lowered, the time slice of the loop's thread be shortened, and
            long-lived objects be kept out of garbage collection; False keeps other runtimes from it, too. Off
            for good with `HYBRIDRT_SHIELD=0` in the environment at import.
        govern_anyio: Whether calls of `anyio.to_thread.run_sync` on this loop, and so synchronous endpoints
            of FastAPI and Starlette, run on the runtime's threads instead of anyio's 40. Off too with
            `HYBRIDRT_GOVERN_ANYIO=0` in the environment.
        govern_native: Whether the threads of BLAS libraries may be bounded to the cores while several calls
            that leave the GIL compute at once, and to one in isolates. It needs threadpoolctl, but for
            isolates. False keeps other runtimes from it, too, while this one is open. Off for good with
            `HYBRIDRT_GOVERN_NATIVE=0` in the environment at import.
        queue_max: Queued calls at most. Beyond it `submit` raises `QueueFullError`; awaited calls, those of
            `asyncio.to_thread` and `run_in_executor` among them, wait for space.
        abandon_on_cancel: What cancelling does to a running call of an offloaded function that does not say
            so itself. False: the await ends when the call ends. True: it ends at once and the call goes on
            unwatched, as with `asyncio.to_thread`, so that `asyncio.wait_for` and `asyncio.timeout` keep
            their time; the call keeps its thread until it ends.
        background_max: Background tasks at most.
        background_policy: What becomes of one more. "reject": `background` raises `QueueFullError`.
            "drop_oldest": the oldest is cancelled and makes room; it still runs its `finally`. "block":
            `await runtime.spawn_background(...)` waits for a place, in order, and `background`, which cannot
            wait, raises.
        shutdown_timeout: Seconds that closing may take, 0 or more; tasks that do not heed their cancelling
            get a second more.
        memory_max: Bytes of memory that this process and its isolates may use while the runtime is open. It
            lowers `max_workers` and keeps threads and isolates from being added; see
            `AdaptiveThreadPoolExecutor`. None: what the host and its control groups allow.
        idle_timeout: Seconds a thread waits for a call before it leaves; `math.inf` for ever.
        isolate_initializer: Runs once in each isolate before its first call: for tracing, error reports, a
            warm model. It is named by its module, as the functions are. None: nothing runs. If it fails, the
            isolate is ended and the call fails, or goes to a thread under "auto"; after three isolates in a
            row no more are started.
        isolate_initargs: Its arguments, which are pickled for each isolate.
        isolate_context: Context variables whose values go along with each call to an isolate. They are found
            by the global variable that holds them in a module, and their values are pickled. Changes over
            there do not come back.
        isolate_logging: Whether records of `logging` made in an isolate reach the handlers here, by the
            levels that were set here when the isolate started. Off too with `HYBRIDRT_ISOLATE_LOGGING=0` in
            the environment.
        hooks: What to tell about calls and threads.
        measure: Whether calls are measured, without which nothing is governed but the switch interval and
            anyio's threads; see `AdaptiveThreadPoolExecutor`.
        phases: Whether calls that wait and compute by turns hold a permit in each phase; see there.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        min_workers: int = 1,
        policy: PolicyName | Policy = "demand",
        loop_delay_target: float = 0.002,
        shield: bool = True,
        govern_anyio: bool = True,
        govern_native: bool = True,
        queue_max: int | None = 10_000,
        abandon_on_cancel: bool = False,
        background_max: int = 1_000,
        background_policy: BackgroundPolicy = "reject",
        shutdown_timeout: float = 30.0,
        memory_max: int | None = None,
        idle_timeout: float = 10.0,
        hooks: Hooks | None = None,
        measure: bool = True,
        phases: bool = True,
        isolate_initializer: Callable[..., object] | None = None,
        isolate_initargs: tuple[Any, ...] = (),
        isolate_context: Iterable[ContextVar[Any]] = (),
        isolate_logging: bool = True,
    ) -> None:
        check_seconds("loop_delay_target", loop_delay_target, zero=False)
        check_count("background_max", background_max, least=1)
        check_choice("background_policy", background_policy, get_args(BackgroundPolicy))
        check_seconds("shutdown_timeout", shutdown_timeout)
        check_flag("shield", shield)
        check_flag("abandon_on_cancel", abandon_on_cancel)
        check_flag("govern_anyio", govern_anyio)
        check_flag("govern_native", govern_native)
        check_flag("isolate_logging", isolate_logging)
        self.loop_delay_target = loop_delay_target
        self.shield = shield
        self.abandon_on_cancel = abandon_on_cancel
        self.govern_anyio = govern_anyio and may_govern_anyio()
        self.govern_native = govern_native
        self.background_max = background_max
        self.shutdown_timeout = shutdown_timeout
        self.executor = AdaptiveThreadPoolExecutor(
            max_workers,
            "hybridrt",
            min_workers=min_workers,
            policy=policy,
            queue_max=queue_max,
            idle_timeout=idle_timeout,
            hooks=hooks,
            measure=measure,
            memory_max=memory_max,
            phases=phases,
        )
        self._setup = make_setup(isolate_initializer, isolate_initargs, forwards=isolate_logging)
        self._variables = name_variables(isolate_context)
        self._background = BackgroundTasks(background_max, background_policy)
        self._interrupts = Interrupts()
        self._watch: LoopWatch | None = None
        self._ends_loop = False
        """Its loop ends with it, as that of `run`, and so needs no other default executor."""
        self._default: object = None
        self._anyio: AnyioThreads | None = None
        self._loop_binding: LoopBinding | None = None
        self._draining: Draining | None = None
        self._state: Literal["new", "open", "closing", "closed"] = "new"
        self._closed = asyncio.Event()
        self._deadline: float | None = None

    @staticmethod
    def current() -> Runtime:
        """Return the runtime of the running loop, as inside of `run`.

        Raises:
            RuntimeClosedError: The loop has none.
            RuntimeError: No loop is running.
        """
        runtime = _runtimes.get(running_loop())
        if runtime is None:
            raise RuntimeClosedError(
                "this event loop has no Runtime; use `run`, `install` or `async with Runtime()`"
            )
        return runtime

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> Runtime:
        self._open()
        self._interrupts.open(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _open(self) -> None:
        loop = running_loop()
        if self._state != "new":
            raise RuntimeError(f"a Runtime serves once, and this one is {self._state}; make a new one")
        if has_binding(loop):
            raise RuntimeError("this event loop has a Runtime already; close it first, or use it")
        self._state = "open"
        self._loop_binding = self._make_binding(loop)
        self._loop_binding.setup, self._loop_binding.variables = self._setup, self._variables
        self._draining = Draining(self._loop_binding)
        set_binding(loop, self._loop_binding, abandon_on_cancel=self.abandon_on_cancel)
        forget_closed(_runtimes)
        _runtimes[loop] = self
        loop.set_default_executor(self.executor)
        self._default = _default_of(loop)
        if not self.govern_native:
            self._loop_binding.pool.budget.native_limits.refuse(loop.is_closed)
        if self.govern_anyio and not self._loop_binding.at_once:
            self._anyio = AnyioThreads(self._loop_binding)
            self._anyio.open()
        self._watch = LoopWatch(
            loop,
            self._loop_binding.pool,
            target=self.loop_delay_target,
            shield=self.shield,
            listener=self._anyio,
        )
        self._watch.start()

    def _make_binding(self, loop: asyncio.AbstractEventLoop) -> LoopBinding:
        return LoopBinding(loop, self.executor)

    async def aclose(self) -> None:
        """Close by the deadline. Closing twice is fine; the second waits for the first to be done.

        Order: background tasks end or are cancelled, queued and running calls end, the rest is left
        behind. Being cancelled meanwhile leaves the rest behind at once. A background task may close its
        runtime: closing does not wait for that task, and a second close from one does not wait at all. Once
        the loop of the runtime was closed, there is nothing to wait for.

        Raises:
            RuntimeError: Another event loop runs here, and the runtime's own was not closed.
        """
        if self._state == "closing" and asyncio.current_task() not in self._background:
            await self._closed.wait()
        if self._state != "open":
            self._state = "closed" if self._state == "new" else self._state
            return
        assert self._draining is not None
        assert self._loop_binding is not None
        loop = self._loop_binding.loop
        if loop is not asyncio.get_running_loop() and not loop.is_closed():
            raise RuntimeError("this Runtime is that of another event loop; await its aclose() there")
        self._state = "closing"
        self._background.refuse_waiting(self._not_open)
        try:
            if not loop.is_closed():  # else nothing awaits the rest any more
                await self._end_all()
        finally:
            try:
                self._draining.give_up()
            finally:
                self._uninstall()
                self._state = "closed"
                self._closed.set()
        if remembered.path is not None:
            await keep(remembered, self._loop_binding, _is_last)

    async def _end_all(self) -> None:
        assert self._draining is not None
        await self._background.wait(self._time_left())
        self._background.cancel_others()
        await self._draining.wait(self._time_left())
        await self._draining.give_up_all()
        await self._background.wait(CLEAN_UP)
        self._background.name_left()

    def _time_left(self) -> float:
        """Return the seconds until the deadline, which the first question sets."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self.shutdown_timeout
        return max(0.0, self._deadline - now)

    @uninterrupted
    def _uninstall(self) -> None:
        assert self._loop_binding is not None
        loop = self._loop_binding.loop
        if not self.govern_native:
            self._loop_binding.pool.budget.native_limits.allow(loop.is_closed)
        if self._watch is not None:
            self._watch.stop()
        if self._anyio is not None:
            self._anyio.close()
        set_binding(loop, None)
        _runtimes.pop(loop, None)
        if not loop.is_closed() and _default_of(loop) is self._default:
            if self._ends_loop:
                _forget_default(loop)
            else:
                loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        self._interrupts.close()

    def _hurry(self) -> None:
        """Whatever closing waits for, it waits no longer: the second Ctrl-C."""
        self._deadline = 0.0
        if self._draining is not None and self._state in ("open", "closing"):
            self._draining.give_up()

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
        loop_binding = self._open_binding()
        if isinstance(fn, Offloaded):
            return await fn.run_on(loop_binding, args, kwargs)
        return await submit(loop_binding, fn, args, kwargs)

    async def warm(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Make the first calls of a function now, with these arguments, so that later ones find all ready.

        A `pure` function is called until it is known where calls of this size run: on the loop, in threads or
        in isolates. In the last case each isolate is started, imports the function's module and runs it once.
        That takes about a third of a second of calls, and the start of the isolates. Any other function is
        called once. Use it at the start of a service, with arguments of the usual size.

        Args:
            fn: A function to offload, or an offloaded one.
            args: Positional arguments of each call.
            kwargs: Keyword arguments of each call.

        Raises:
            RuntimeClosedError: The runtime is not open.
            BaseException: What the first call raised; an `ExceptionGroup` of what later ones raised.

        Example:
            >>> async def main() -> None:
            ...     async with Runtime() as runtime:
            ...         await runtime.warm(len, "abc")
            >>> asyncio.run(main())
        """
        loop_binding = self._open_binding()
        await warm(loop_binding, fn if isinstance(fn, Offloaded) else offload(fn), args, kwargs)

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

        A `def` is offloaded, an `async def` or an offloaded function is awaited on the loop, and so is
        what a `def` returns if that can be awaited, as of `lambda url: fetch(session, url)`. Items are
        taken from `items` only as places come free. When one fails, the others are cancelled and
        awaited, and its error is raised; several errors come as an `ExceptionGroup`.

        Args:
            fn: Takes one item.
            items: An iterable or asynchronous iterable; it may be endless only if `fn` raises. An
                asynchronous generator is closed then.
            limit: Items in work at once, at least 1.
        """
        check_count("limit", limit, least=1, unit="items at once")
        loop_binding = self._open_binding()
        if isinstance(fn, Offloaded):
            fn = partial(_apply_on, loop_binding, fn)
        elif not is_async(fn):
            fn = partial(_apply_and_await, loop_binding, offload_awaited(fn))
        return await bounded_map(fn, items, limit)

    def background(self, coro: Coroutine[Any, Any, R], *, name: str | None = None) -> asyncio.Task[R]:
        """Run a coroutine beside the request; it is tracked, counted, and drained at close.

        An error that is not awaited goes to the loop's exception handler, which logs it: the first of each
        cause, which is a function and a class of errors. All are counted; see `BackgroundStatistics`.

        Args:
            coro: What to run.
            name: Of the task, in logs and at close. None: the qualified name of the coroutine's function.

        Raises:
            QueueFullError: `background_max` tasks run already, and `background_policy` is not "drop_oldest",
                or as many dropped tasks have not ended yet; the coroutine is closed.
            RuntimeClosedError: The runtime is not open; the coroutine is closed.
        """
        return self._background.spawn(coro, name, self._check_open)

    async def spawn_background(
        self, coro: Coroutine[Any, Any, R], *, name: str | None = None
    ) -> asyncio.Task[R]:
        """Do the same as `background`; with `background_policy="block"` wait for a place first, in order.

        Returns when the task has been made, not when it has ended. A background task that waits here keeps
        its own place: if all do so at once, they wait until the runtime closes.

        Args:
            coro: What to run. It is closed if the wait is cancelled.
            name: As in `background`.

        Raises:
            QueueFullError: As in `background`, unless the policy is "block".
            RuntimeClosedError: The runtime is not open, or closed meanwhile; the coroutine is closed.
        """
        return await self._background.spawn_when_free(coro, name, self._check_open)

    def statistics(self) -> Statistics:
        """Return what the runtime knows about itself; see `Statistics`."""
        return replace(
            self.executor.statistics(),
            loop_delay=None if self._watch is None else self._watch.summary(),
            background=self._background.count(),
            background_tasks=self._background.statistics(),
            anyio=None if self._anyio is None else self._anyio.statistics(),
        )

    def _open_binding(self) -> LoopBinding:
        """Return the binding; while background tasks drain they may still use it, until the pool refuses."""
        if self._state not in ("open", "closing") or self._loop_binding is None:
            raise self._not_open()
        return self._loop_binding

    def _check_open(self) -> None:
        if self._state != "open":
            raise self._not_open()

    def _not_open(self) -> RuntimeClosedError:
        remedy = "use it within `async with Runtime()`" if self._state == "new" else "make a new one"
        return RuntimeClosedError(f"the runtime is {self._state}, not open; {remedy}")


def install(**options: Any) -> Runtime:
    """Give the running loop a `Runtime` without a context manager, and return it.

    For loops that other code runs, as in a web server's start-up hook. Close it with
    `await runtime.aclose()`; a loop that ends without that lets the executor's calls end, as it
    would with any default executor.

    Raises:
        RuntimeError: No loop is running, or it has a runtime already.
    """
    running_loop()
    runtime = Runtime(**options)
    runtime._open()
    return runtime


async def _apply_on(loop_binding: LoopBinding, offloaded: Offloaded[..., Any], item: Any) -> Any:
    return await offloaded.run_on(loop_binding, (item,), {})


async def _apply_and_await(loop_binding: LoopBinding, offloaded: Offloaded[..., Any], item: Any) -> Any:
    value = await offloaded.run_on(loop_binding, (item,), {})
    return await value if inspect.isawaitable(value) else value


def _default_of(loop: asyncio.AbstractEventLoop) -> object:
    """Return the default executor of a loop, where that can be told; else None, as on uvloop."""
    return getattr(loop, "_default_executor", None)


def _forget_default(loop: asyncio.AbstractEventLoop) -> None:
    """Leave a loop without a default executor: to close one it starts a thread, which may be refused."""
    if hasattr(loop, "_default_executor"):
        loop._default_executor = None  # what asyncio has for that refuses None
    else:
        loop.set_default_executor(None)  # type: ignore[arg-type]  # uvloop takes it


def _is_last() -> bool:
    """Return True if no other runtime is in use; a loop that was dropped may never close its own."""
    return not any(loop.is_running() for loop in tuple(_runtimes))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_runtimes.clear)  # their loops do not run there
