"""The circuit breaker of an upstream, as pure functions: time is an argument.

Closed it lets all requests through. After `failures_max` failures in a row it opens and lets none through
for `open_seconds`. Then it is half open: one request at a time tries. The first byte of its answer closes
it, and a failure opens it again, also one after that byte: only a whole answer makes it forget the failures.
A trial that neither begins to answer nor fails (its client left) counts for `open_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["CLOSED", "Breaker", "Circuit", "admit", "began", "failed", "may_admit", "succeeded"]


class Circuit(Enum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker: its state, failures in a row, and until when it refuses."""

    state: Circuit = Circuit.CLOSED
    failures: int = 0
    until: float = 0.0


CLOSED = Breaker()


def may_admit(breaker: Breaker, now: float) -> bool:
    """Return True if a request may go through now."""
    return breaker.state is Circuit.CLOSED or now >= breaker.until


def admit(breaker: Breaker, now: float, *, open_seconds: float) -> Breaker:
    """Return the breaker after a request was let through; a trial keeps others out until it has ended."""
    if breaker.state is Circuit.CLOSED:
        return breaker
    return Breaker(Circuit.HALF_OPEN, breaker.failures, now + open_seconds)


def began(breaker: Breaker) -> Breaker:
    """Return the breaker after the first byte of an answer, which ends a trial and forgets no failure."""
    return Breaker(Circuit.CLOSED, breaker.failures) if breaker.state is Circuit.HALF_OPEN else breaker


def succeeded() -> Breaker:
    """Return the breaker after a whole answer."""
    return CLOSED


def failed(breaker: Breaker, now: float, *, failures_max: int, open_seconds: float) -> Breaker:
    """Return the breaker after a failure."""
    failures = breaker.failures + 1
    if breaker.state is not Circuit.CLOSED or failures >= failures_max:
        return Breaker(Circuit.OPEN, failures, now + open_seconds)
    return Breaker(Circuit.CLOSED, failures)
