"""What calls of one function have cost, by the size of their input: on the loop, in a thread, elsewhere.

Sizes come from arguments of exactly a built-in type, because only those tell their length without running
any code of the user's. A call in a worker is measured by its own clocks. Its wall time is inflated by waits
for the GIL, its CPU time is not; what it blocks by itself is the least that one of the last calls did.

Nothing here is exact between threads: two loops that run the same function inline may lose a count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from hybridrt.observe.functions import WAITING_SHARE

__all__ = ["INLINE_MAX_NS", "SIZED", "UNSIZED", "Figures", "Overruns", "Size", "measure"]

UNSIZED = -1
"""The key of inputs whose size cannot be told."""
Size = tuple[int, int, int] | None
"""The sum of an input's lengths, the bits of its largest number, and the bits of all its numbers in sum; None
where they cannot be told."""
SIZED = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset, range})
_PLAIN = frozenset({bool, float, complex, type(None)})
_KEPT, _KEPT_LEAST = 3, 16
"""Figures kept of what is averaged, and of what waits for others may inflate, so that the least counts."""
INLINE_MAX_NS = 100_000
"""The longest that a call on the loop may take."""
_SURELY = 2
"""Times as long is an overrun. Less happens to a call beside other programs that share its core's caches; it
is one if it happens time and again."""
_WAIT_CPU_NS = 20_000
"""CPU time of one wait for the GIL, taken high."""
_COMPUTED = 0.125
"""Share of a long call that it has to have computed: a thread that is kept from a core is billed for some of
that."""
_OF_GIL = 0.25
"""Share of a long call that the switch intervals of its waits make up from which it waited for the GIL."""
_BLOCKED_NS = 50_000_000
"""A call that waited otherwise, and for longer than this, did so by itself,"""
_SUSPECT, _SUSPECT_NS, _SUSPECT_CALLS = 32, 200_000_000, 64
"""and a shorter time if it happens so often, or takes so long in sum, in so many calls. None of these is
tuned."""
PAUSE, PAUSE_MAX = 8, 4096
"""Calls that go to a worker after an overrun: the first time, and at most."""
FORGIVEN = 100
"""Calls in time, per call of the last pause and per millisecond of the overrun, after which it counts as the
first. Not tuned."""


def measure(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Size:
    """Return how large an input is: the sum of its lengths, and the magnitudes of its numbers in bits.

    Strings, bytes and containers tell their length; what lies in a container is not looked at. An integer
    tells its magnitude, because loops are counted by it, and no more than that, because an id or a time
    stamp grows with each call. The sum tells a count of a new magnitude that stands beside a large id.
    None: some argument is of another type.
    """
    size = largest = together = 0
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in SIZED:
            size += len(value)
        elif kind is int:
            bits = value.bit_length()
            together += bits
            if bits > largest:
                largest = bits
        elif kind not in _PLAIN:
            return None
    return size, largest, together


class Figures:
    """The last calls with inputs of one size.

    Attributes:
        measured: Calls measured in a worker.
        carried: Calls measured that came back from an isolate.
        inline_calls: Calls on the loop.
        inline_wall_ns: What they took in sum.
    """

    __slots__ = (
        "_blocked", "_carry", "_child_blocked", "_child_cpu", "_cpu", "_hop", "carried", "inline_calls",
        "inline_wall_ns", "measured",
    )  # fmt: skip

    def __init__(self) -> None:
        self.measured = self.carried = self.inline_calls = self.inline_wall_ns = 0
        self._cpu, self._carry, self._child_cpu = (deque[int](maxlen=_KEPT) for _ in range(3))
        self._blocked, self._child_blocked, self._hop = (deque[int](maxlen=_KEPT_LEAST) for _ in range(3))

    def worked(self, wall_ns: int, cpu_ns: int) -> None:
        """Take in a call in a worker thread."""
        self.measured += 1
        self._cpu.append(cpu_ns)
        self._blocked.append(max(0, wall_ns - cpu_ns))

    def crossed(self, *, carry_ns: int, child_cpu_ns: int, child_wall_ns: int, hop_ns: int) -> None:
        """Take in a call that was carried to an isolate and back."""
        self.carried += 1
        self._carry.append(carry_ns)
        self._child_cpu.append(child_cpu_ns)
        self._child_blocked.append(child_wall_ns - child_cpu_ns)
        self._hop.append(hop_ns)

    def to_record(self) -> dict[str, Any]:
        """Return the figures, to be kept from one run to the next."""
        kept = {name: list(values) for name, values in self._values().items()}
        return {"measured": self.measured, "carried": self.carried, **kept}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Begin with figures that were kept.

        Raises:
            KeyError, TypeError, ValueError, OverflowError: It is no such record; nothing has changed.
        """
        measured, carried = int(record["measured"]), int(record["carried"])
        kept = {name: [int(value) for value in record[name]] for name in self._values()}
        self.measured, self.carried = measured, carried
        for name, values in self._values().items():
            values.extend(kept[name])

    def _values(self) -> dict[str, deque[int]]:
        return {
            "cpu": self._cpu,
            "blocked": self._blocked,
            "carry": self._carry,
            "child_cpu": self._child_cpu,
            "hop": self._hop,
        }

    @property
    def calls(self) -> int:
        """All calls so far."""
        return self.measured + self.carried + self.inline_calls

    @property
    def cpu_ns(self) -> float:
        """CPU time of a call in a thread."""
        return _middle(self._cpu)

    @property
    def blocked_ns(self) -> int:
        """What a call blocks by itself, at most."""
        return min(self._blocked, default=0)

    @property
    def blocked_most_ns(self) -> int:
        """What one of the last calls has blocked at most, the wait for the GIL included."""
        return max(self._blocked, default=0)

    @property
    def longest_ns(self) -> int:
        """How long one of the last calls would have kept the loop, at most."""
        return max(self._cpu, default=0) + self.blocked_ns

    @property
    def carry_ns(self) -> float:
        """CPU time in this interpreter for carrying one."""
        return _middle(self._carry)

    @property
    def child_cpu_ns(self) -> float:
        """CPU time of a call in an isolate."""
        return _middle(self._child_cpu)

    @property
    def may_wait_there(self) -> bool:
        """Return True if the last calls in an isolate waited, or lacked a core, for much of their time."""
        blocked = min(self._child_blocked) if len(self._child_blocked) == _KEPT_LEAST else 0
        return blocked > INLINE_MAX_NS and blocked >= WAITING_SHARE * (blocked + self.child_cpu_ns)

    @property
    def hop_ns(self) -> int:
        """What the way to an isolate and back takes beside the call, the carrying included."""
        return min(self._hop, default=0)


def _middle(values: deque[int]) -> float:
    return median(values) if values else 0.0


class Overruns:
    """Calls that ran on the loop and took longer than they may.

    Attributes:
        count: How many.
        longest_ns: The longest of them.
        left: Calls that still go to a worker for it.
    """

    __slots__ = (
        "_calls_before", "_pause", "_suspect_ns", "_suspects", "_suspects_from", "count", "left",
        "longest_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = self.longest_ns = self.left = 0
        self._calls_before = self._pause = self._suspects = self._suspect_ns = self._suspects_from = 0

    def is_one(self, wall_ns: int, cpu_ns: int, waits: int | None, interval_ns: int, calls: int) -> bool:
        """Return True if a long call is an overrun, or was kept from the GIL or from a core.

        A thread that wants the GIL waits again after each switch interval, and computes a little each time;
        one that never waits lacks a core at most; one that sleeps, or reads, waits once.

        Args:
            wall_ns: How long it took.
            cpu_ns: How long its thread computed.
            waits: How often that waited for anything; None where the platform does not count.
            interval_ns: The switch interval.
            calls: Calls on the loop so far.
        """
        computed = cpu_ns - (waits or 0) * _WAIT_CPU_NS
        own = computed > INLINE_MAX_NS and computed > _COMPUTED * wall_ns
        if own and computed > _SURELY * INLINE_MAX_NS:
            return True
        if not own and waits is not None and not 0 < waits * interval_ns < _OF_GIL * wall_ns:
            return False
        if calls - self._suspects_from > _SUSPECT_CALLS:
            self._suspects, self._suspect_ns, self._suspects_from = 0, 0, calls
        self._suspects += 1
        self._suspect_ns += wall_ns
        return wall_ns > _BLOCKED_NS or self._suspects >= _SUSPECT or self._suspect_ns > _SUSPECT_NS

    def note(self, wall_ns: int, calls: int, *, pauses: bool = True) -> None:
        """Take in an overrun, the last of `calls` on the loop; `pauses` sends the next to a worker."""
        self.count += 1
        self.longest_ns = max(self.longest_ns, wall_ns)
        if not pauses:
            return
        is_forgiven = calls - self._calls_before >= FORGIVEN * max(self._pause, wall_ns // 1_000_000)
        self._pause = PAUSE if is_forgiven else min(max(PAUSE, 2 * self._pause), PAUSE_MAX)
        self._calls_before = calls
        self.left = self._pause
