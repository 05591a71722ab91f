"""Bounds the threads of BLAS libraries while calls that leave the GIL compute side by side.

Each of k such calls brings a pool of as many threads as there are cores, and they get into each other's way.
So while k of them compute, each library may use cores / k threads for a call. It may use what it could before
once they come one at a time again. Calls whose native threads fill the cores run one at a time, while others
wait for their turn; with one thread each they could run side by side, so those count, too.

Used by the governor's thread. `refuse` and `allow` are for runtimes that want the threads left alone; one
whose loop was closed without it wants nothing any more.

Left alone are libraries whose number of threads belongs to the calling thread, as OpenMP's own, because the
governor's thread cannot set it for others; and a number that other code has set meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Protocol

from hybridrt.measure.libraries import adjustable_libraries
from hybridrt.pool.lock import without_convoy

__all__ = ["VARIABLES", "NativeLimits", "may_govern_native"]

logger = logging.getLogger("hybridrt")

VARIABLES = ("BLIS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What a new process reads its number of threads from; one that the program has set counts."""
_KEPT_NS = 1_000_000_000
"""Time for which calls at once are remembered, so that threads do not come and go with each call."""
_FIND_NS = 5_000_000_000
"""Time between two looks for libraries that were loaded meanwhile; one takes a millisecond. Not measured."""


class Adjustable(Protocol):
    """A library whose threads can be bounded for the whole process."""

    num_threads: int

    def set_num_threads(self, num_threads: int) -> object:
        """Use so many threads for a call from now on."""
        ...


def may_govern_native() -> bool:
    """Return True unless HYBRIDRT_GOVERN_NATIVE=0 in the environment forbids it."""
    return os.environ.get("HYBRIDRT_GOVERN_NATIVE", "1") != "0"


def _never() -> bool:
    return False


class NativeLimits:
    """The bounds of one process.

    Args:
        find: Returns the libraries that are loaded, with an identity for each; others in tests.
        wanted: Whether anything is bounded at all; None asks the environment.

    Attributes:
        bound: Threads of a library for a call now; None while all may use what they found.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[tuple[str, Adjustable]]] = adjustable_libraries,
        *,
        wanted: bool | None = None,
    ) -> None:
        self.bound: int | None = None
        self._find = find
        self._wanted = may_govern_native() if wanted is None else wanted
        self._refusing: set[Callable[[], bool]] = set()
        self._lock = Lock()
        """Guards the list of those that refuse."""
        self._libraries: dict[str, Adjustable] = {}
        self._before: dict[str, int] = {}
        """Threads that a library used before it was bounded, by its identity."""
        self._found_ns = -_FIND_NS
        self._most = 0
        self._most_until_ns = 0

    @property
    def active(self) -> bool:
        """Return True if threads may be bounded."""
        if not self._wanted:
            return False
        with without_convoy(self._lock):
            self._refusing = {is_over for is_over in self._refusing if not is_over()}
            return not self._refusing

    def refuse(self, is_over: Callable[[], bool] = _never) -> None:
        """Leave all threads alone from now on, until `allow` or until that is over; from any thread."""
        with without_convoy(self._lock):
            self._refusing.add(is_over)

    def allow(self, is_over: Callable[[], bool] = _never) -> None:
        """Take that `refuse` back, if it is there: a runtime may be closed in a forked child."""
        with without_convoy(self._lock):
            self._refusing.discard(is_over)

    def start_clean(self) -> None:
        """Undo all bounds in a forked child, where neither what they were for nor those that refuse run."""
        self._lock = Lock()
        self._refusing = set()
        self.restore()

    def step(self, now_ns: int, at_once: int, cores: int) -> bool:
        """Bound the threads by the calls that compute now; return True if they were not bounded before.

        Args:
            now_ns: The time.
            at_once: Calls that compute without the GIL, or could.
            cores: Usable cores.
        """
        if at_once >= self._most or now_ns >= self._most_until_ns:
            self._most, self._most_until_ns = at_once, now_ns + _KEPT_NS
        if self._most < 2 or not self.active:
            if self.bound is not None:
                self.restore()
            return False
        bound, before = max(1, cores // self._most), self.bound
        if (self._look(now_ns) or bound != before) and self._libraries:
            self._apply(bound)
        return before is None and self.bound is not None

    def restore(self) -> None:
        """Let all libraries use the threads that they used before."""
        bound, self.bound, self._most = self.bound, None, 0
        for name, threads in self._before.items():
            library = self._libraries[name]
            if _threads(library) == bound:  # else other code has set it since
                _set(library, threads)
        self._before.clear()

    def _look(self, now_ns: int) -> bool:
        """Look for libraries now and then; return True if there are new ones."""
        if now_ns - self._found_ns < _FIND_NS:
            return False
        self._found_ns = now_ns
        found = {name: library for name, library in self._find() if name not in self._libraries}
        self._libraries.update(found)
        return bool(found)

    def _apply(self, bound: int) -> None:
        last, self.bound = self.bound, bound
        for name, library in self._libraries.items():
            threads = _threads(library)
            if threads is None or (name in self._before and threads != last):
                continue
            most = self._before.setdefault(name, threads)
            _set(library, min(bound, most))


def _threads(library: Adjustable) -> int | None:
    try:
        return library.num_threads
    except Exception as error:  # a library of a version that threadpoolctl does not know
        logger.debug("the threads of %r cannot be read: %r", library, error)
        return None


def _set(library: Adjustable, threads: int) -> None:
    try:
        library.set_num_threads(threads)
        # Who sets them first controls some of them until it lets go: nobody else could.
        if (let_go := getattr(library, "clear_controlling_thread", None)) is not None:
            let_go()
    except Exception as error:
        logger.debug("the threads of %r cannot be set: %r", library, error)
