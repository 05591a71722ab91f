"""Functions that the tests try; of a module, so that they can be carried."""

from __future__ import annotations

import signal

calls: list[object] = []
"""What `note` was called with; the tests clear it."""


def note(x: object = None, **more: object) -> object:
    """Take any arguments, and remember them."""
    calls.append((x, more) if more else x)
    return x


def fail(x: int = 0) -> None:
    """Raise, always."""
    calls.append(x)
    raise LookupError("nothing was found")


def interrupt_later() -> None:
    """Press Ctrl-C in the third call."""
    calls.append(None)
    if len(calls) == 3:
        signal.raise_signal(signal.SIGINT)


async def coroutine() -> None:
    """Nothing that can be tried."""


class Holder:
    """Something with a dotted name."""

    number = 7

    @staticmethod
    def double(x: int) -> int:
        """Return twice the argument."""
        return 2 * x
