"""Loops that submit to an executor without a runtime are measured, and nothing of that is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, offload
from hybridrt.executor.budget import shared
from hybridrt.governor.governor import Governor
from hybridrt.loop.binding import private_executor
from hybridrt.loop.submitters import SubmitterWatch
from hybridrt.pool.lock import SelfWaitError

from .support import eventually

pytestmark = pytest.mark.usefixtures("governor_at_rest")
LOOPS = pytest.mark.parametrize(
    "make", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@pytest.fixture
def executor() -> Iterator[AdaptiveThreadPoolExecutor]:
    with AdaptiveThreadPoolExecutor() as executor:
        yield executor


@pytest.fixture
def governor_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the heart stop whenever the pool is idle: the governor of all tests may still have to do."""
    monkeypatch.setattr(Governor, "asleep", True)


def watch_of(executor: AdaptiveThreadPoolExecutor, loop: asyncio.AbstractEventLoop) -> SubmitterWatch:
    watch = executor._pool.loops[loop]
    assert isinstance(watch, SubmitterWatch)
    return watch


def is_watched(executor: AdaptiveThreadPoolExecutor) -> bool:
    return asyncio.get_running_loop() in executor._pool.loops


async def submit(executor: AdaptiveThreadPoolExecutor) -> SubmitterWatch:
    """Submit a call from the running loop; return what measures it."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(executor, int)
    return watch_of(executor, loop)


async def stopped(watch: SubmitterWatch) -> None:
    await eventually(lambda: watch._heartbeat._timer is None)


@LOOPS
@pytest.mark.parametrize("debug", [False, True])
def test_a_loop_that_submits_is_measured_and_no_timer_stays_between_calls(
    executor: AdaptiveThreadPoolExecutor, make: Callable[[], asyncio.AbstractEventLoop], debug: bool
) -> None:
    async def main() -> None:
        watch = await submit(executor)
        assert await submit(executor) is watch
        await eventually(lambda: executor.statistics().loop_delay is not None)
        await stopped(watch)

    with asyncio.Runner(loop_factory=make, debug=debug) as runner:
        runner.run(main())


@LOOPS
def test_a_loop_may_be_closed_while_it_is_measured(
    executor: AdaptiveThreadPoolExecutor, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    loop = make()
    watch = loop.run_until_complete(submit(executor))
    loop.close()
    assert watch.is_over()
    watch.quicken()
    assert not executor._pool.loops


async def test_calls_after_a_rest_are_measured_again(executor: AdaptiveThreadPoolExecutor) -> None:
    watch = await submit(executor)
    await stopped(watch)
    gate = threading.Event()
    call = asyncio.get_running_loop().run_in_executor(executor, gate.wait)
    try:
        await asyncio.to_thread(shared.shield.wake)  # as the governor does
        await eventually(lambda: watch._heartbeat._timer is not None)
    finally:
        gate.set()
    await call


async def test_a_call_that_another_thread_submits_has_the_loop_measured_too(
    executor: AdaptiveThreadPoolExecutor,
) -> None:
    watch = await submit(executor)
    await stopped(watch)
    gate = threading.Event()
    submitter = threading.Thread(target=executor.submit, args=(gate.wait,))
    submitter.start()
    try:
        await eventually(executor._pool.is_active)
        await asyncio.to_thread(shared.shield.wake)  # as the governor does
        await eventually(lambda: watch._heartbeat._timer is not None)
    finally:
        gate.set()
        submitter.join()


def test_the_time_between_two_runs_of_a_loop_is_no_delay(executor: AdaptiveThreadPoolExecutor) -> None:
    async def record(watch: SubmitterWatch, late: float) -> None:
        watch._record(time.perf_counter(), late, 0.01)

    loop = asyncio.new_event_loop()
    try:
        watch = loop.run_until_complete(submit(executor))
        loop.run_until_complete(record(watch, 1e6))
        delay = watch.summary()
        assert delay is None or delay.max < 1e6
    finally:
        loop.close()


async def test_a_beat_that_is_late_in_the_same_run_is_a_delay(executor: AdaptiveThreadPoolExecutor) -> None:
    watch = await submit(executor)
    watch._record(time.perf_counter(), 1e6, 0.01)
    delay = executor.statistics().loop_delay
    assert delay is not None
    assert delay.max == 1e6


async def test_a_delay_of_before_the_last_minute_is_told_no_more(
    executor: AdaptiveThreadPoolExecutor,
) -> None:
    watch = await submit(executor)
    await stopped(watch)
    watch._record(time.perf_counter() - 3600.0, 1e6, 0.01)
    delay = executor.statistics().loop_delay
    assert delay is None or delay.max < 1e6


def test_two_loops_that_share_an_executor_are_both_measured(executor: AdaptiveThreadPoolExecutor) -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        watches = {loop.run_until_complete(submit(executor)) for loop in (first, second)}
        assert len(watches) == 2
        first.close()
        assert [watch.is_over() for watch in watches].count(True) == 1
        assert list(executor._pool.loops) == [second]
    finally:
        first.close()
        second.close()


@pytest.mark.filterwarnings("ignore:unclosed")
def test_loops_that_are_dropped_without_being_closed_are_not_all_kept(
    executor: AdaptiveThreadPoolExecutor,
) -> None:
    async def call() -> asyncio.AbstractEventLoop:
        await submit(executor)
        await offload(int)()
        return asyncio.get_running_loop()

    loops = [weakref.ref(asyncio.new_event_loop().run_until_complete(call())) for _ in range(100)]
    gc.collect()
    left = [loop for each in loops if (loop := each()) is not None]
    for loop in left:
        loop.close()
    assert 0 < len(left) < 50


@LOOPS
def test_a_loop_that_runs_again_after_a_long_rest_is_measured_once(
    make: Callable[[], asyncio.AbstractEventLoop], executor: AdaptiveThreadPoolExecutor
) -> None:
    loops = [make() for _ in range(40)]
    before = loops[0].run_until_complete(submit(executor))
    for loop in loops[1:]:
        loop.run_until_complete(submit(executor))
    assert loops[0] not in executor._pool.loops
    assert before.is_over()
    assert not loops[0].run_until_complete(submit(executor)).is_over()
    for loop in loops:
        loop.close()


async def test_shut_down_the_executor_measures_no_loop_any_more() -> None:
    executor = AdaptiveThreadPoolExecutor()
    watch = await submit(executor)
    executor.shutdown()
    await stopped(watch)
    assert watch.is_over()
    assert not executor._pool.loops


async def test_an_executor_that_is_dropped_takes_its_eye_along() -> None:
    executor = AdaptiveThreadPoolExecutor()
    pool: weakref.ref[Any] = weakref.ref(executor._pool)
    watch = weakref.ref(await submit(executor))
    del executor

    def is_gone() -> bool:
        gc.collect()
        return pool() is None and watch() is None

    await eventually(is_gone)


async def test_a_runtime_that_opens_on_the_loop_takes_over(executor: AdaptiveThreadPoolExecutor) -> None:
    before = await submit(executor)
    async with Runtime(loop_delay_target=0.5) as runtime:
        await asyncio.get_running_loop().run_in_executor(executor, int)
        await runtime.offload(int)
        assert before.is_over()
        assert not is_watched(executor)
        assert not is_watched(runtime.executor)
    assert await submit(executor) is not before


async def test_offloaded_calls_without_a_runtime_have_their_loop_measured_too() -> None:
    assert await offload(int)() == 0
    assert is_watched(private_executor())


async def test_where_nothing_is_measured_no_loop_is() -> None:
    with AdaptiveThreadPoolExecutor(measure=False) as executor:
        await asyncio.get_running_loop().run_in_executor(executor, int)
        assert not is_watched(executor)


def test_calls_from_no_loop_have_none_measured(executor: AdaptiveThreadPoolExecutor) -> None:
    executor.submit(int).result()
    assert not executor._pool.loops
    assert executor.statistics().loop_delay is None


async def test_where_a_watch_cannot_start_none_is_left_behind(
    executor: AdaptiveThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(watch: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(shared.shield, "join", refuse)
        with pytest.raises(MemoryError):
            await submit(executor)
    assert not is_watched(executor)
    await submit(executor)


async def test_a_submit_that_would_wait_for_itself_leaves_it_to_the_next(
    executor: AdaptiveThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one by a finalizer that interrupts a step of the pool."""

    def refuse(watch: object) -> None:
        raise SelfWaitError

    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patch:
        patch.setattr(shared.shield, "join", refuse)
        await loop.run_in_executor(executor, int)
    assert not is_watched(executor)
    await submit(executor)
