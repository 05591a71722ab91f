"""Warm-up: a function's first calls, made before a caller waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.first_calls import LOOK
from hybridrt.loop.router import Router
from hybridrt.loop.size_class import SizeClass
from hybridrt.observe.placement import measure
from hybridrt.offload import Offloaded
from hybridrt.options import Options
from hybridrt.placements import PlacementReason

__all__ = ["warm"]

_CALLS_MAX = 128
"""Calls after which a function is left as it is; what it does with the GIL is known, or given up, before."""
_UNSETTLED = (PlacementReason.LEARNING, PlacementReason.TRIAL)


async def warm(
    loop_binding: LoopBinding, fn: Offloaded[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Call a function until it is known where its calls with such arguments run, and there.

    Args:
        loop_binding: Through which the calls go out.
        fn: The function.
        args: Positional arguments of each call.
        kwargs: Keyword arguments.

    Raises:
        BaseException: What a call raised.
    """
    router = fn._router
    if router is None or router.forced in ("inline", "thread"):
        await fn.run_on(loop_binding, args, dict(kwargs))
        return
    batched = fn._options.batch is not None
    placed = (*fn._head, [*args]) if batched else fn._head + args
    size_class = router.size_class(measure(placed, kwargs) if router.forced is None else None)
    router.warmed = False  # isolates may have left since
    await _ready(loop_binding, router, size_class, fn._options)  # what that takes counts for no timeout
    await fn.run_on(loop_binding, args, dict(kwargs))
    calls = 1
    while calls < _CALLS_MAX and size_class.choice.reason in _UNSETTLED:
        at_once = await _ready(loop_binding, router, size_class, fn._options)
        await _call_at_once(loop_binding, fn, args, kwargs, at_once)
        calls += at_once
    if size_class.choice.where == "isolate":
        await _call_at_once(
            loop_binding, fn, args, kwargs, await _ready(loop_binding, router, size_class, fn._options)
        )


async def _ready(loop_binding: LoopBinding, router: Router, size_class: SizeClass, options: Options) -> int:
    """Have the isolates of a function ready if it is to run there; return how many calls to make at once."""
    if size_class.choice.where != "isolate":
        return 1
    from hybridrt.loop import isolated_call  # it loads what starts processes, which few programs need

    if not router.warmed:
        isolated_call.warm_up(loop_binding, router, options.isolation)
    while router.warming:  # noqa: ASYNC110  # what is awaited happens in other threads
        await asyncio.sleep(LOOK)
    if options.batch is not None:
        return 1  # several would be one batch, of another size
    at_once = isolated_call.calls_at_once(loop_binding, router.fn, options.isolation)
    return at_once if options.limit is None else min(at_once, options.limit)


async def _call_at_once(
    loop_binding: LoopBinding,
    fn: Offloaded[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    calls: int,
) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(calls):
            group.create_task(fn.run_on(loop_binding, args, dict(kwargs)))
