"""What the runtime adds to the executor's statistics."""

from __future__ import annotations

import asyncio
import json

from hybridrt import Runtime, Statistics
from tests.loop.support import Gate, eventually, hold, queued, sole_worker, turns


async def test_the_runtime_adds_loop_delay_and_background_tasks() -> None:
    async with Runtime() as runtime:
        task = runtime.background(asyncio.Event().wait())
        await eventually(lambda: runtime.statistics().loop_delay is not None)
        statistics = runtime.statistics()
        assert isinstance(statistics, Statistics)
        assert statistics.background == 1
        assert statistics.loop_delay is not None
        assert 0.0 <= statistics.loop_delay.p50 <= statistics.loop_delay.p99 <= statistics.loop_delay.max
        assert runtime.executor.statistics().loop_delay is None
        task.cancel()


async def test_they_are_ready_for_json() -> None:
    async with Runtime() as runtime:
        await runtime.map(abs, range(10))
        await eventually(lambda: runtime.statistics().loop_delay is not None)
        data = json.loads(json.dumps(runtime.statistics().to_dict()))
    assert data["completed"] == 10
    assert set(data["loop_delay"]) == {"p50", "p99", "max", "window"}
    assert data["decisions"][0]["reason"] == "start"


async def test_they_show_what_runs_and_what_is_queued() -> None:
    async with sole_worker() as runtime, Gate() as gate:
        await hold(runtime, gate)
        task = asyncio.ensure_future(runtime.offload(int))
        await turns()
        (running,) = runtime.statistics().running
        assert running.name.endswith("Gate.__call__") or "Gate" in running.name
        assert (running.thread, running.abandoned) == ("hybridrt_0", False)
        assert running.age >= 0.0
        assert queued(runtime) == 1
        gate.release()
        assert await task == 0


async def test_they_can_be_read_in_another_thread() -> None:
    async with Runtime() as runtime:
        statistics = await asyncio.to_thread(runtime.statistics)
        assert [call.name for call in statistics.running] == ["hybridrt.runtime:Runtime.statistics"]
