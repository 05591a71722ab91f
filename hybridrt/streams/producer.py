"""The worker's side of a stream: advance the generator until the buffer is full, or close it.

The loop and at most one worker share a `Producer`. Only the worker advances and closes the generator; the
loop only takes items and sets `closing`, `left` and `wanted`. Why the loop never sleeps through an item:

    1. The loop finds no item and sets `wanted`.
    2. The loop looks again. There is an item now: it takes `wanted` back and goes on. Else it sleeps.
    a. The worker appends an item.
    b. The worker reads `wanted`. True: it takes it back and wakes the loop.

If the worker reads False in b, then a came before 1, and the loop finds the item in 2.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

from hybridrt.callables import as_iterator

__all__ = ["GeneratorProducer", "Producer"]

SLICE_NS = 20_000_000
"""After which a step ends although the buffer has room, so that other calls get their turn; not tuned."""


class Producer:
    """Advances one generator.

    Args:
        bound: Items in the buffer at most.
        wake: Wakes the loop, from any thread.

    Attributes:
        items: What it has yielded and was not taken yet; the oldest first.
        wanted: The loop sleeps until there is an item.
        closing: The generator is to end after the step that it is in.
        left: The loop has left a step behind, which is to close the generator.
        inside: A worker advances it.
        open: The generator has begun and not ended: closing it runs code of the user.
        ended: It has ended, by itself or by an error.
        ran_ns: What its steps have taken.
    """

    def __init__(self, bound: int, wake: Callable[[], object]) -> None:
        self._bound, self._wake = bound, wake
        self.items: deque[Any] = deque()
        self.wanted = self.closing = self.left = self.inside = self.open = self.ended = False
        self.ran_ns = 0
        self._to_close: deque[None] = deque((None,))

    def run(self) -> None:
        """Advance the generator until the buffer is full, the time slice is over or it ends.

        A step that its loop has left behind closes the generator itself. Either this thread sees `left`
        at the end, or the loop, which sets it first and then reads `inside`, sees that no thread is inside.
        """
        self.inside = True
        begun = time.perf_counter_ns()
        try:
            self._advance()
        except BaseException:
            self._end()
            raise
        finally:
            self.ran_ns += time.perf_counter_ns() - begun
            self.inside = False
        if self.left and self.claim_closing():
            self.close()

    def claim_closing(self) -> bool:
        """Return True if the caller is the one to close the generator."""
        if not self.open:
            return False
        try:
            self._to_close.pop()
        except IndexError:
            return False
        return True

    def close(self) -> None:
        """Close the generator where it stands; raises what its `finally` raises."""
        raise NotImplementedError

    def _advance(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self.ended, self.open = True, False


class GeneratorProducer(Producer):
    """Advances a generator of this interpreter.

    Args:
        make: Makes the generator, in the worker.
        bound, wake: See `Producer`.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], bound: int, wake: Callable[[], object]) -> None:
        super().__init__(bound, wake)
        self._make = make
        self._generator: Iterator[Any] | None = None

    def _advance(self) -> None:
        items, bound, wake = self.items, self._bound, self._wake
        generator = self._generator
        until = time.perf_counter_ns() + SLICE_NS
        if generator is None:
            if self.closing:
                return
            generator = self._generator = as_iterator(self._make())
            self.open = True
        while not self.closing and len(items) < bound:
            try:
                item = next(generator)
            except StopIteration:
                self._end()
                return
            items.append(item)
            del item
            if self.wanted:
                self.wanted = False
                wake()
            if time.perf_counter_ns() > until:
                return

    def close(self) -> None:
        """Close the generator where it stands; raises what its `finally` raises."""
        generator = self._generator
        self._end()
        if isinstance(generator, Generator):  # other iterators, as files are, belong to who has made them
            generator.close()

    def _end(self) -> None:
        super()._end()
        self._generator = None
