"""Keeps long-lived objects out of garbage collection, which stops the loop for as long as it takes.

A full collection has the GIL while it looks at every object of the process that can refer to others. With
a framework or two imported that is 12 to 120 ms, and calls that make many objects, as those that parse do,
bring several a second about. `gc.freeze` puts the objects that are there into the *permanent generation*,
which collections leave out. That is done when the first loop is there, and after each full collection, whose
survivors are alive. From then on a full collection looks at what is new.

An object there is freed as ever when nothing refers to it. Only a cycle of such objects stays, until a
collection looks at all objects again: when `control.collection` says so, at each call of `gc.collect`, and
when the last loop has gone. Nothing is done for a program that has frozen objects itself.

`gc.freeze` also sets back the counts by which CPython begins a collection. A program that opens and closes
loops again and again would never collect, so one is made before a loop comes where it is due.

The collector calls back in whatever thread it strikes, with any lock held: the callback takes none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Protocol

from hybridrt.control.collection import Whole, is_whole_due

__all__ = ["Collector", "PermanentGeneration"]

_OLDEST = 2
_FEW = 5000
"""Objects there up to which the program has frozen none itself: a new interpreter of CPython 3.12 has 375 of
its own, a program that has imported a framework 50,000 and more. Not tuned."""


class Collector(Protocol):
    """What is used of the module `gc`."""

    callbacks: list[Any]

    def collect(self) -> int:
        """Collect all generations but the permanent one."""
        ...

    def get_count(self) -> tuple[int, int, int]:
        """Return how much came since the last collection of each generation."""
        ...

    def get_threshold(self) -> tuple[int, int, int]:
        """Return beyond which of these numbers a generation is collected."""
        ...

    def get_freeze_count(self) -> int:
        """Return how many objects are in the permanent generation; it counts them one by one."""
        ...

    def freeze(self) -> None:
        """Put all objects there."""
        ...

    def unfreeze(self) -> None:
        """Put them back into the oldest generation."""
        ...


class PermanentGeneration:
    """That of one interpreter.

    Args:
        collector: Its garbage collector; another in tests.
        now_ns: The time in nanoseconds.
        blocks: How many blocks of memory Python's objects have; 0.2 ms where they are three million.

    Attributes:
        collections: Full collections so far, while a loop was there.
        longest_ns: How long the longest of them took.
    """

    def __init__(
        self,
        collector: Collector = gc,
        now_ns: Callable[[], int] = perf_counter_ns,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self.collections = self.longest_ns = 0
        self._collector = collector
        self._now_ns = now_ns
        self._blocks = blocks
        self._called = self._collects  # one object, to be found again
        self._wanted = self._in_use = False
        self._asked = False
        """`gc.collect` asked for the collection under way."""
        self._frozen = False
        """Objects are in the permanent generation, so the collection under way does not look at all."""
        self._begun_ns = 0
        self._last: Whole | None = None

    def collect_if_due(self) -> None:
        """Look at all objects before a first loop comes, if that is due since another one was there."""
        begun_ns = self._now_ns()
        if self._in_use or not self._is_due(begun_ns):
            return
        self._collector.collect()
        ended_ns = self._now_ns()
        self._last = Whole(ended_ns=ended_ns, took_ns=ended_ns - begun_ns, blocks=self._blocks())

    def use(self, *, wanted: bool) -> None:
        """Begin or end to keep objects there; does nothing if that is so already."""
        if wanted is self._wanted:
            return
        self._wanted = wanted
        if self._in_use:
            self._in_use = False
            self._thaw()  # first: nothing is frozen where a `gc.collect` would not be told of
            with suppress(ValueError):  # other code has cleared the list
                self._collector.callbacks.remove(self._called)
        elif wanted and self._collector.get_freeze_count() <= _FEW:
            self._in_use = True
            self._asked = False  # a collection may be under way, of which the end is seen alone
            self._begun_ns = self._now_ns()
            self._last = self._last or Whole(ended_ns=self._begun_ns, blocks=self._blocks())
            self._collector.callbacks.append(self._called)
            self._freeze()

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """Take note of a collection; called by the collector at its start and at its end."""
        if info["generation"] != _OLDEST:
            return
        now_ns = self._now_ns()
        if phase == "start":
            self._begun_ns = now_ns
            self._asked = self._collector.get_count()[_OLDEST] <= self._collector.get_threshold()[_OLDEST]
            if self._asked or not self._frozen or self._is_due(now_ns):
                self._thaw()
            return
        took_ns = now_ns - self._begun_ns
        self.collections += 1
        self.longest_ns = max(self.longest_ns, took_ns)
        if not self._frozen:
            self._last = Whole(ended_ns=now_ns, took_ns=took_ns, blocks=self._blocks())
        if not self._asked:  # else the program may want to see what is left, as `gc.get_objects` shows it
            self._freeze()
            # 1. This thread is about to freeze. 2. Another one ends the use, and thaws. 3. This one freezes.
            # It sees now that the use is over. If it does not, the other one has yet to thaw.
            if not self._in_use:
                self._thaw()

    def _is_due(self, now_ns: int) -> bool:
        return self._last is not None and is_whole_due(self._last, now_ns, self._blocks())

    def _freeze(self) -> None:
        self._collector.freeze()
        self._frozen = True

    def _thaw(self) -> None:
        self._collector.unfreeze()
        self._frozen = False
