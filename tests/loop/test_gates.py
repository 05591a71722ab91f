"""`limit` and `lane`: how many calls at once, over functions, loops and executors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hybridrt import LaneNestingError, Runtime, offload

from .support import DEADLINE, Gate, hold, queued, sole_worker, turns


class Meter:
    """Counts how many calls are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0
        self.order: list[Any] = []

    def __call__(self, value: Any = None) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self.order.append(value)
        pause.wait(0.0002)
        with self._lock:
            self._inside -= 1


pause = threading.Event()
"""Never set: waiting for it gives other threads the time to come in, too."""


def gated(runtime: Runtime) -> int:
    return runtime.statistics().queued["gated"]


# ---------------------------------------------------------------------- limit


async def test_as_many_calls_as_the_limit_run_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        two = offload(gate, limit=2)
        tasks = [asyncio.ensure_future(two(n)) for n in range(3)]
        assert {await gate.entered(), await gate.entered()} == {0, 1}
        await turns()
        assert gated(runtime) == 1
        assert gate.is_empty()
        gate.release()
        assert await asyncio.gather(*tasks) == [0, 1, 2]


async def test_more_calls_than_the_limit_never_overlap() -> None:
    meter = Meter()
    await asyncio.gather(*(offload(meter, limit=3)(n) for n in range(1)))
    three = offload(meter, limit=3)
    await asyncio.gather(*map(three, range(60)))
    assert meter.most <= 3


async def test_calls_over_the_limit_start_in_order() -> None:
    meter = Meter()
    await asyncio.gather(*map(offload(meter, limit=1), range(50)))
    assert meter.order == list(range(50))


async def test_other_options_of_a_function_share_its_limit() -> None:
    async with Runtime() as runtime, Gate() as gate:
        one = offload(gate, limit=1)
        tasks = [asyncio.ensure_future(one()), asyncio.ensure_future(one.options(timeout=DEADLINE)())]
        await gate.entered()
        await turns()
        assert gated(runtime) == 1
        gate.release()
        await asyncio.gather(*tasks)


async def test_another_limit_counts_anew() -> None:
    async with Runtime(), Gate() as gate:
        one = offload(gate, limit=1)
        tasks = [asyncio.ensure_future(one("a")), asyncio.ensure_future(one.options(limit=1)("b"))]
        assert {await gate.entered(), await gate.entered()} == {"a", "b"}
        gate.release()
        await asyncio.gather(*tasks)


async def test_all_objects_of_a_class_share_the_limit_of_its_method() -> None:
    class Service:
        @offload(limit=1)
        def call(self, gate: Gate) -> None:
            gate()

    async with Runtime() as runtime, Gate() as gate:
        tasks = [asyncio.ensure_future(Service().call(gate)) for _ in range(2)]
        await gate.entered()
        await turns()
        assert gated(runtime) == 1
        gate.release()
        await asyncio.gather(*tasks)


async def test_calls_that_wait_for_their_limit_take_no_worker() -> None:
    async with Runtime(max_workers=2) as runtime, Gate() as gate:
        one = offload(gate, limit=1)
        tasks = [asyncio.ensure_future(one(n)) for n in range(5)]
        await gate.entered()
        assert await runtime.offload(len, "abc") == 3
        gate.release()
        await asyncio.gather(*tasks)


async def test_an_error_leaves_the_limit() -> None:
    one = offload(divmod, limit=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await one(1, 0)
    assert await one(7, 2) == (3, 1)


# ---------------------------------------------------------------------- lanes


@pytest.mark.parametrize("lane", ["a name", object(), ["unhashable"]], ids=["name", "object", "unhashable"])
async def test_calls_of_a_lane_never_overlap_whatever_their_function(lane: object) -> None:
    meter = Meter()

    def other(value: int) -> None:
        meter(value)

    calls = [offload(fn, lane=lane)(n) for n in range(20) for fn in (meter, other)]
    await asyncio.gather(*calls)
    assert meter.most == 1
    assert meter.order == [n for n in range(20) for _ in range(2)]


async def test_objects_are_lanes_by_identity_and_not_by_equality() -> None:
    async with Runtime(), Gate() as gate:
        tasks = [asyncio.ensure_future(offload(gate, lane=lane)(n)) for n, lane in enumerate(([], []))]
        assert {await gate.entered(), await gate.entered()} == {0, 1}
        gate.release()
        await asyncio.gather(*tasks)


async def test_names_are_lanes_by_equality() -> None:
    async with Runtime() as runtime, Gate() as gate:
        tasks = [asyncio.ensure_future(offload(gate, lane="".join(["a", "b"]))(n)) for n in range(2)]
        assert await gate.entered() == 0
        await turns()
        assert gated(runtime) == 1
        gate.release()
        await asyncio.gather(*tasks)


async def test_a_lane_reaches_over_loops_and_executors() -> None:
    def on_another_loop(value: str) -> str:
        return asyncio.run(offload(gate, lane="shared")(value))

    async with Runtime() as runtime, Gate() as gate:
        mine = asyncio.ensure_future(offload(gate, lane="shared")("mine"))
        await gate.entered()
        other = asyncio.ensure_future(asyncio.to_thread(on_another_loop, "other"))
        also_mine = asyncio.ensure_future(offload(gate, lane="shared")("also mine"))
        await turns()
        assert gated(runtime) == 1
        assert gate.is_empty()
        gate.release()
        assert await asyncio.gather(mine, other, also_mine) == ["mine", "other", "also mine"]


async def test_an_abandoned_call_keeps_its_lane_closed() -> None:
    async with Runtime() as runtime, Gate() as gate:
        stuck = asyncio.ensure_future(offload(gate, lane="a", abandon_on_cancel=True)("stuck"))
        await gate.entered()
        stuck.cancel()
        await asyncio.wait({stuck})
        behind = asyncio.ensure_future(offload(gate, lane="a")("behind"))
        await turns()
        assert gated(runtime) == 1
        gate.release()
        assert await behind == "behind"


async def test_a_call_may_pass_a_limit_and_a_lane() -> None:
    meter = Meter()
    both = offload(meter, limit=2, lane="both")
    await asyncio.gather(*map(both, range(20)), *(offload(meter, lane="both")(n) for n in range(20, 40)))
    assert meter.most == 1
    assert sorted(meter.order) == list(range(40))


@pytest.mark.parametrize("cancelled", [False, True], ids=["runs", "cancelled"])
async def test_a_closing_runtime_waits_for_calls_at_gates_of_others(cancelled: bool) -> None:
    """The lane is held by a call of another executor, and the closing runtime has no worker at all."""
    holding = offload(Gate.__call__, lane="held")
    ran: list[int] = []
    async with Gate() as gate:
        outside = asyncio.ensure_future(asyncio.to_thread(asyncio.run, holding(gate)))
        await gate.entered()
        runtime = Runtime()
        async with runtime:
            waiting = asyncio.ensure_future(offload(ran.append, lane="held")(1))
            await turns()
            assert gated(runtime) == 1
            closing = asyncio.ensure_future(runtime.aclose())
            await turns()
            assert not closing.done()
            if cancelled:
                waiting.cancel()
                await closing
            gate.release()
            await closing
        await outside
        await asyncio.wait({waiting})
        assert ran == [] if cancelled else [1]


@pytest.mark.race
async def test_a_lane_stays_whole_while_its_calls_are_cancelled() -> None:
    async with Runtime(max_workers=4) as runtime:
        meter = Meter()
        one = offload(meter, lane="raced")
        tasks = [asyncio.ensure_future(one(n)) for n in range(12)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.wait(tasks)
        assert meter.most == 1
        assert meter.order == sorted(meter.order)
        assert len(meter.order) == 12 - runtime.statistics().cancelled
        assert await offload(len, lane="raced")("abc") == 3


# ---------------------------------------------------------------------- nesting


async def test_a_call_inside_a_lane_cannot_ask_for_the_same_lane() -> None:
    inner = offload(len, lane="nested")

    def outer() -> int:
        return asyncio.run(inner("abc"))

    with pytest.raises(LaneNestingError, match=r"len asks for the lane 'nested' .*\.sync\(\.\.\.\)"):
        await offload(outer, lane="nested")()
    assert await inner("abc") == 3  # the lane is open again


async def test_a_call_inside_a_lane_may_ask_for_another_one() -> None:
    def outer() -> int:
        return asyncio.run(offload(len, lane="inner")("abc"))

    assert await offload(outer, lane="outer")() == 3


async def test_a_plain_call_inside_a_lane_is_fine() -> None:
    inner = offload(len, lane="nested")
    assert await offload(lambda: inner.sync("abc"), lane="nested")() == 3


async def test_a_limit_does_not_hinder_the_order_of_other_functions() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        meter = Meter()
        calls = [offload(meter, limit=1)(n) if n % 2 else offload(meter)(n) for n in range(10)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await turns()
        assert queued(runtime) == 10
        gate.release()
        await asyncio.gather(holding, *tasks)
        assert meter.order == list(range(10))
