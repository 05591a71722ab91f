"""An offloaded generator function: calling it gives an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hybridrt.callables import Binding, mark_as_async_generator_function
from hybridrt.loop.port import Port, current_port
from hybridrt.observe.naming import function_name
from hybridrt.offloaded import Offloaded
from hybridrt.options import Options, first_place
from hybridrt.pool.gates import Gate
from hybridrt.streams.producer import GeneratorProducer
from hybridrt.streams.steps import Steps, without_deadline

__all__ = ["BUFFER", "OffloadedGenerator"]

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

BUFFER = 64
"""Items in the buffer where `buffer` is not given: short ones cross some dozens at a time. Not tuned."""


class OffloadedGenerator(Offloaded[P, Iterator[T]], Generic[P, T]):
    """A generator function whose steps run off the event loop.

    Calling it gives an async generator, for `async for`. Nothing runs before the first item is asked for.
    Its steps never overlap; each is a call in a worker thread, or in an isolate if it is `pure` and that is
    cheaper, and fills a buffer of `buffer` items while the consumer works. The worker is given back when
    the buffer is full. All steps run in one copy of the context of the first one's caller.

    `aclose()`, cancelling and dropping it end the generator after the step it is in: its `finally` runs in
    a worker thread, and the await ends when that has. `contextlib.aclosing` does so at the end of a block.
    """

    def __init__(
        self,
        fn: Callable[P, Iterator[T]],
        options: Options,
        *,
        binding: Binding = "object",
        head: tuple[Any, ...] = (),
        limiter: Gate[Any] | None = None,
        **unused: Any,
    ) -> None:
        super().__init__(fn, options, binding=binding, head=head, limiter=limiter)
        mark_as_async_generator_function(self)
        chosen = replace(options, pure=False, where="thread", isolation="auto", timeout=None, buffer=None)
        self._steps = Offloaded(fn, chosen, limiter=self._limiter)
        closing = replace(chosen, queue_timeout=None)
        self._closing = Offloaded(fn, closing, limiter=self._limiter)

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
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return super().__get__(obj, owner)

    async def run_on(self, port: Port, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
            for item in self._fn(*args, **kwargs):
                yield item
            return
        steps = self.open(current_port(), args, kwargs)
        items, bound = steps.producer.items, self._options.buffer or BUFFER
        try:
            while await steps.more():
                for _ in range(bound):
                    yield items.popleft()
                    steps.refill()
                    if not items:
                        break
                else:  # the worker keeps pace, and the loop must get a turn now and then
                    await asyncio.sleep(0)
        finally:
            await steps.aclose()

    def open(self, port: Port, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        """Return the steps of one generator, of which none has run."""
        return self.open_over(port, partial(self._fn, *args, **kwargs))

    def open_over(self, port: Port, make: Callable[[], Iterator[Any]]) -> Steps:
        """Return the steps of what `make` gives, which counts as calls of this function."""
        bound = self._options.buffer or BUFFER
        steps = Steps(
            port,
            self._make_step,
            partial(_start, self._steps),
            without_deadline(partial(_start, self._closing)),
            bound,
            self._options.timeout,
        )
        steps.producer = GeneratorProducer(make, bound, steps.wake)
        return steps

    def _make_step(self, port: Port, run: Callable[[], None]) -> Any:
        call = self._make(port, (), {})
        call.fn = run
        return call


def _start(offloaded: Offloaded[..., Any], call: Any) -> list[Any]:
    return offloaded._start(call, None, None)
