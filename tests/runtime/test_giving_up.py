"""What closing gives up: calls in the middle of being taken, calls within calls, calls of other loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import Runtime, RuntimeClosedError, drain
from hybridrt.pool.state import Call
from hybridrt.pool.worker import WorkerThread
from tests.loop.support import DEADLINE, Gate, eventually, hold, sole_worker, turns


class Halted:
    """Workers that stop before one of their steps until the test lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        self.arrived, self._open = threading.Event(), threading.Event()
        take: Callable[..., Any] = getattr(WorkerThread, step)

        def halt(worker: WorkerThread, *args: Any) -> Any:
            self.arrived.set()
            assert self._open.wait(DEADLINE)
            return take(worker, *args)

        monkeypatch.setattr(WorkerThread, step, halt)

    def __enter__(self) -> Halted:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()

    def go_on(self) -> None:
        self._open.set()


async def test_a_call_that_was_given_to_a_worker_and_not_taken_never_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[int] = []
    with Halted(monkeypatch, "_claim") as halted:
        async with Runtime(shutdown_timeout=0.0) as runtime:
            task = asyncio.ensure_future(runtime.offload(ran.append, 1))
            await eventually(halted.arrived.is_set)
        with pytest.raises(RuntimeClosedError, match=r"closed before .* started; it never runs"):
            await task
    await eventually(lambda: runtime.statistics().workers == 0)
    assert (ran, runtime.statistics().cancelled) == ([], 1)


async def test_a_call_that_is_just_being_taken_is_given_up_once_it_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drain, "LAST_STEP", DEADLINE)
    async with Gate() as gate:
        with Halted(monkeypatch, "_serve") as halted:
            runtime = Runtime(shutdown_timeout=0.0)
            async with runtime:
                task = asyncio.ensure_future(runtime.offload(gate))
                await eventually(halted.arrived.is_set)
                closing = asyncio.ensure_future(runtime.aclose())
                await turns()
                assert (closing.done(), task.done()) == (False, False)
                halted.go_on()
                await closing
            with pytest.raises(RuntimeClosedError, match=r"the runtime closed while .* ran"):
                await task
        assert caplog.text.count("still runs after") == 1


async def test_a_worker_that_never_says_what_it_took_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "LAST_STEP", 0.0)
    with Halted(monkeypatch, "_serve") as halted:
        async with Runtime(shutdown_timeout=0.0) as runtime:
            task = asyncio.ensure_future(runtime.offload(int))
            await eventually(halted.arrived.is_set)
        assert not task.done()
        halted.go_on()
        assert await task == 0
    await eventually(lambda: runtime.statistics().workers == 0)


async def test_a_call_that_waits_for_one_that_its_worker_runs_for_it_is_given_up_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def outer(runtime: Runtime, gate: Gate) -> object:
        return runtime.executor.submit(gate).result()

    async with Gate() as gate:
        async with sole_worker(shutdown_timeout=0.0) as runtime:
            task = asyncio.ensure_future(runtime.offload(outer, runtime, gate))
            await gate.entered()
            names = [call.name.rpartition(".")[2] for call in runtime.statistics().running]
            assert sorted(names) == ["outer", "support:Gate"]
        with pytest.raises(RuntimeClosedError, match=r"the runtime closed while .*outer ran"):
            await task
        assert caplog.text.count("still runs after") == 2
        assert runtime.statistics().abandoned == 1
        gate.release()
        await eventually(lambda: runtime.statistics().workers == 0)


async def test_a_background_task_that_closes_its_runtime_first_is_not_waited_for() -> None:
    stop = asyncio.Event()

    async def close(runtime: Runtime) -> str:
        await stop.wait()
        await runtime.aclose()
        return "closed"

    async with Runtime(shutdown_timeout=3600.0) as runtime:
        task = runtime.background(close(runtime))
        await turns()
        stop.set()
        assert await asyncio.wait_for(task, DEADLINE) == "closed"


async def test_of_two_background_tasks_that_close_one_waits_for_the_other() -> None:
    ended: list[str] = []

    async def close(runtime: Runtime, name: str) -> None:
        await runtime.aclose()
        ended.append(name)

    async with Runtime(shutdown_timeout=3600.0) as runtime:
        tasks = [runtime.background(close(runtime, name)) for name in ("first", "second")]
        await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE)
    assert sorted(ended) == ["first", "second"]


async def test_a_call_of_another_loop_is_given_up_on_that_loop() -> None:
    threads: list[threading.Thread] = []

    async def elsewhere(runtime: Runtime, gate: Gate) -> str:
        future = asyncio.get_running_loop().run_in_executor(runtime.executor, gate)
        if isinstance(future, Call):
            future.add_done_callback(lambda _: threads.append(threading.current_thread()))
        try:
            await future
        except RuntimeClosedError as error:
            return str(error)
        return "ended"

    async with Gate() as gate:
        async with Runtime(shutdown_timeout=0.0) as runtime:
            told: list[str] = []
            other = threading.Thread(
                target=lambda: told.append(asyncio.run(elsewhere(runtime, gate), debug=True))
            )
            other.start()
            await gate.entered()
        await eventually(lambda: not other.is_alive())
        other.join()
        assert "the runtime closed while" in told[0]
        assert threads == [other]
    await eventually(lambda: runtime.statistics().workers == 0)


async def test_what_fails_while_closing_leaves_no_other_close_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: drain.Draining) -> None:
        raise ZeroDivisionError

    async with Gate() as gate:
        runtime = sole_worker(shutdown_timeout=0.0)
        await runtime.__aenter__()
        await hold(runtime, gate)
        monkeypatch.setattr(drain.Draining, "give_up", fail)
        closes = await asyncio.gather(runtime.aclose(), runtime.aclose(), return_exceptions=True)
        assert [type(found) for found in closes] == [ZeroDivisionError, type(None)]
        gate.release()
        await eventually(lambda: runtime.statistics().workers == 0)
