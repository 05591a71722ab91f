"""Generators in isolates: the same items and errors as in threads, one isolate for each, and given back."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from hybridrt import (
    FunctionStatistics,
    HybridrtError,
    IsolateInitializerError,
    NotPortableError,
    OffloadedGenerator,
    OffloadTimeoutError,
    Runtime,
    WorkerLostError,
    offload,
    pipe,
)
from hybridrt.errors import IsolateStartError
from hybridrt.isolates import isolate_pool
from hybridrt.isolates.holder import Holder
from hybridrt.isolates.reference import refer
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.streams import offloaded as streams
from hybridrt.testing import InlineRuntime
from hybridrt.values import Isolation

from ..loop.conftest import timers
from ..loop.support import Timers, eventually
from . import far

__all__ = ["timers"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kept")]


def away(fn: Callable[..., Any], **options: Any) -> OffloadedGenerator[..., Any]:
    made: Any = offload(fn, pure=True, where="isolate", **options)
    assert isinstance(made, OffloadedGenerator)
    return made


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def lent() -> int:
    """Return how many isolates are lent."""
    return sum(len(each._lent) for each in isolate_pool._isolate_pools)


async def test_the_items_arrive_in_order(runtime: Runtime, isolation: Isolation) -> None:
    count = away(far.count_to, isolation=isolation, buffer=8)
    for number in (0, 1, 100):
        assert await listed(count(number)) == list(range(number))
    await eventually(lambda: not lent())


async def test_one_isolate_runs_it_to_its_end_and_its_error_arrives(runtime: Runtime) -> None:
    stream = away(far.pids_then_fail, isolation="process", buffer=2)(9)
    seen = [await anext(stream) for _ in range(9)]
    with pytest.raises(LookupError, match="no more of them") as caught:
        await anext(stream)
    assert len(seen) == 9
    assert len(set(seen)) == 1
    assert seen[0] != os.getpid()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "pids_then_fail" in frames
    await eventually(lambda: not lent())


@pytest.mark.parametrize("leave", ["aclose", "cancel"])
async def test_its_end_runs_the_finally_over_there(runtime: Runtime, tmp_path: Path, leave: str) -> None:
    path = tmp_path / "ended"
    stream = away(far.write_at_end, isolation="process", buffer=2)(str(path))
    assert await anext(stream) == 1
    if leave == "aclose":
        await stream.aclose()
    else:
        task = asyncio.ensure_future(listed(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert int(path.read_text()) != os.getpid()
    await eventually(lambda: not lent())


async def test_what_cannot_cross_says_so(runtime: Runtime) -> None:
    with pytest.raises(NotPortableError, match="lambda"):
        await listed(away(lambda: (yield 1))())
    with pytest.raises(NotPortableError, match=r"argument 1 of .* cannot be carried") as caught:
        await listed(away(far.count_to)(lambda: None))
    assert caught.value.started is False
    with pytest.raises(NotPortableError, match="cannot be carried back") as caught:
        await listed(away(far.number_then_lock)())
    assert caught.value.started is True
    await eventually(lambda: not lent())


async def test_one_whose_module_is_missing_there_is_not_portable(
    runtime: Runtime, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("only_here")
    exec("def numbers(): yield 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(NotPortableError, match=r"only_here:numbers could not be rebuilt .*No module named"):
        await listed(away(module.numbers, isolation=isolation)())
    assert lent() == 0


async def test_a_process_that_ends_fails_its_stream(runtime: Runtime) -> None:
    with pytest.raises(WorkerLostError, match="exit code 3"):
        await listed(away(far.end_after, isolation="process", buffer=1)(3))
    assert await listed(away(far.count_to, isolation="process")(3)) == [0, 1, 2]


async def test_context_variables_cross(isolation: Isolation) -> None:
    far.seen.set("something")
    async with Runtime(isolate_context=[far.seen]):
        assert await listed(away(far.seen_twice, isolation=isolation)()) == ["something"] * 2


async def test_a_late_item_ends_the_process(runtime: Runtime, timers: Timers) -> None:
    late = away(far.sleep_then_yield, isolation="process", timeout=5.0)(3600.0)
    task = asyncio.ensure_future(listed(late))
    await eventually(lambda: bool(runtime.statistics().running))
    timers.fire()
    with pytest.raises(OffloadTimeoutError, match="its process is ended"):
        await task
    await eventually(lambda: not lent())


async def test_several_streams_pass_one_gate(runtime: Runtime, one_at_a_time: WatchedLimiter) -> None:
    count = away(far.count_to, isolation="process", buffer=2)
    assert await asyncio.gather(*(listed(count(10)) for _ in range(2))) == [list(range(10))] * 2


async def test_a_pure_generator_moves_once_it_is_worth_it(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: Any = offload(far.some_pids, pure=True, isolation="process")
    assert await listed(pids(2)) == [os.getpid()] * 2
    monkeypatch.setattr(streams._isolated(), "is_worth_it", lambda *_: True)
    assert os.getpid() not in await listed(pids(2))
    # What cannot cross is run again in a thread, if nothing of it has been seen, and stays there.
    locks: Any = offload(far.locks, pure=True)
    assert len(await listed(locks(1))) == len(await listed(locks(1))) == 1
    assert locks._seen.stays


async def test_what_a_method_of_one_object_could_not_carry_is_known_for_all(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks: Any = offload(far.locks, pure=True)
    assert len(await listed(locks(1))) == 1
    monkeypatch.setattr(streams._isolated(), "is_worth_it", lambda *_: True)
    assert len(await listed(locks.__get__(1)())) == 1
    assert locks._seen.stays


async def test_a_generator_whose_argument_could_not_be_carried_moves_later(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(int):
        """It cannot be pickled."""

    pids: Any = offload(far.some_pids, pure=True, isolation="process")
    assert await listed(pids(2)) == [os.getpid()] * 2
    monkeypatch.setattr(streams._isolated(), "is_worth_it", lambda *_: True)
    monkeypatch.setattr(streams, "_STREAMS", 1.0)
    assert await listed(pids(Local(2))) == await listed(pids(2)) == [os.getpid()] * 2
    assert os.getpid() not in await listed(pids(2))


@pytest.mark.parametrize(
    ("error", "falls_back"),
    [
        (IsolateInitializerError("it failed"), True),
        (IsolateStartError("no memory"), True),
        (WorkerLostError("it was killed", started=False), True),
        (WorkerLostError("it was killed", started=True), False),
    ],
    ids=str,
)
async def test_a_pure_generator_runs_in_a_thread_where_no_isolate_can_be_had(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, error: HybridrtError, falls_back: bool
) -> None:
    def lease(_: Holder) -> NoReturn:
        raise error

    pids: Any = offload(far.some_pids, pure=True, isolation="process")
    assert await listed(pids(2)) == [os.getpid()] * 2
    monkeypatch.setattr(streams._isolated(), "is_worth_it", lambda *_: True)
    monkeypatch.setattr(Holder, "_lease", lease)
    if falls_back:
        assert await listed(pids(2)) == [os.getpid()] * 2
        assert not pids._seen.stays
    else:
        with pytest.raises(WorkerLostError):
            await listed(pids(2))


async def test_a_stream_stays_in_a_thread_where_as_many_hold_an_isolate_as_may(
    runtime: Runtime, one_at_a_time: WatchedLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: Any = offload(far.some_pids, pure=True, isolation="process", buffer=1)
    assert await listed(pids(1)) == [os.getpid()]
    monkeypatch.setattr(streams._isolated(), "is_worth_it", lambda *_: True)
    first = pids(5)
    assert await anext(first) != os.getpid()
    assert await listed(pids(1)) == [os.getpid()]
    await first.aclose()


async def test_an_inline_runtime_keeps_it_here() -> None:
    async with InlineRuntime():
        assert await listed(away(far.some_pids)(1)) == [os.getpid()]


async def test_it_is_a_stage_of_a_pipe(runtime: Runtime) -> None:
    found = await listed(pipe([1, 2], away(far.count_to)))
    assert found == [0, 0, 1]


async def test_the_statistics_have_it_beside_its_threads(runtime: Runtime) -> None:
    await listed(away(far.count_to, isolation="process")(3))
    rows: list[FunctionStatistics] = list(runtime.statistics().functions)
    assert any(row.name.endswith("count_to [process]") for row in rows)


async def test_a_stream_that_is_stopped_between_two_steps_ends_its_isolate(runtime: Runtime) -> None:
    """The generator is still open over there, and another caller's calls must not come to lie beside it."""
    holder = Holder(refer(far.count_to), (10,), {}, isolate_pool.processes)
    items, ended = await asyncio.to_thread(holder.step, 1, 1 << 60)
    assert (items, ended) == ([0], False)
    assert holder._held is not None
    isolate = holder._held[1]
    holder.stop()
    with pytest.raises(asyncio.CancelledError):
        holder.finish()
    await asyncio.to_thread(holder.release)
    assert not isolate.is_alive()
    assert isolate not in isolate_pool.processes.isolates()
