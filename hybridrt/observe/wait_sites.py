"""Call sites at which calls wait: learned, paid for by each wait, and forgotten.

A site is a place in the bytecode of a function. It is learned when a thread was seen to stand there with the
kernel's evidence that it waits, and shows from then on by each return whether it still does. Each wait gives
it credit, for as long as it took. Each return at once, and each that has computed instead, costs some, for
there the permit changed hands for nothing; without credit the site is forgotten. A socket with data returns
at once most of the time and keeps its credit by the few waits that take long.

Used from any thread; a site's figures are written without a lock, so that a return in a thousand may go
uncounted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType

from hybridrt.values import WaitSiteStatistics

__all__ = ["SITES_MAX", "WaitSite", "WaitSites", "WaitsPerCall"]

SITES_MAX = 256
"""Sites known at once; the one with the least credit makes room."""
FIRST_CREDIT_NS = 10_000_000
CREDIT_MAX_NS = 1_000_000_000
"""Credit of a new site, and the most that waits can add up to: some thousand returns at once."""
WAITED_NS = 200_000
"""Time without CPU from which a return has waited; below, a wait for the GIL may be most of it."""
QUICK_COST_NS = 500_000
"""Cost of a return at once: about what a permit takes that changes hands twice beside others."""
COMPUTED_NS = 500_000
"""CPU time from which a return has computed, if that was most of its time; it costs"""
COMPUTED_COST = 8
"""times that. None of these is tuned."""
AFTER_FIRST_NS = 10_000_000
"""CPU time that is expected after a return from a new site."""

WHOLE_FIRST, WHOLE_EVERY = 4, 64
"""Calls of a function that are looked at to their end: the first ones, and each so many. Not tuned."""
MISSES_MAX = 16
"""Calls in a row that came to no site, after which one in"""
AGAIN = 256
"""is looked at. Not tuned."""


class WaitSite:
    """One site.

    Attributes:
        code: The function; kept, so that its `id` stays its own.
        offset: Of the instruction, in bytes.
        waits: Returns that had waited.
        wait_ns: How long, in all.
        quick: The other returns.
        after_ns: CPU time of what follows a return, until the next wait or the end of the call: about the
            longest of late.
        doubtful: Native threads computed when it was learned, and the call may wait for them.
        enabled_again: Its events were switched on a second time.
    """

    __slots__ = (
        "after_ns", "code", "credit_ns", "doubtful", "enabled_again", "offset", "quick", "wait_ns", "waits",
    )  # fmt: skip

    def __init__(self, code: CodeType, offset: int, *, doubtful: bool = False) -> None:
        self.doubtful = doubtful
        self.enabled_again = False
        self.code = code
        self.offset = offset
        self.credit_ns = FIRST_CREDIT_NS
        self.waits = self.wait_ns = self.quick = 0
        self.after_ns = AFTER_FIRST_NS

    @property
    def may_be_disabled(self) -> bool:
        """Whether no return was seen, and it has not been enabled a second time."""
        return not (self.waits or self.quick or self.enabled_again)

    def returned(self, wall_ns: int, cpu_ns: int) -> bool:
        """Take in a return; tell whether the site is still worth it."""
        waited = wall_ns - cpu_ns
        if cpu_ns >= COMPUTED_NS and 2 * cpu_ns > wall_ns:
            self.quick += 1
            self.credit_ns -= COMPUTED_COST * cpu_ns
        elif waited >= WAITED_NS:
            self.waits += 1
            self.wait_ns += waited
            self.credit_ns = min(CREDIT_MAX_NS, self.credit_ns + waited)
        else:
            self.quick += 1
            self.credit_ns -= QUICK_COST_NS
        return self.credit_ns > 0

    def calls(self, function: object) -> bool:
        """Take in what is called there; tell whether the site is to be believed.

        What the standard library waits for is never a native thread of a numeric library.
        """
        self.doubtful = self.doubtful and not _is_standard(function)
        return not self.doubtful

    def followed_by(self, cpu_ns: int) -> None:
        """Take in the CPU time of what came after a return."""
        self.after_ns = max(cpu_ns, self.after_ns - self.after_ns // 16)

    def statistics(self) -> WaitSiteStatistics:
        """Return the public view."""
        return WaitSiteStatistics(
            function=self.code.co_qualname,
            file=self.code.co_filename,
            line=_line_of(self.code, self.offset),
            waits=self.waits,
            wait=self.wait_ns / 1e9,
            quick=self.quick,
        )


class WaitSites:
    """The sites of one interpreter.

    Attributes:
        by_code: By `id` of the function, then by offset. A code object's own hash reads all of its bytecode.
        forgotten: Sites that were forgotten so far.
    """

    def __init__(self) -> None:
        self.by_code: dict[int, dict[int, WaitSite]] = {}
        self.forgotten = 0

    def __len__(self) -> int:
        return sum(map(len, tuple(self.by_code.values())))

    def find(self, code: CodeType, offset: int) -> WaitSite | None:
        """Return the site at a place, or None."""
        return self.by_code.get(id(code), {}).get(offset)

    def learn(self, code: CodeType, offset: int, *, doubtful: bool = False) -> WaitSite | None:
        """Add a site; return the one that made room for it, or None."""
        poorest = min(self, key=lambda site: site.credit_ns) if len(self) >= SITES_MAX else None
        if poorest is not None:
            self.forget(poorest)
        self.by_code.setdefault(id(code), {})[offset] = WaitSite(code, offset, doubtful=doubtful)
        return poorest

    def forget(self, site: WaitSite) -> bool:
        """Take a site out; return True if it was the last one of its function."""
        places = self.by_code.get(id(site.code), {})
        if places.get(site.offset) is not site:
            return False
        self.forgotten += 1
        places.pop(site.offset, None)  # another thread may have forgotten it just now
        if places:
            return False
        self.by_code.pop(id(site.code), None)
        return True

    def __iter__(self) -> Iterator[WaitSite]:
        return (site for places in tuple(self.by_code.values()) for site in tuple(places.values()))


class WaitsPerCall:
    """How many waits a call of a function has at learned sites, where it costs something to see them.

    Some calls are looked at to their end, which tells; the others up to that many waits.
    """

    __slots__ = ("_calls", "_misses", "_passed", "_waits")

    def __init__(self) -> None:
        self._calls = self._misses = self._passed = self._waits = 0

    @property
    def worth_it(self) -> bool:
        """Whether its calls still come to sites."""
        return self._misses < MISSES_MAX

    def is_due(self) -> bool:
        """Return True if a call that starts is to be looked at."""
        if self.worth_it:
            return True
        self._passed += 1
        return self._passed % AGAIN == 0

    def starts(self) -> int:
        """Return how many waits of a call that starts are to be seen; 0 for all of them."""
        self._calls += 1
        return 0 if self._calls <= WHOLE_FIRST or self._calls % WHOLE_EVERY == 0 else self._waits

    def ended(self, waits: int, last: int) -> None:
        """Take in a call.

        Args:
            waits: How many were seen.
            last: What `starts` has returned.
        """
        self._misses = 0 if waits else self._misses + 1
        if waits > self._waits:
            self._waits = waits
        elif not last and 0 < waits < self._waits:
            self._waits -= 1


def _is_standard(function: object) -> bool:
    """Return True if a callable is of the standard library."""
    module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names


def _line_of(code: CodeType, offset: int) -> int | None:
    """Return the line of an instruction."""
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)
