"""What a limiter lets through, seen at the beats of a loop and summed up to windows.

A limiter tells who holds its tokens and how many wait, and no more. Two looks at the holders give
the calls that began and ended in between; a task that returns a token and takes one again between
two beats is seen as one call, so the counts are lower bounds. Plain arithmetic; times come in.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from hybridrt.control.window import Limits, Window

__all__ = ["Borrowing", "Spent"]

PROMPT = 0.0015
"""Seconds a timer of a loop may be late although the GIL is free: both loops count milliseconds."""
MEMORY = 1.0
"""Seconds after which what was seen of the calls' CPU use counts half: calls that came together compute
together, too, and one window shows the one or the other. Not measured."""
BLIND = 0.2
"""Seconds for which calls that began together tell nothing of what they do, unless one ends. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a window cost, in seconds; None where the platform does not tell.

    Attributes:
        cpu: CPU time of the threads that run the calls.
        process: CPU time of the process.
        switches: How often threads of the process left a core.
    """

    cpu: float | None
    process: float
    switches: int | None


@dataclass(slots=True)
class Borrowing:
    """The window that is open.

    Attributes:
        opened: When it was opened.
    """

    opened: float
    _first: float = field(init=False)
    _last: float = field(init=False)
    _ended: bool = False
    _holders: set[Hashable] = field(default_factory=set)
    _waiting: int = 0
    _busy: float = 0.0
    _completed: int = 0
    _latest: float = 0.0
    _late_time: float = 0.0
    """Time that beats stand for that came late: one long wait counts for its length."""
    _switch_interval: float = 0.0
    _cpu: float = 0.0
    _blocked: float = 0.0

    def __post_init__(self) -> None:
        self._first = self._last = self.opened

    def note(self, now: float, late: float, borrowers: Iterable[object], waiting: int) -> None:
        """Take in a beat that came `late` seconds after its time."""
        holders = {_mark(borrower) for borrower in borrowers}
        passed = now - self._last
        # What holds a token now has held it since some time after the last beat: the mean is fair.
        self._busy += passed * (len(holders) + len(self._holders)) / 2
        self._completed += len(self._holders - holders)
        self._ended = self._ended or self._completed > 0
        self._holders, self._waiting, self._last = holders, waiting, now
        self._latest = max(self._latest, late)
        if late > PROMPT:
            self._late_time += passed
        self._switch_interval = max(self._switch_interval, sys.getswitchinterval())

    def is_blind(self) -> bool:
        """Tell whether the calls may yet turn out to compute: none has ended, and they are young."""
        return not self._ended and self._last - self._first < BLIND

    def close(self, spent: Spent, limits: Limits) -> Window:
        """Return the window up to the last beat, and open the next."""
        seconds = self._last - self.opened
        # Without a clock for the threads the whole process stands in: more than they used, never less.
        cpu = spent.process if spent.cpu is None else spent.cpu
        certified = self._certified(cpu, spent.switches)
        gil_share = self._late_time / seconds
        window = Window(
            seconds=seconds,
            queued=self._waiting,
            running=len(self._holders),
            completed=self._completed,
            wall=self._busy,
            cpu=cpu,
            busy=self._busy / seconds,
            lane_cpu=max(cpu / seconds, gil_share * _part(cpu, spent.process)),
            beta_certified=certified,
            gil_share=gil_share,
            knee=self._knee(cpu, certified, limits.capacity if gil_share >= 0.5 else limits.cores, seconds),
        )
        self.opened = self._last
        self._busy = self._latest = self._late_time = self._switch_interval = 0.0
        self._completed = 0
        return window

    def _knee(self, cpu: float, certified: float | None, capacity: float, seconds: float) -> float | None:
        """Return the number of calls that together just fill the GIL or the cores; None if any number may.

        By what they use and what they are certain to block, so that the truth is this or higher.
        """
        fade = 0.5 ** (seconds / MEMORY)
        blocked = max(0.0, self._busy - cpu) if certified is None else certified * self._busy
        self._cpu = fade * self._cpu + cpu
        self._blocked = fade * self._blocked + blocked
        return capacity * (1.0 + self._blocked / self._cpu) if self._cpu > 0.0 else None

    def _certified(self, cpu: float, switches: int | None) -> float | None:
        """Return the share of the calls' time that was neither CPU nor a wait for the GIL or a core.

        A thread that waits for the GIL leaves its core at least once a switch interval, and waits no
        longer than the loop itself did at its worst beat. All switches of the process are laid to the
        calls, so the share errs on the low side.
        """
        if switches is None or not self._busy:
            return None
        waited = switches * min(self._switch_interval, self._latest)
        return min(1.0, max(0.0, 1.0 - (cpu + waited) / self._busy))


def _part(cpu: float, process: float) -> float:
    """Return the part of the process's CPU time that is the calls', and so their part of the GIL.

    On a machine with too few cores the GIL may be taken all the time and the CPU used half of it.
    """
    return min(1.0, cpu / process) if process > 0.0 else 0.0


def _mark(borrower: object) -> Hashable:
    """Return what tells borrowers apart and keeps none of them alive."""
    try:
        return weakref.ref(borrower)
    except TypeError:
        return id(borrower)
