"""A batched function: `(list[T]) -> list[R]` becomes `(T) -> Awaitable[R]`, across callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from hybridrt.batches.figures import BatchFigures
from hybridrt.batches.gatherer import Gatherer, list_results
from hybridrt.callables import Binding
from hybridrt.deadline import current_scope, scopes
from hybridrt.loop.binding import LoopBinding, current_binding
from hybridrt.loop.completions import forget_idle
from hybridrt.observe.function_name import function_name
from hybridrt.offloaded import Offloaded
from hybridrt.options import Options
from hybridrt.pool.limiters import Limiter

__all__ = ["Batched"]

T = TypeVar("T")
R = TypeVar("R")


class Batched(Offloaded[[T], R], Generic[T, R]):
    """A function of a list that is called with one item, and runs those of several callers together.

    A batch starts in the next turn of the loop with what has been called by then, at most `batch` items.
    While it runs, calls gather, and go next: a lone caller waits for no others, and many fill the batches.
    With `batch_wait` a batch that is not full waits for more, for so many seconds from its first call.
    Batches are gathered for each loop; for methods, for each object. One runs at a time, or `limit`.

    An error of the function, or a result of another length, fails all calls of its batch. A call that is
    cancelled or times out is dropped; when all of a batch are, it is cancelled like any call. A batch runs
    in a copy of the context of its first call.
    """

    def __init__(
        self,
        fn: Callable[..., Sequence[R]],
        options: Options,
        *,
        binding: Binding = "object",
        head: tuple[Any, ...] = (),
        limiter: Limiter[Any] | None = None,
        **unused: Any,
    ) -> None:
        one = replace(options, batch=None, batch_wait=None, timeout=None)
        batches: Offloaded[..., Sequence[R]] = Offloaded(fn, one, limiter=limiter)
        super().__init__(
            fn,  # type: ignore[arg-type]  # from outside it takes one item and returns one result
            options,
            binding=binding,
            head=head,
            limiter=batches._limiter,
            router=batches._router,
        )
        self._batches = batches
        self._whole = batches
        """Runs batches that are one caller's, whose timeout is theirs."""
        if options.timeout is not None:
            timed = replace(one, timeout=options.timeout)
            self._whole = Offloaded(fn, timed, limiter=batches._limiter, router=batches._router)
        self._gatherers: dict[asyncio.AbstractEventLoop, dict[tuple[int, ...], Gatherer]] = {}
        self._name = function_name(fn)

    async def __call__(self, item: T, /) -> R:
        """Run the function with this item and those of other callers, and return the result for this one."""
        return await self._join(current_binding(), item)

    def sync(self, item: T, /) -> R:
        """Call the function here and now, with a list of this item, and return the one result."""
        self._check_class()
        fn: Callable[..., Any] = self._fn
        return list_results(self._name, 1, fn(*self._head, [item]))[0]  # type: ignore[no-any-return]

    async def run_on(self, loop_binding: LoopBinding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call through a given loop's binding."""
        if len(args) != 1 or kwargs:
            raise TypeError(
                f"{self._name} is batched and takes one item, got {len(args)} arguments"
                f"{' and keywords' if kwargs else ''}; put them into one item"
            )
        return await self._join(loop_binding, args[0])

    async def run_batch(self, loop_binding: LoopBinding, items: list[T]) -> list[R]:
        """Run one batch of these items, whatever else is called."""
        # A copy: the function may consume what it gets.
        results = await self._whole.run_on(loop_binding, (*self._head, list(items)), {})
        return list_results(self._name, len(items), results)

    async def _join(self, loop_binding: LoopBinding, value: T) -> R:
        loop, scope = loop_binding.loop, current_scope.get() if scopes.ever_used else None
        if scope is not None:
            scope.check(self._name)
        gatherer = self._gatherer(loop_binding)
        item = gatherer.add(value)
        timers: list[Any] = [] if scope is None else [scope.bound(item)]
        if self._options.timeout is not None:
            timers.append(loop.call_later(self._options.timeout, item.expire_soon, self._options.timeout))
        try:
            return await item  # type: ignore[no-any-return]
        finally:
            gatherer.leave(item)
            for timer in timers:
                timer.cancel()
            del item  # an error's traceback holds this frame

    def _gatherer(self, loop_binding: LoopBinding) -> Gatherer:
        loop, key = loop_binding.loop, tuple(map(id, self._head))
        here = self._gatherers.get(loop)
        if here is None:
            forget_idle(self._gatherers, bool)
            here = self._gatherers[loop] = {}
        gatherer = here.get(key)
        if gatherer is None:
            options = self._options
            assert options.batch is not None
            gatherer = here[key] = Gatherer(
                loop,
                self._name,
                partial(self._hand_over, loop_binding),
                size=options.batch,
                wait=options.batch_wait,
                most=options.limit or 1,
                figures=self._figures(loop_binding),
                on_idle=partial(here.pop, key, None),
            )
        return gatherer

    def _hand_over(self, loop_binding: LoopBinding, items: list[T]) -> Any:
        return self._batches.run_on(loop_binding, (*self._head, items), {})

    def _figures(self, loop_binding: LoopBinding) -> BatchFigures:
        name = loop_binding.pool.profiles.of(self._fn).name
        figures = loop_binding.pool.batched.get(name)
        if not isinstance(figures, BatchFigures):
            figures = loop_binding.pool.batched.setdefault(name, BatchFigures())
        assert isinstance(figures, BatchFigures)
        return figures
