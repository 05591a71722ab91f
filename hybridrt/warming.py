"""Warm-up: a function's first calls, made before anybody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hybridrt.loop.first_calls import LOOK
from hybridrt.loop.placing import Placing, Spot
from hybridrt.loop.port import Port
from hybridrt.observe.placement import measure
from hybridrt.offload import Offloaded
from hybridrt.options import Options
from hybridrt.placements import PlacementReason

__all__ = ["warm"]

_CALLS_MAX = 128
"""Calls after which a function is left as it is; what it does with the GIL is known, or given up, before."""
_UNSETTLED = (PlacementReason.LEARNING, PlacementReason.TRIAL)


async def warm(port: Port, fn: Offloaded[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Call a function until it is known where its calls with such arguments run, and there.

    Args:
        port: Through which the calls go out.
        fn: The function.
        args: Positional arguments of each call.
        kwargs: Keyword arguments.

    Raises:
        BaseException: What a call raised.
    """
    calls, placing = 1, fn._placing
    await fn.run_on(port, args, dict(kwargs))
    if placing is None or placing.forced in ("inline", "thread"):
        return
    spot = placing.spot(measure(fn._head + args, kwargs) if placing.forced is None else None)
    while calls < _CALLS_MAX and spot.standing.reason in _UNSETTLED:
        at_once = await _ready(port, placing, spot, fn._options)
        await _call_at_once(port, fn, args, kwargs, at_once)
        calls += at_once
    if spot.standing.where == "isolate":
        await _call_at_once(port, fn, args, kwargs, await _ready(port, placing, spot, fn._options))


async def _ready(port: Port, placing: Placing, spot: Spot, options: Options) -> int:
    """Have the isolates of a function ready if it is to run there; return how many calls to make at once."""
    if spot.standing.where != "isolate":
        return 1
    from hybridrt.loop import isolated  # it loads what starts processes, which few programs need

    if not placing.warmed:
        isolated.warm_up(port, placing, options.isolation)
    while placing.warming:  # noqa: ASYNC110  # what is awaited happens in other threads
        await asyncio.sleep(LOOK)
    at_once = isolated.calls_at_once(port, placing.fn, options.isolation)
    return at_once if options.limit is None else min(at_once, options.limit)


async def _call_at_once(
    port: Port, fn: Offloaded[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], calls: int
) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(calls):
            group.create_task(fn.run_on(port, args, dict(kwargs)))
