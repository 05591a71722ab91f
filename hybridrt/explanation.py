"""`explain`: where a function runs, why, and what it would cost elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

from hybridrt.callables import gives, is_generator_function
from hybridrt.control.placement import HOLD_NS, Evidence, Machine, Prices, price
from hybridrt.errors import NotPortableError
from hybridrt.executor.budget import shared
from hybridrt.executor.report import function_statistics
from hybridrt.isolates.reference import refer, without_thread
from hybridrt.loop.binding import current_binding, has_binding
from hybridrt.measure.libraries import Library, threaded_libraries
from hybridrt.observe.function_name import identify
from hybridrt.observe.placement import INLINE_MAX_NS
from hybridrt.offload import Offloaded
from hybridrt.options import IN_PLACE, Options, first_place
from hybridrt.placements import (
    Explanation,
    PlacementReason,
    PlacementStatistics,
    SizePlacement,
    time_text,
)
from hybridrt.pool.state import Pool, SharedBudget
from hybridrt.values import FunctionStatistics, GilClass, Kind

__all__ = ["explain"]


def explain(fn: Callable[..., Any]) -> Explanation:
    """Tell where calls of a function run, why, and what they would cost elsewhere.

    Use it to find out what `@offload` does with a function, and whether declaring it `pure` would help.
    It goes by the calls so far, on the running loop's `Runtime` or, where that has seen none or there is
    none, on the executor that has seen most of them.

    Args:
        fn: An offloaded function, or a plain one that was offloaded or submitted.

    Raises:
        TypeError: `fn` is no function, or an asynchronous one; one that is named in a text is to be imported
            first.

    Example:
        >>> def count_words(text: str) -> int:
        ...     return len(text.split())
        >>> print(explain(count_words).advice)
        No runtime or executor that is still there has seen a call of it.
    """
    if not callable(fn):
        raise TypeError(f"explain needs the function itself, got {fn!r}")
    if isinstance(fn, (FunctionType, MethodType)) and gives(fn) in ("coroutine", "asynchronous generator"):
        raise TypeError(
            f"explain needs a function that may be offloaded, got {fn!r}, which runs on the loop; "
            "ask for a computing function that it calls"
        )
    offloaded = fn if isinstance(fn, Offloaded) else None
    function = fn if offloaded is None else offloaded._fn
    key, name, _ = identify(function)
    is_function = isinstance(function, FunctionType)  # others may raise when they are asked
    yields = is_function and is_generator_function(function) if offloaded is None else offloaded._yields
    rows = [
        (row, pool, _steps_away(pool, name) if yields else 0)
        for pool in shared.all_pools()
        if (row := function_statistics(pool, key)) is not None
    ]
    here = _own_pool()
    own = [found for found in rows if found[1] is here and _calls(found[0]) + found[2]]
    unknown = (None, None, 0)
    row, pool, away = max(own or rows, key=lambda found: _calls(found[0]) + found[2], default=unknown)
    placement = None if row is None else row.placement
    options = Options(pure=away > 0 or (placement is not None and not _is_forced_inline(placement)))
    if offloaded is not None:
        options = offloaded._options
        placement = None if yields or offloaded._router is None else offloaded._router.statistics()
    interpreter = shared if pool is None else pool.budget
    obstacle = _obstacle(function)
    explanation = _explain(name, options, row, placement, interpreter, obstacle)
    if yields:
        explanation = _of_generator(explanation, row, away, obstacle, interpreter.cores)
    return replace(explanation, delay_share=None if pool is None else _delay_share(pool, name))


def _is_forced_inline(placement: PlacementStatistics) -> bool:
    """Return True if its calls run on the loop because an option says so, which needs no `pure`."""
    ways = {(size.where, size.reason) for size in placement.sizes}
    return ways == {("inline", PlacementReason.FORCED)}


def _steps_away(pool: Pool, name: str) -> int:
    """Return how many steps of a generator function have run in isolates."""
    return sum(profile.calls for profile in pool.profiles.all() if profile.name.startswith(f"{name} ["))


def _own_pool() -> Pool | None:
    """Return the pool of the running loop's runtime, if there is one."""
    loop = asyncio._get_running_loop()
    return current_binding().pool if loop is not None and has_binding(loop) else None


def _delay_share(pool: Pool, name: str) -> float | None:
    """Return the share of the loop's delay that a function causes, what is carried to isolates included."""
    shares = pool.delay_shares.shares()
    own = [share for called, share in shares.items() if called == name or called.startswith(f"{name} [")]
    return min(1.0, sum(own)) if own else None


def _obstacle(function: Callable[..., Any]) -> str | None:
    """Say why another interpreter could not find a function; None if it could, or would get it pickled."""
    if not isinstance(function, FunctionType):
        return None
    try:
        refer(function)
    except NotPortableError as error:
        return without_thread(error)
    return None


def _calls(row: FunctionStatistics | None, placement: PlacementStatistics | None = None) -> int:
    if placement is None and row is not None:
        placement = row.placement
    elsewhere = 0 if placement is None else placement.inline_calls + placement.isolate_calls
    return elsewhere + (0 if row is None else row.calls)


def _explain(
    name: str,
    options: Options,
    row: FunctionStatistics | None,
    placement: PlacementStatistics | None,
    interpreter: SharedBudget,
    obstacle: str | None,
) -> Explanation:
    size = _size(options, row, placement, interpreter)
    if obstacle is not None and placement is None:
        size = replace(size, isolate=None)
    return Explanation(
        name=name,
        pure=options.pure,
        where=size.where,
        reason=size.reason,
        gil=GilClass.UNKNOWN if row is None else row.gil,
        gil_share=None if row is None else _gil_share(row),
        calls=_calls(row, placement),
        wall=_wall(row, placement),
        cpu=None if row is None else row.work_cpu,
        wait=None if row is None else row.work_wait,
        native=None if row is None else _native(row),
        inline=size.inline,
        thread=size.thread,
        isolate=size.isolate,
        isolate_tried=size.tried,
        overruns=0 if placement is None else placement.overruns,
        advice=_advise(row, placement, size, options.pure, obstacle, interpreter.cores),
        sizes=() if placement is None else placement.sizes,
    )


def _of_generator(
    told: Explanation, row: FunctionStatistics | None, away: int, obstacle: str | None, cores: int
) -> Explanation:
    """Return the same for a generator function: its calls are steps, `away` of them in isolates."""
    where, reason, advice = told.where, told.reason, told.advice
    if reason is PlacementReason.LEARNING and away:
        where = "isolate"
        reason = PlacementReason.HOLDS_GIL if told.gil is GilClass.HOLDS else PlacementReason.SHARES_GIL
    if where != "thread":
        advice = _WORDS[reason]
    elif row is not None and row.calls and IN_PLACE is None:
        if reason is PlacementReason.LEARNING:
            advice = obstacle or _MOVES
        else:
            advice = _advise_thread(row, told.pure, obstacle, cores, yields=True)
    return replace(told, where=where, reason=reason, advice=advice, calls=told.calls + away, inline=None)


def _wall(row: FunctionStatistics | None, placement: PlacementStatistics | None) -> float | None:
    if row is not None and row.calls:
        return row.wall / row.calls
    if placement is not None and placement.inline_calls:
        return placement.inline_wall / placement.inline_calls
    return None


def _gil_share(row: FunctionStatistics) -> float | None:
    seen = row.evidence
    looks = seen.free + seen.taken
    return seen.taken / looks if looks >= 4 else None


def _size(
    options: Options,
    row: FunctionStatistics | None,
    placement: PlacementStatistics | None,
    interpreter: SharedBudget,
) -> SizePlacement:
    """Return what is known of the most used size; estimates for a function that is not placed."""
    if placement is not None and placement.sizes:
        return placement.sizes[0]
    where, reason = first_place(options)
    prices = Prices(inline=None, thread=None, isolate=None)
    if row is not None and row.calls:
        prices = price(_estimate(row), Machine(cores=interpreter.cores, gil=interpreter.gil))
    return SizePlacement(
        size_max=None,
        number_max=None,
        where=where,
        reason=reason,
        calls=0 if row is None else row.calls,
        inline=None if prices.inline is None else prices.inline / 1e9,
        thread=None if prices.thread is None else prices.thread / 1e9,
        isolate=None if prices.isolate is None else prices.isolate / 1e9,
        tried=False,
    )


def _estimate(row: FunctionStatistics) -> Evidence:
    """Return the evidence that the statistics of a function hold; sizes and carrying are not in them."""
    cpu_ns, waits = (row.work_cpu or 0.0) * 1e9, row.kind is Kind.WAITING
    wait_ns = (row.work_wait or 0.0) * 1e9 if waits else 0.0
    return Evidence(
        calls=row.calls,
        measured=row.calls,
        cpu_ns=cpu_ns,
        wait_ns=wait_ns,
        blocked_ns=wait_ns,
        longest_ns=cpu_ns + wait_ns,
        small=True,
        portable=True,
        classed=row.gil is not GilClass.UNKNOWN,
        holds=row.gil is GilClass.HOLDS,
        parallel=row.kind is Kind.FREE,
        waits=waits,
    )


def _advise(
    row: FunctionStatistics | None,
    placement: PlacementStatistics | None,
    size: SizePlacement,
    pure: bool,
    obstacle: str | None,
    cores: int,
) -> str:
    if _calls(row, placement) == 0:
        return "No runtime or executor that is still there has seen a call of it."
    if placement is not None:
        return _reason_in_words(size, placement)
    assert row is not None
    if IN_PLACE is not None:
        return _WORDS[PlacementReason.FORCED]
    return _advise_thread(row, pure, obstacle, cores)


def _advise_thread(
    row: FunctionStatistics, pure: bool, obstacle: str | None, cores: int, *, yields: bool = False
) -> str:
    """Say what a thread does for a function that runs in threads alone, and what to do about it."""
    cpu = row.work_cpu or 0.0
    remedy = "leave where='thread' out" if pure else "declare it pure=True"
    if row.gil is GilClass.HOLDS:
        if obstacle is not None:
            return f"It {_holding(row, cpu)}, which no thread helps against. {obstacle}"
        return f"It {_holding(row, cpu)}; {remedy} to move it out; a thread does not help."
    if row.kind is Kind.WAITING:
        return _WORDS[PlacementReason.WAITS]
    if row.native:
        return _advise_native(row, threaded_libraries(), cores)
    if row.kind is Kind.FREE:
        return _WORDS[PlacementReason.RELEASES_GIL]
    if yields and cpu < HOLD_NS / 1e9:
        return "A thread is right for steps as short as these."
    if cpu <= INLINE_MAX_NS / 1e9:
        took = time_text(cpu)
        return f"It takes {took}, hardly more than handing it to a thread; {remedy} to run it on the loop."
    if cpu >= HOLD_NS / 1e9:
        computes = f"It computes for {time_text(cpu)} with the GIL, one call at a time"
        return f"{computes}; {remedy} to use more cores." if obstacle is None else f"{computes}. {obstacle}"
    return "A thread is right: it is too long for the loop, and too short to be carried elsewhere."


def _native(row: FunctionStatistics) -> float | None:
    """Return the CPU seconds that native threads compute for a call."""
    return None if row.native is None or row.work_cpu is None else row.native * row.work_cpu


def _advise_native(row: FunctionStatistics, libraries: tuple[Library, ...], cores: int) -> str:
    """Say which native threads compute for a function, and what one thread for each call would gain.

    One thread does what several did, so that as many calls as cores compute at once, each for longer.
    """
    named = ", ".join(f"{library.name} with {library.threads} threads" for library in libraries)
    variables = " and ".join(sorted({f"{library.variable}=1" for library in libraries}))
    alone = time_text((row.work_cpu or 0.0) + (_native(row) or 0.0))
    gain = cores / (1.0 + (row.native or 0.0))
    more = f", up to {gain:.1f} times as many a second as one after the other" if gain >= 1.1 else ""
    return (
        f"Threads of native libraries ({named or 'BLAS or OpenMP, as a rule'}) compute for it, too, so that "
        f"calls at once get into each other's way. With one thread each ({variables or 'OMP_NUM_THREADS=1'}) "
        f"a call computes for up to {alone}, and {cores} at once have a core each{more}."
    )


def _holding(row: FunctionStatistics, cpu: float) -> str:
    share = _gil_share(row)
    return f"holds the GIL {'most' if share is None else f'{100 * share:.0f} %'} of its {time_text(cpu)}"


_WORDS = {
    PlacementReason.FORCED: "`where`, or HYBRIDRT_WHERE in the environment, says so.",
    PlacementReason.LEARNING: "Too few of its calls have been measured yet.",
    PlacementReason.SHORT: "It is over before a thread would have it.",
    PlacementReason.OVERRUN: "It took longer on the loop than it may; the next calls go to a thread.",
    PlacementReason.RELEASES_GIL: "It leaves the GIL to others while it computes, so threads use all cores.",
    PlacementReason.WAITS: "It mostly waits, which threads are for.",
    PlacementReason.HOLDS_GIL: "It holds the GIL until it returns, which stops the loop in any thread.",
    PlacementReason.SHARES_GIL: "It computes with the GIL, so threads run one call at a time.",
    PlacementReason.CARRYING: "Carrying its arguments and result elsewhere gains little or nothing.",
    PlacementReason.TRIAL: "It is tried there to learn what carrying costs.",
}
_MOVES = (
    "New streams run in isolates once its steps are known to compute with the GIL, for 50 ms in sum and 50 us"
    " an item, if what crosses can be pickled."
)


def _reason_in_words(size: SizePlacement, placement: PlacementStatistics) -> str:
    if size.reason is PlacementReason.NOT_PORTABLE:
        return f"It cannot be carried elsewhere: {placement.not_portable or 'an earlier run has found so'}"
    return _WORDS[size.reason]
