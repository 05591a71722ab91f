"""What a runtime says of the functions that make its loop late."""

from __future__ import annotations

import asyncio
import threading
import time

from hybridrt import Runtime, explain, offload
from hybridrt.observe.function_name import identify
from hybridrt.pool.computed import Computed

from .support import Gate, hold


def spin(cpu: float) -> None:
    """Compute until the thread has used so much CPU time."""
    until = time.thread_time() + cpu
    while time.thread_time() < until:
        pass


async def test_a_call_that_has_ended_is_charged_with_no_more_than_the_time_that_has_passed() -> None:
    async with Runtime() as runtime:
        computed = Computed(runtime.executor._pool)
        computed.note(0.0)
        await runtime.offload(spin, 0.02)
        assert 0.0 < computed.since(0.005)[identify(spin)[1]] <= 0.005
        assert computed.since(1.0) == {}


async def test_a_call_that_waits_is_charged_with_nothing() -> None:
    async with Runtime() as runtime, Gate() as gate:
        task = await hold(runtime, gate)
        pool = runtime.executor._pool
        while any(worker.permit for worker in pool.roster.workers):  # noqa: ASYNC110  # the sampler sees it
            await asyncio.sleep(0.001)
        computed = Computed(pool)
        computed.note(0.0)
        assert computed.since(1.0) == {}
        gate.release()
        await task


async def test_a_call_that_computes_is_charged_while_it_runs() -> None:
    async with Runtime() as runtime:
        computed = Computed(runtime.executor._pool)
        computed.note(0.0)
        stop = threading.Event()

        def compute() -> None:
            while not stop.is_set():
                pass

        task = asyncio.ensure_future(runtime.offload(compute))
        name = identify(compute)[1]
        at = 1.0
        while not computed.since(at).get(name):
            at += 1.0
            await asyncio.sleep(0.001)
        stop.set()
        await task


async def test_a_function_that_keeps_the_loop_is_charged_for_that() -> None:
    async with Runtime() as runtime:
        pool = runtime.executor._pool
        fn = offload(spin, where="inline")
        await fn(0.0)  # known to the pool from now on
        computed = Computed(pool)
        computed.note(0.0)
        await fn(0.02)
        assert computed.since(1.0)[identify(spin)[1]] >= 0.02


async def test_a_function_with_two_sets_of_options_is_charged_for_what_both_keep_the_loop() -> None:
    async with Runtime() as runtime:
        pool = runtime.executor._pool
        long, short = offload(spin, where="inline"), offload(spin, where="inline")
        await long(0.02)
        computed = Computed(pool)
        computed.note(0.0)
        await short(0.001)
        assert computed.since(1.0)[identify(spin)[1]] >= 0.001
        await long(0.001)
        assert computed.since(2.0)[identify(spin)[1]] >= 0.001


async def test_a_count_that_another_loop_has_lost_charges_nothing() -> None:
    async with Runtime() as runtime:
        fn = offload(spin, where="inline")
        await fn(0.001)
        computed = Computed(runtime.executor._pool)
        computed.note(0.0)
        assert fn._router is not None
        fn._router.size_class(None).inline_wall_ns = 0
        assert computed.since(1.0) == {}


async def test_the_statistics_and_explain_tell_the_share() -> None:
    async with Runtime() as runtime:
        await runtime.offload(spin, 0.001)
        name = identify(spin)[1]
        pool = runtime.executor._pool
        pool.delay_shares.record(0.0, 0.2, {name: 0.1, f"{name} [process]": 0.05})
        (row,) = (row for row in runtime.statistics().functions if row.name == name)
        told = explain(spin)
    assert row.delay_share is not None
    assert 0.0 < row.delay_share <= 1.0
    assert told.delay_share is not None
    assert told.delay_share >= row.delay_share
    assert "of the loop's delay" in str(told)
