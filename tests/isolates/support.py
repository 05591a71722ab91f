"""What the tests of isolates share: calls made by hand, and a gate for functions in other processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hybridrt import Runtime
from hybridrt.loop.binding import current_binding
from hybridrt.loop.isolated_call import isolated_call
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE

from . import far

__all__ = ["FarGate", "cancel_kills", "closes_after", "push", "run_isolated"]


def push(fn: Callable[..., Any], *args: Any, isolation: Isolation = "process", **options: Any) -> Any:
    """Make and submit an isolated call; return it, to be awaited."""
    call = isolated_call(current_binding(), fn, args, options.pop("kwargs", {}), isolation, **options)
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

    def push(self, value: Any = None, fn: Callable[..., Any] = far.hold, **options: Any) -> Any:
        """Submit a call that waits in here, and then returns `value`."""
        return push(fn, self._entered, self._release, value, **options)

    async def entered(self) -> int:
        """Wait until a call is inside; return its process."""
        return int(await asyncio.to_thread(Path(self._entered).read_text, "ascii"))

    async def release(self) -> None:
        """Let one call go."""
        await asyncio.to_thread(Path(self._release).write_text, "go", "ascii")


async def closes_after(runtime: Runtime, held: Any, far_gate: FarGate) -> Any:
    """Close a runtime, which waits for a call at the gate, and let that go; return what it returns."""
    closing = asyncio.ensure_future(runtime.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    releasing = threading.Thread(target=asyncio.run, args=(far_gate.release(),))
    releasing.start()
    value = await held
    await closing
    releasing.join()
    return value


async def cancel_kills(held: Any, far_gate: FarGate) -> None:
    """Cancel a call at the gate that may be abandoned, and see its process end."""
    held.abandon_on_cancel = True
    victim = psutil.Process(await far_gate.entered())
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    await asyncio.to_thread(victim.wait, DEADLINE)
