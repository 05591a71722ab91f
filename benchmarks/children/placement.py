"""Child: one function in every placement in turn, with eight callers at once, and what `auto` chose."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.children.functions import FUNCTIONS
from benchmarks.children.protocol import run_on, serve

if TYPE_CHECKING:
    from hybridrt import Statistics

__all__ = ["CALLERS", "PLACES", "measure"]

CALLERS = 8
PLACES = ("auto", "inline", "thread", "isolate")
_TURNS = 64
"""Calls between two turns of the loop, for calls that never wait for anything."""


def measure(*, function: str, seconds: float, learning: float, first: int) -> Mapping[str, Any]:
    """Return the time per call of each placement, in microseconds, and the place that `auto` has come to.

    Args:
        function: A name in `FUNCTIONS`.
        seconds: How long each placement is measured.
        learning: How long it runs before; `auto` learns meanwhile, and workers start.
        first: The placement to begin with, by number: who comes first pays for cold caches.
    """
    return run_on("asyncio", _measure(function, seconds, learning, first))


async def _measure(name: str, seconds: float, learning: float, first: int) -> Mapping[str, Any]:
    from hybridrt import Runtime, offload

    _, function, argument = FUNCTIONS[name]
    value, costs = argument(), {}
    for place in (*PLACES[first:], *PLACES[:first]):
        call = offload(function, pure=True, where=place)  # type: ignore[call-overload]  # one of the four
        async with Runtime() as runtime:
            await _cost(call, value, learning if place == "auto" else min(learning, seconds))
            before = _placed(runtime.statistics())
            calls, costs[place] = await _cost(call, value, seconds)
            if place == "auto":
                chosen = _placed(runtime.statistics()) - before
                chosen["thread"] = calls - chosen.total()
    return {"us": costs, "chosen": dict(chosen)}


def _placed(told: Statistics) -> Counter[str]:
    """Return how many calls have run inline and in isolates; the others ran in threads."""
    places = [function.placement for function in told.functions if function.placement is not None]
    return Counter(
        inline=sum(place.inline_calls for place in places),
        isolate=sum(place.isolate_calls for place in places),
    )


async def _cost(call: Callable[[Any], Awaitable[Any]], value: Any, seconds: float) -> tuple[int, float]:
    """Return the calls of eight callers and the microseconds per call, until the last of each has ended."""
    begun, calls = time.perf_counter(), 0
    end = begun + seconds

    async def stand() -> None:
        nonlocal calls
        while time.perf_counter() < end:
            await call(value)
            calls += 1
            if not calls % _TURNS:
                await asyncio.sleep(0)

    await asyncio.gather(*(stand() for _ in range(CALLERS)))
    return calls, (time.perf_counter() - begun) * 1e6 / calls


if __name__ == "__main__":
    serve(measure)
