"""The child's end of the protocol: one JSON object in, one JSON line out.

Imports as little as it can, because the memory benchmark measures the process that imports it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

__all__ = ["run_on", "serve"]

T = TypeVar("T")


def serve(measure: Callable[..., Mapping[str, Any]]) -> None:
    """Call `measure` with the arguments of the command line and print what it returns."""
    print(json.dumps(measure(**json.loads(sys.argv[1]))), flush=True)


def run_on(loop: str, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new loop: `asyncio` or `uvloop`."""
    with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
        return runner.run(main)


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop == "asyncio":
        return asyncio.new_event_loop
    if loop == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    raise ValueError(f"loop must be 'asyncio' or 'uvloop', got {loop!r}")
