"""An offloaded generator function: calling it gives an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from dataclasses import replace
from functools import cache, partial
from math import inf
from types import ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hybridrt.callables import Binding, as_iterator, mark_as_async_generator_function
from hybridrt.errors import IsolateInitializerError, IsolateStartError, NotPortableError, WorkerLostError
from hybridrt.loop.binding import LoopBinding, current_binding
from hybridrt.observe.function_name import function_name
from hybridrt.offloaded import Offloaded
from hybridrt.options import IN_PLACE, Options, first_place
from hybridrt.pool.limiters import Limiter
from hybridrt.streams.producer import GeneratorProducer
from hybridrt.streams.steps import MakeProducer, MakeStep, Steps, without_deadline

__all__ = ["BUFFER", "OffloadedGenerator"]

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

_NO_ISOLATE = (NotPortableError, IsolateInitializerError, IsolateStartError, WorkerLostError)
_STREAMS = 256.0
"""Streams in threads after one whose arguments could not be carried. Not measured."""
BUFFER = 64
"""Items in the buffer where `buffer` is not given: short ones cross some dozens at a time. Not tuned."""


class OffloadedGenerator(Offloaded[P, Iterator[T]], Generic[P, T]):
    """A generator function whose steps run off the event loop.

    Calling it gives an async generator, for `async for`. Nothing runs before the first item is asked for.
    Its steps never overlap; each is a call in a worker thread, and fills a buffer of `buffer` items while the
    consumer works. The worker is given back when the buffer is full. All steps run in one copy of the
    context of the first one's caller.

    If it is `pure`, streams run in an isolate once it is known to compute with the GIL for long enough, 50 us
    an item; with `where="isolate"` all do. A stream keeps its isolate to its end.

    `aclose()`, cancelling and dropping it end the generator after the step it is in: its `finally` runs in
    a worker thread, and the await ends when that has. `contextlib.aclosing` does so at the end of a block.
    """

    _yields = True

    def __init__(
        self,
        fn: Callable[P, Iterator[T]],
        options: Options,
        *,
        binding: Binding = "object",
        head: tuple[Any, ...] = (),
        limiter: Limiter[Any] | None = None,
        **unused: Any,
    ) -> None:
        super().__init__(fn, options, binding=binding, head=head, limiter=limiter)
        mark_as_async_generator_function(self)
        chosen = replace(options, pure=False, where="thread", isolation="auto", timeout=None, buffer=None)
        self._steps = Offloaded(fn, chosen, limiter=self._limiter)
        closing = replace(chosen, queue_timeout=None)
        self._closing = Offloaded(fn, closing, limiter=self._limiter)
        self._seen = _Seen()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:  # type: ignore[override]  # iterated, not awaited
        """Return an async iterator over what the generator yields."""
        return self._iterate(self._head + args if self._head else args, kwargs)

    def options(self, **changes: Any) -> OffloadedGenerator[P, T]:
        """Return the same function with other options; keep it: each `limit` so made counts for itself."""
        return super().options(**changes)  # type: ignore[return-value]  # it makes one of the own class

    @overload
    def __get__(self, obj: None, owner: type | None = None) -> OffloadedGenerator[P, T]: ...
    @overload
    def __get__(
        self: OffloadedGenerator[Concatenate[S, Q], T], obj: S, owner: type | None = None
    ) -> OffloadedGenerator[Q, T]: ...
    @overload  # a class method
    def __get__(
        self: OffloadedGenerator[Concatenate[type[S], Q], T], obj: S, owner: type | None = None
    ) -> OffloadedGenerator[Q, T]: ...
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return super().__get__(obj, owner)

    async def run_on(self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Refuse to be awaited.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{function_name(self._fn)} is an offloaded generator function, which gives many items and "
            "cannot be awaited; iterate over its call with `async for`"
        )

    async def _iterate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncGenerator[T, None]:
        if first_place(self._options)[0] == "inline":
            made = as_iterator(self._fn(*args, **kwargs))
            try:
                for item in made:
                    yield item
            finally:
                if isinstance(made, Generator):  # what its `finally` raises is raised here, as elsewhere
                    made.close()
            return
        loop_binding = current_binding()
        far = self._open_far(loop_binding, args, kwargs)
        steps = self.open(loop_binding, args, kwargs) if far is None else far
        again = far is not None and self._options.where == "auto"
        taken = 0
        try:
            while True:
                try:
                    if not await steps.more():
                        return
                except _NO_ISOLATE as error:
                    crosses = not isinstance(error, NotPortableError)
                    if not crosses:  # an argument may be to blame; what is yielded is always alike
                        self._seen.stays = inf if error.started else _STREAMS
                    if not again or (crosses and error.started):
                        raise
                    # Nothing of it has been seen, and it is pure: once more, in a thread.
                    await steps.aclose()
                    steps, again = self.open(loop_binding, args, kwargs), False
                    continue
                again = False
                items = steps.producer.items
                for _ in range(steps.bound):
                    taken += 1
                    yield items.popleft()
                    steps.refill()
                    if not items:
                        break
                else:  # the worker keeps pace, and the loop must get a turn now and then
                    await asyncio.sleep(0)
        finally:
            await steps.aclose()
            if steps is not far:
                self._seen.note(steps.producer.ran_ns, taken)

    def _open_far(
        self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Steps | None:
        """Return the steps of a generator in an isolate; None where it is to run in a thread.

        Raises:
            NotPortableError: It must run in an isolate, and another interpreter could not find it.
        """
        options = self._options
        forced = first_place(options)[0] == "isolate"
        if self._seen.stays and not forced:
            self._seen.stays -= 1.0
            return None
        learns = options.pure and options.where == "auto" and IN_PLACE is None
        if not (forced or (learns and self._seen.ran_ns)):
            return None
        try:
            far = _isolated()
        except (OSError, ImportError):  # no file can be opened to load it
            if forced:
                raise
            return None
        profile = self._own_profile(loop_binding.pool)
        if not far.can_isolate(loop_binding):
            return None
        if not forced and not far.is_worth_it(profile, self._seen.ran_ns, self._seen.items):
            return None
        try:
            holder, make_step = far.hold(loop_binding, self._fn, args, kwargs, options.isolation)
        except NotPortableError:
            if forced:
                raise
            self._seen.stays = inf
            return None
        if not forced and holder.isolate_pool.lent >= holder.isolate_pool.limiter.limit:
            return None  # as many streams hold one as may
        producer = partial(far.IsolatedProducer, holder)
        return self._make_steps(loop_binding, make_step, producer, options.buffer or BUFFER)

    def open(self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        """Return the steps of one generator, of which none has run."""
        return self.open_over(loop_binding, partial(self._fn, *args, **kwargs))

    def open_over(
        self, loop_binding: LoopBinding, make: Callable[[], Iterator[Any]], buffer: int | None = None
    ) -> Steps:
        """Return the steps of what `make` gives, which counts as calls of this function."""
        bound = buffer or self._options.buffer or BUFFER
        return self._make_steps(loop_binding, self._make_step, partial(GeneratorProducer, make), bound)

    def _make_steps(
        self, loop_binding: LoopBinding, make_step: MakeStep, make_producer: MakeProducer, bound: int
    ) -> Steps:
        return Steps(
            loop_binding,
            make_step,
            make_producer,
            partial(_start, self._steps),
            without_deadline(partial(_start, self._closing)),
            bound,
            self._options.timeout,
        )

    def _make_step(self, loop_binding: LoopBinding, run: Callable[[], None]) -> Any:
        call = self._make(loop_binding, (), {})
        call.fn = run
        return call


def _start(offloaded: Offloaded[..., Any], call: Any) -> list[Any]:
    return offloaded._start(call, None, None)


class _Seen:
    """What streams in threads have taken, over all loops; their counts may lose one another.

    Attributes:
        ran_ns: Time of their steps.
        items: What they have yielded.
        stays: How many of the next ones run in threads: one could not be carried to an isolate.
    """

    def __init__(self) -> None:
        self.ran_ns = self.items = 0
        self.stays = 0.0

    def note(self, ran_ns: int, items: int) -> None:
        """Count a stream that has ended."""
        self.ran_ns += ran_ns
        self.items += items


@cache
def _isolated() -> ModuleType:
    """Return the module of generators in isolates; it loads what starts processes, which few need."""
    from hybridrt.streams import isolated

    return isolated
