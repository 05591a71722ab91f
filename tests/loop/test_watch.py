"""A runtime's eye on its loop, and what the shield hears from it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, ShieldReason, install
from hybridrt.control.interval import LOWEST
from hybridrt.executor.budget import shared
from hybridrt.loop.watch import LoopWatch
from hybridrt.pool import loop_first
from hybridrt.pool.loop_first import REST_NS, LoopFirst

from .support import DEADLINE, Gate, eventually, hold


class Beats:
    """Hears beats."""

    def __init__(self) -> None:
        self.late: list[float] = []

    def beat(self, now: float, late: float) -> None:
        self.late.append(late)


def watching(runtime: Runtime, beats: Beats) -> LoopWatch:
    """Return a second eye on the runtime's loop."""
    pool = runtime.executor._pool
    return LoopWatch(asyncio.get_running_loop(), pool, target=0.001, shield=True, listener=beats)


async def test_a_loop_is_measured_closely_from_the_moment_another_thread_asks_for_it() -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats()
        watch = watching(runtime, beats)
        watch._heartbeat._idle_period = 3600.0
        watch.start()
        task = await hold(runtime, gate)
        await asyncio.to_thread(watch.quicken)
        await eventually(lambda: watch._heartbeat._current == 0.01)
        await eventually(lambda: len(beats.late) >= 2)
        watch.stop()
        gate.release()
        await task


async def test_what_a_listener_hears_is_the_delay() -> None:
    async with Runtime() as runtime:
        beats = Beats()
        watch = watching(runtime, beats)
        watch.start()
        await eventually(lambda: bool(beats.late))
        watch._record(time.perf_counter(), 5.0, 0.01)
        assert (beats.late[-1], watch.delay(time.perf_counter())) == (5.0, 5.0)
        watch.stop()


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_time_between_two_runs_of_a_loop_is_no_delay(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def begin() -> Runtime:
        runtime = install()
        assert runtime._watch is not None
        runtime._watch._heartbeat.stop()
        return runtime

    async def end(runtime: Runtime) -> None:
        watch = runtime._watch
        assert watch is not None
        watch._record(time.perf_counter(), 1e6, 0.01)
        delay = watch.summary()
        assert delay is None or delay.max < 1e6
        watch._record(time.perf_counter(), 1e6, 0.01)
        assert watch.delay(time.perf_counter()) == 1e6
        await runtime.aclose()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(end(runner.run(begin())))


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_in_the_first_turn_of_a_run_the_beat_that_was_due_before_is_no_stall(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def begin() -> Runtime:
        return install()

    async def end(runtime: Runtime) -> None:
        assert runtime._watch is not None
        delay = runtime._watch.summary()
        assert delay is None or delay.max < 1e3
        await runtime.aclose()

    with asyncio.Runner(loop_factory=make) as runner:
        runtime = runner.run(begin())
        assert runtime._watch is not None
        runtime._watch._heartbeat._due -= 1e6
        runner.run(end(runtime))


async def test_a_call_that_computes_after_a_rest_quickens_the_heart() -> None:
    async with Runtime() as runtime:
        assert runtime._watch is not None
        heartbeat = runtime._watch._heartbeat
        heartbeat.stop()
        heartbeat._idle_period = 3600.0
        heartbeat.start()
        stop = threading.Event()

        def spins() -> None:
            while not stop.is_set():
                pass

        try:
            task = asyncio.ensure_future(runtime.offload(spins))
            await eventually(lambda: heartbeat._current == 0.01)
        finally:
            stop.set()
        await task


async def test_a_call_that_computes_in_another_pool_keeps_the_heart_fast() -> None:
    started, stop = threading.Event(), threading.Event()

    def spins() -> None:
        started.set()
        while not stop.is_set():
            pass

    async with Runtime() as runtime:
        assert runtime._watch is not None
        assert not runtime._watch._is_busy()
        with AdaptiveThreadPoolExecutor() as executor:
            running = executor.submit(spins)
            try:
                await eventually(started.is_set)
                assert runtime._watch._is_busy()
            finally:
                stop.set()
            running.result()


def test_a_closed_loop_is_over_and_asks_for_nothing() -> None:
    async def main() -> LoopWatch:
        async with Runtime() as runtime:
            return watching(runtime, Beats())

    watch = asyncio.run(main())
    assert watch.is_over()
    watch.quicken()


# ---------------------------------------------------------------------- the shield of a runtime


async def test_the_runtime_hands_its_target_to_the_shield() -> None:
    async with Runtime(loop_delay_target=0.01) as runtime:
        interval = await runtime.offload(sys.getswitchinterval)
        assert interval == pytest.approx(LOWEST)
        shield = runtime.statistics().shield
        assert shield is not None
        assert shield.target == 0.01
    assert shared.shield.statistics_locked().target != 0.01  # type: ignore[union-attr]


async def test_a_runtime_without_a_shield_leaves_the_interval_alone() -> None:
    before = sys.getswitchinterval()
    async with Runtime(shield=False) as runtime:
        assert await runtime.offload(sys.getswitchinterval) == before
        shield = runtime.statistics().shield
        assert shield is not None
        assert shield.reason is ShieldReason.VETO


async def test_after_the_close_the_interval_is_the_users_own() -> None:
    before = sys.getswitchinterval()
    async with Runtime() as runtime:
        assert await runtime.offload(sys.getswitchinterval) < before
    assert sys.getswitchinterval() == before


async def test_another_thread_has_a_callback_run_in_the_next_iteration() -> None:
    async with Runtime() as runtime:
        watch, ran = watching(runtime, Beats()), asyncio.Event()
        assert await asyncio.to_thread(watch.call_soon, ran.set)
        await asyncio.wait_for(ran.wait(), DEADLINE)


async def test_a_thread_does_not_wait_for_the_loop_that_runs_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Runtime() as runtime:
        watch, first = watching(runtime, Beats()), LoopFirst()
        monkeypatch.setattr(watch, "call_soon", pytest.fail)
        first.join_locked(watch)
        first.give_way(int(DEADLINE * 1e9))
        assert watch.runs_here()
        assert not await asyncio.to_thread(watch.runs_here)


def test_a_loop_that_does_not_run_or_is_closed_takes_no_callback() -> None:
    loop = asyncio.new_event_loop()
    with AdaptiveThreadPoolExecutor() as executor:
        watch = LoopWatch(loop, executor._pool, target=0.001, shield=True)
        assert not watch.call_soon(pytest.fail)
        loop.close()
        assert not watch.call_soon(pytest.fail)
        watch.quicken()


@pytest.mark.race
async def test_a_call_waits_for_as_long_as_the_loop_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_first, "MOST_NS", int(DEADLINE * 1e9))
    async with Runtime() as runtime:
        watch, first, asked = watching(runtime, Beats()), LoopFirst(), threading.Event()
        monkeypatch.setattr(watch, "call_soon", lambda callback: call_soon(callback) and not asked.set())
        call_soon = LoopWatch.call_soon.__get__(watch)
        first.join_locked(watch)
        asking = asyncio.ensure_future(asyncio.to_thread(first.give_way, int(DEADLINE * 1e9)))
        await asyncio.sleep(0)
        assert asked.wait(DEADLINE)
        for _ in range(5):
            time.sleep(2 * REST_NS / 1e9)  # noqa: ASYNC251  # a loop that works
            await asyncio.sleep(0)
            assert not asking.done()
        await asyncio.wait_for(asking, DEADLINE)
        assert first.calls == 1
