"""What the tests of isolates share: calls made by hand, and a gate for functions in other processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybridrt.loop.courier import replies_of
from hybridrt.loop.isolated import Line, isolated_call
from hybridrt.loop.port import current_port
from hybridrt.values import Isolation

from . import far

__all__ = ["FarGate", "carried_by_loop", "lighten", "push", "run_isolated"]


def push(fn: Callable[..., Any], *args: Any, isolation: Isolation = "process", **options: Any) -> Any:
    """Make and submit an isolated call; return it, to be awaited."""
    call = isolated_call(current_port(), fn, args, options.pop("kwargs", {}), isolation, **options)
    call.go()
    return call


async def run_isolated(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Have a call done elsewhere."""
    return await push(fn, *args, **options)


class FarGate:
    """A call that waits in its isolate until the test lets it go.

    Args:
        folder: Where its two named pipes go.
    """

    def __init__(self, folder: Path) -> None:
        self._entered, self._release = str(folder / "entered"), str(folder / "release")
        os.mkfifo(self._entered)
        os.mkfifo(self._release)

    def push(self, value: Any = None, **options: Any) -> Any:
        """Submit a call that waits in here, and then returns `value`."""
        return push(far.hold, self._entered, self._release, value, **options)

    async def entered(self) -> int:
        """Wait until a call is inside; return its process."""
        return int(await asyncio.to_thread(Path(self._entered).read_text, "ascii"))

    async def release(self) -> None:
        """Let one call go."""
        await asyncio.to_thread(Path(self._release).write_text, "go", "ascii")


def carried_by_loop(call: Any) -> bool:
    """Tell whether a call is under way without a thread."""
    return any(errand.call is call for errand in call.pool.crew.errands)


async def lighten(fn: Callable[..., Any], isolation: Isolation = "process") -> Line:
    """Have an isolate that is warm, and let the running loop take calls of `fn` for brief ones."""
    await run_isolated(far.add, 1, isolation=isolation)
    line = isolated_call(current_port(), fn, (), {}, isolation).line  # type: ignore[attr-defined]
    assert isinstance(line, Line)
    line._brief, line.is_measured = 1 << 60, True
    line.replies = replies_of(asyncio.get_running_loop())
    return line
