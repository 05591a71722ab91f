"""Retries: how often, for which errors, and how long to wait in between.

The waits are those of exponential backoff with full jitter: the n-th is any time up to
`backoff * 2 ** n` seconds, so that callers that failed together do not come back together.
Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hybridrt.arguments import check_count, check_seconds

__all__ = ["WAIT_MAX", "Retries"]

R = TypeVar("R")

WAIT_MAX = 30.0
"""Seconds that a wait takes at most, however many there were before."""
_DOUBLINGS_MAX = 64
"""More would not fit a float, and none is left below `WAIT_MAX` by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """When to try again.

    Attributes:
        times: Tries after the first.
        on: The errors to try again for.
        backoff: Seconds that the first wait takes at most; twice as many for each further one.
    """

    times: int = 0
    on: tuple[type[Exception], ...] = ()
    backoff: float = 0.1

    def __post_init__(self) -> None:
        check_count("retries", self.times, least=0)
        check_seconds("backoff", self.backoff)
        for error in self.on:
            if not _is_exception_class(error):
                raise TypeError(f"retry_on must be an exception class or a tuple of them, got {error!r}")
        if self.times and not self.on:
            raise ValueError(
                f"retries={self.times} needs retry_on, the errors that may go away by themselves, "
                "as in retry_on=ConnectionError"
            )
        if self.on and not self.times:
            raise ValueError("retry_on needs retries, the number of tries after the first, as in retries=2")

    def wait(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after so many failures, of which there is at least one.

        Args:
            failures: How often it has failed.
            chance: Where in the range the wait lies, in [0, 1).
        """
        return chance * min(WAIT_MAX, self.backoff * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))

    async def run(
        self,
        attempt: Callable[[], Awaitable[R]],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> R:
        """Try until it succeeds, fails for good, or was tried often enough; the last error is raised."""
        failures = 0
        while True:
            try:
                return await attempt()
            except self.on:
                failures += 1
                if failures > self.times:
                    raise
            await sleep(self.wait(failures, chance()))


def _is_exception_class(error: object) -> bool:
    return isinstance(error, type) and issubclass(error, Exception)
