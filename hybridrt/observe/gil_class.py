"""What a function does with the GIL while it computes, learned from a sleeper that wakes beside it.

The governor sleeps and wakes (see `measure.gil`). Beside a call that computes through its wake-up

- it finds the GIL free, and the call's CPU clock goes on while the governor has the GIL, if the call
  *releases* it;
- it gets the GIL after about one switch interval, if the call *cooperates*: bytecode asks at every
  turn of a loop whether a thread waits;
- it waits until a C function returns, if the call *holds* the GIL.

One wake-up proves little, so they are counted, and old ones fade: a function that changes is learned
anew. Only short switch intervals tell cooperating from holding; the shield sets one while calls compute.
"""

from __future__ import annotations

from hybridrt.values import GilClass, GilEvidence

__all__ = ["GilLedger", "evidence_of", "gil_class"]

_ENOUGH = 4
"""Wake-ups before anything is said."""
_FADE = 64
"""Wake-ups kept; then all counts are halved."""
_RELEASES_FROM = 0.65
"""Share of free wake-ups from which a function releases the GIL. The loop and others take the GIL
meanwhile too, so all of them will hardly be free. Not tuned."""
_RELEASES_UNTIL = 0.40
_WORTH = 0.2
"""Share of free wake-ups from which two at once may do more than one; beside a busy loop most of the
wake-ups find the GIL taken by that. Python code has none."""
_SURELY = 3
"""Free wake-ups from which that is believed: one in some hundred is found free by mistake."""
_HOLD_NS = 1_000_000
_HOLD_INTERVALS = 3
"""A wait for the GIL of at least 1 ms and three switch intervals was a hold."""
_TELLING_INTERVAL_NS = 1_000_000
"""At a longer switch interval a short wait for the GIL does not tell cooperating from holding."""


class GilLedger:
    """The evidence about one function; the shared lock protects it.

    Attributes:
        releases: The function leaves the GIL to others while it computes.
        free: Wake-ups beside it that found the GIL free.
        taken: Those that did not.
        yielded: Those of them after which the GIL came within a switch interval or two.
        held: Those after which it did not.
        waiting: Looks at running calls that saw them blocked.
        longest_hold_ns: The longest wait for the GIL beside one call of it alone.
    """

    __slots__ = ("free", "held", "longest_hold_ns", "releases", "taken", "waiting", "yielded")

    def __init__(self) -> None:
        self.free = self.taken = self.yielded = self.held = self.waiting = 0
        self.longest_hold_ns = 0
        self.releases = False

    def saw_free(self) -> None:
        """A call computed, and the GIL was free."""
        self.free += 1
        self._judge()

    def saw_taken(self, delay_ns: int, interval_ns: int) -> None:
        """A call computed alone, and the governor waited for the GIL.

        Args:
            delay_ns: For how long.
            interval_ns: The switch interval.
        """
        self.taken += 1
        if delay_ns >= max(_HOLD_NS, _HOLD_INTERVALS * interval_ns):
            self.held += 1
            self.longest_hold_ns = max(self.longest_hold_ns, delay_ns)
        elif interval_ns <= _TELLING_INTERVAL_NS:
            self.yielded += 1
        self._judge()

    def saw_waiting(self) -> None:
        """A call was blocked."""
        self.waiting += 1
        self._judge()

    @property
    def may_release(self) -> bool:
        """Return True if it is worth a try to run several at once; only what was seen free ever is."""
        looks = self.free + self.taken
        return looks >= _ENOUGH and self.free >= max(_SURELY, _WORTH * looks)

    @property
    def never_free(self) -> bool:
        """Return True if none of many wake-ups has found the GIL free lately."""
        return not self.free and self.taken >= _FADE // 4

    @property
    def may_hold(self) -> bool:
        """Return True if a call may keep the GIL for long: it is known to, or not known not to.

        Beside a busy loop it takes dozens of calls to know.
        """
        found = gil_class(waits=False, releases=False, yielded=self.yielded, held=self.held)
        return found is not GilClass.COOPERATES

    @property
    def share(self) -> float | None:
        """Share of its computing time in which it has the GIL; None before enough is known."""
        ticks = self.free + self.taken
        return self.taken / ticks if ticks >= _ENOUGH else None

    def name(self, *, waits: bool) -> GilClass:
        """Return the class; `waits` says that the function mostly blocks."""
        return gil_class(waits=waits, releases=self.releases, yielded=self.yielded, held=self.held)

    def _judge(self) -> None:
        if self.free + self.taken + self.waiting > _FADE:
            for name in ("free", "taken", "yielded", "held", "waiting"):
                setattr(self, name, getattr(self, name) // 2)
        share = self.share
        if share is not None:
            self.releases = 1.0 - share >= (_RELEASES_UNTIL if self.releases else _RELEASES_FROM)
        elif self.free + self.taken == 0:
            self.releases = False  # what was seen has faded


def gil_class(*, waits: bool, releases: bool, yielded: int, held: int) -> GilClass:
    """Return the class that the figures of a ledger give."""
    if waits:
        return GilClass.WAITS
    if releases:
        return GilClass.RELEASES
    if held + yielded < _ENOUGH:
        return GilClass.UNKNOWN
    return GilClass.HOLDS if 2 * held >= yielded else GilClass.COOPERATES


def evidence_of(
    waiting: int, free: int, taken: int, yielded: int, held: int, longest_hold_ns: int
) -> GilEvidence:
    """Return the public view of the same."""
    return GilEvidence(
        waiting=waiting,
        free=free,
        taken=taken,
        yielded=yielded,
        held=held,
        longest_hold=longest_hold_ns / 1e9,
    )
