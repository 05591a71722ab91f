"""anyio's threads: `anyio.to_thread.run_sync` runs on the executor of its loop's runtime.

Synchronous endpoints of FastAPI and Starlette, tools of MCP servers and of pydantic-ai go that way. anyio
would run them on threads of its own, 40 at once, that take the GIL whenever they like. Here they need a
permit to compute like all other calls, and are measured and counted.

anyio's class for asyncio gets another `run_sync_in_worker_thread`, which looks for the runtime of the
running loop and otherwise calls the one that was there. It stays for the life of the process, so nothing
has to be taken out while another thread calls it. anyio loads that class late, often at its first call, and
perhaps in another thread. So a finder on `sys.meta_path` waits for it, and hybridrt itself imports nothing.

What anyio promises of `run_sync` holds:

    - A limiter that is given bounds the calls. anyio's default one, 40 unless the program sets it, bounds
      them only where the program has lowered it; else the size of the runtime does.
    - A call that a cancel scope cancels while it is queued never runs, as one that waits for a token of a
      limiter. Once it runs, the await lasts until it ends, and gives what it returned, unless
      `abandon_on_cancel`. A cancel of asyncio's own ends the await at once.
    - `anyio.from_thread` works in the call, and so does its `check_cancelled`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.call import LoopCall
from hybridrt.loop.cancel_scopes import BACKEND
from hybridrt.loop.completions import forget_closed
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool.state import QUEUED
from hybridrt.pool.uninterrupted import uninterrupted
from hybridrt.pool.withdraw import withdraw
from hybridrt.values import AnyioStatistics

__all__ = ["AnyioThreads", "may_govern_anyio"]

logger = logging.getLogger("hybridrt")

Limiter: TypeAlias = AbstractAsyncContextManager[Any]
RUN_SYNC = "run_sync_in_worker_thread"
USUAL = 40
"""anyio's own limit. A program that has set a lower one wants to hold threads back."""


def may_govern_anyio() -> bool:
    """Return True if the environment lets anyio's calls run on our threads."""
    return os.environ.get("HYBRIDRT_GOVERN_ANYIO", "1") != "0"


class AnyioThreads:
    """anyio's calls on one loop that has a runtime.

    Used on the loop's thread alone; `statistics` from any.

    Args:
        loop_binding: Where the calls run.
    """

    def __init__(self, loop_binding: LoopBinding) -> None:
        self.loop_binding = loop_binding
        self.calls = 0
        self.in_flight = 0
        self._open = False

    def open(self) -> None:
        """Take anyio's calls of the loop from now on, and at once if anyio has its backend."""
        forget_closed(_threads)
        _threads[self.loop_binding.loop] = self
        self._open = True
        _await_import()
        _look()

    def beat(self, now: float, late: float) -> None:
        """Look for a backend that another thread was just importing when this opened."""
        if _hooked is None:
            _look()

    def close(self) -> None:
        """Leave anyio's calls to anyio."""
        self._open = False
        _threads.pop(self.loop_binding.loop, None)

    def statistics(self) -> AnyioStatistics | None:
        """Return what is known; None before the program has loaded anyio's backend."""
        if _hooked is None and _refused is None:
            return None
        stopped = _refused or (None if self._open else "the runtime closed")
        return AnyioStatistics(calls=self.calls, in_flight=self.in_flight, stopped=stopped)

    async def run(
        self,
        names: Names,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        abandon_on_cancel: bool,
        limiter: Limiter | None,
    ) -> Any:
        """Run a call as anyio would, on a thread of the pool."""
        await names.backend.checkpoint()
        async with names.bound(limiter) or nullcontext():
            if self.loop_binding.pool.refusal is not None:  # it has closed meanwhile
                unbounded = names.limiter(1)
                return await names.run_sync(names.backend, func, args, abandon_on_cancel, unbounded)
            with names.cancel_scope() as scope:
                call = self._make_call(names, func, args)
                call.abandons, call.scope = abandon_on_cancel, scope
                outer = scope._parent_scope
                asked = scope if abandon_on_cancel or outer is None else outer
                call.fn = partial(_in_worker_thread, names, self.loop_binding.loop, asked)
                self.calls += 1
                self.in_flight += 1
                try:
                    call.go()
                    return await call
                finally:
                    self.in_flight -= 1
                    call.scope = None  # which refers to the task
                    del call  # an error's traceback holds this frame

    def _make_call(self, names: Names, func: Callable[..., Any], args: tuple[Any, ...]) -> ScopedCall:
        loop_binding = self.loop_binding
        call = ScopedCall(loop=loop_binding.loop)
        call.state = QUEUED
        call.args, call.kwargs = (func, *args), {}
        call.context = copy_context()
        call.context.run(names.set_async_library, None)
        call.completions, call.pool = loop_binding.completions, loop_binding.pool
        call.profile = loop_binding.pool.profiles.of(func, args)
        return call


class ScopedCall(LoopCall):
    """A call that a task awaits within a cancel scope of anyio."""

    abandon_on_cancel = True
    """What a cancel of asyncio's own does."""
    abandons = False
    """What a cancel scope's does."""

    @uninterrupted
    def cancel(self, msg: Any = None) -> bool:
        """Cancel; see the module.

        A scope that is cancelled cancels its tasks again in each turn of the loop, until they have left it or
        are shielded. So the call shields itself once it runs, and the value it returns is not lost.
        """
        if self.abandons or self.done() or not _is_cancelled(self.scope):
            return super().cancel(msg)
        try:
            if withdraw(self):
                return asyncio.Future.cancel(self, msg)
        except SelfWaitError:
            self.get_loop().call_soon_threadsafe(self.cancel, msg)
            return True
        self.scope.shield = True
        return True

    def settle(self) -> None:
        """Complete the future; by the message of a `CancelledError` anyio knows whose cancelling it is."""
        if isinstance(self.error, StopIteration):
            self.error = _as_anyio_wraps_it(self.error)
        if isinstance(self.error, CancelledError) and not self.done():
            self.set_exception(self.error)
        else:
            super().settle()


def _as_anyio_wraps_it(error: StopIteration) -> RuntimeError:
    """Return an error that a future can carry."""
    wrapped = RuntimeError("coroutine raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def _is_cancelled(scope: Any) -> bool:
    """Return True if a cancel scope, or one around it that reaches it, has been cancelled."""
    while scope is not None:
        if scope.cancel_called:
            return True
        scope = None if scope.shield else scope._parent_scope
    return False


def _in_worker_thread(
    names: Names, loop: asyncio.AbstractEventLoop, scope: Any, func: Callable[..., Any], *args: Any
) -> Any:
    """Call a function in a thread that passes for one of anyio's meanwhile."""
    with names.claim_worker_thread(names.backend, loop):
        names.threadlocals.current_cancel_scope = scope
        try:
            return func(*args)
        finally:
            del names.threadlocals.current_cancel_scope


# ---------------------------------------------------------------------- the way into anyio


class Names:
    """What is used of anyio beyond its public names; the same from 4.7 to 4.16.

    Args:
        module: anyio's backend for asyncio, imported to its end.

    Raises:
        AttributeError: It has no such name any more.
    """

    def __init__(self, module: Any) -> None:
        self.backend = module.AsyncIOBackend
        self.cancel_scope = module.CancelScope
        self.limiter = module.CapacityLimiter
        self.threadlocals = module.threadlocals
        self.claim_worker_thread = module.claim_worker_thread
        self._default_limiter = module._default_thread_limiter
        self.run_sync: Callable[..., Any] = self.backend.__dict__[RUN_SYNC].__func__
        self.set_async_library: Callable[[str | None], object] = (
            module.sniffio.current_async_library_cvar.set  # up to anyio 4.11
            if hasattr(module, "sniffio")
            else module.set_current_async_library
        )
        for name in ("_parent_scope", "shield", "cancel_called"):
            getattr(self.cancel_scope(), name)

    def bound(self, limiter: Limiter | None) -> AbstractAsyncContextManager[Any] | None:
        """Return what bounds a call besides the size of the runtime."""
        usual: Any = self._default_limiter.get(None)
        if limiter is not None and limiter is not usual:
            return limiter
        lowered = usual is not None and usual.total_tokens < USUAL
        return usual if lowered else None


_threads: dict[asyncio.AbstractEventLoop, AnyioThreads] = {}
_hooked: type | None = None
"""anyio's class that has got our method."""
_refused: str | None = None
"""Why it has not."""


def _look() -> None:
    """Hook anyio's backend if the program has it; one that is just being imported is not there yet."""
    module = sys.modules.get(BACKEND)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _hook(module)


def _hook(module: ModuleType) -> None:
    """Give anyio's class our method, from any thread; raises nothing, since anyio's import may be under way.

    Two threads may be here at once. Each then finds the original, or finds it done.
    """
    global _hooked, _refused
    backend: Any = getattr(module, "AsyncIOBackend", None)
    if _refused is not None or (backend is not None and backend is _hooked):
        return
    try:
        names = Names(module)
        if getattr(names.run_sync, "__module__", None) != __name__:
            setattr(backend, RUN_SYNC, classmethod(_method(names)))
        _hooked = backend
    except Exception as error:
        _refused = f"this anyio is not known: {error!r}"
        logger.warning("calls of anyio.to_thread run on anyio's own threads: %s", _refused)


def _method(names: Names) -> Callable[..., Any]:
    """Return what `run_sync_in_worker_thread` becomes."""

    async def run_sync_in_worker_thread(
        cls: type,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        abandon_on_cancel: bool = False,
        limiter: Limiter | None = None,
    ) -> Any:
        threads = _threads.get(asyncio.get_running_loop())
        if threads is None or threads.loop_binding.pool.refusal is not None:
            return await names.run_sync(cls, func, args, abandon_on_cancel, limiter)
        return await threads.run(names, func, args, abandon_on_cancel, limiter)

    return run_sync_in_worker_thread


class _Finder:
    """Finds anyio's backend as the other finders do, and has it hooked once its code has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for every other module."""
        if fullname != BACKEND:
            return None
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                _hook_after(spec.loader)
                return spec
        return None


def _hook_after(loader: Any) -> None:
    """Let a loader hook the backend that it has loaded."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if module.__name__ == BACKEND:  # a loader may serve many modules
            _hook(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        logger.debug("%r cannot be asked when it has loaded anyio's backend; a beat will see it", loader)


_finder = _Finder()


def _await_import() -> None:
    """Be told when anyio's backend is imported.

    The finder stays: a list that other threads go through may not shrink.
    """
    if _hooked is None and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
