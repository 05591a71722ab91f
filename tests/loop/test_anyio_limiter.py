"""anyio's limiter of worker threads under a runtime: real calls, real limiter, real threads."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from hybridrt import LimiterStatistics, Reason, Runtime
from hybridrt.control.window import State

from .beats import Beats
from .support import DEADLINE, Gate, eventually, turns

FOUND = 40
"""anyio's own limit."""


def limiter() -> anyio.CapacityLimiter:
    return anyio.to_thread.current_default_thread_limiter()


def figures(runtime: Runtime) -> LimiterStatistics:
    """Return what the statistics say of the limiter, which by now exists."""
    found = runtime.statistics().anyio
    assert found is not None
    return found


def crowd(gate: Gate, size: int) -> list[asyncio.Task[Any]]:
    """Begin `size` calls of a gate on anyio's threads."""
    return [asyncio.ensure_future(anyio.to_thread.run_sync(gate, n)) for n in range(size)]


async def inside(gate: Gate, size: int) -> None:
    """Wait until `size` calls are inside of a gate at once."""
    for _ in range(size):
        await asyncio.wait_for(gate.entered(), DEADLINE)


# ---------------------------------------------------------------------- growth


@pytest.mark.slow
async def test_a_hundred_calls_that_wait_for_each_other_are_all_in_flight_at_once() -> None:
    async with Runtime() as runtime, Gate() as gate:
        tasks = crowd(gate, 100)
        await inside(gate, 100)
        seen = figures(runtime)
        assert seen.total == limiter().total_tokens >= 100
        assert (seen.floor, seen.stopped) == (FOUND, None)
        assert seen.decisions[0].previous == FOUND
        gate.release()
        assert await asyncio.gather(*tasks) == [*range(100)]


async def test_without_the_governing_they_starve() -> None:
    async with Runtime(govern_anyio=False) as runtime, Gate() as gate:
        tasks = crowd(gate, 100)
        await inside(gate, FOUND)
        await eventually(lambda: runtime.statistics().loop_delay is not None)
        assert (limiter().total_tokens, gate.is_empty()) == (FOUND, True)
        assert runtime.statistics().anyio is None
        gate.release()
        await asyncio.gather(*tasks)


async def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDRT_GOVERN_ANYIO", "0")
    async with Runtime() as runtime:
        await anyio.to_thread.run_sync(int)
        await eventually(lambda: runtime.statistics().loop_delay is not None)
        assert (runtime.govern_anyio, runtime.statistics().anyio) == (False, None)


async def test_calls_that_compute_do_not_push_it_up() -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime, computing=0.95)
        tasks = crowd(gate, 60)
        await inside(gate, FOUND)
        await beats.seconds(1.0, late=0.02)  # the loop has to wait for the GIL
        assert figures(runtime).total == limiter().total_tokens == FOUND
        assert (figures(runtime).borrowed, figures(runtime).waiting) == (FOUND, 20)
        assert figures(runtime).decisions[-1].reason in (Reason.SATURATED, Reason.BETA_VETO)
        gate.release()
        await asyncio.gather(*tasks)


@pytest.fixture
def brisk() -> Iterator[None]:
    """Let forty threads that compute start in less than some seconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.slow
@pytest.mark.usefixtures("brisk")
async def test_threads_that_really_compute_do_not_push_it_up() -> None:
    """Each spins in bytecode until it is told to end; the loop's own beats are late for the GIL."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    async with Runtime() as runtime:
        tasks = [asyncio.ensure_future(anyio.to_thread.run_sync(spin)) for _ in range(60)]
        try:
            await eventually(lambda: runtime.statistics().anyio is not None)
            await eventually(lambda: bool(figures(runtime).decisions))
            assert figures(runtime).total == FOUND, figures(runtime)
        finally:
            stop.set()
        await asyncio.gather(*tasks)


async def test_it_does_not_grow_before_the_calls_have_shown_what_they_do() -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 60)
        await inside(gate, FOUND)
        await beats.seconds(0.15)
        assert (figures(runtime).total, figures(runtime).decisions[-1].reason) == (FOUND, Reason.HYSTERESIS)
        await beats.seconds(0.15)
        await inside(gate, 20)
        gate.release()
        await asyncio.gather(*tasks)


async def test_it_grows_no_further_than_the_runtimes_own_threads() -> None:
    async with Runtime(max_workers=50) as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 100)
        await inside(gate, FOUND)
        await beats.seconds(1.0)
        await inside(gate, 10)
        await beats.seconds(1.0)
        assert (figures(runtime).total, gate.is_empty()) == (50, True)
        gate.release()
        await asyncio.gather(*tasks)


async def test_it_does_not_grow_while_memory_is_short() -> None:
    used = psutil.Process().memory_info().rss
    async with Runtime(memory_max=used, max_workers=256, min_workers=200) as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 100)
        await inside(gate, FOUND)
        await beats.seconds(0.02)
        await eventually(lambda: runtime.statistics().host.memory_limit == used)
        await beats.seconds(2.0)
        assert (figures(runtime).total, figures(runtime).decisions[-1].reason) == (FOUND, Reason.MEMORY)
        gate.release()
        await asyncio.gather(*tasks)
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 100)
        await inside(gate, FOUND)
        await beats.seconds(0.02)
        await eventually(lambda: runtime.statistics().host.memory_limit > used)
        await beats.seconds(2.0)
        await inside(gate, 60)
        gate.release()
        await asyncio.gather(*tasks)


# ---------------------------------------------------------------------- the way back


async def test_it_comes_down_to_the_value_found_when_the_calls_are_gone() -> None:
    limiter().total_tokens = 60
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 100)
        await inside(gate, 60)
        await beats.seconds(1.0)
        await inside(gate, 40)
        assert limiter().total_tokens >= 100
        gate.release()
        await asyncio.gather(*tasks)
        for _ in range(60):
            await beats.seconds(1.0, period=0.2)  # as at rest
            assert limiter().total_tokens >= 60
        assert limiter().total_tokens == figures(runtime).total == figures(runtime).floor == 60
        assert (figures(runtime).borrowed, figures(runtime).stopped) == (0, None)


async def test_closing_puts_the_value_found_back_while_more_calls_run() -> None:
    runtime = Runtime()
    async with Gate() as gate:
        async with runtime:
            beats = Beats(runtime)
            tasks = crowd(gate, 100)
            await inside(gate, FOUND)
            await beats.seconds(1.0)
            await inside(gate, 100 - FOUND)
        assert (limiter().total_tokens, limiter().borrowed_tokens) == (FOUND, 100)
        assert (figures(runtime).total, figures(runtime).stopped) == (FOUND, "the runtime closed")
        more = crowd(gate, 1)
        gate.release()
        assert await asyncio.gather(*tasks, *more) == [*range(100), 0]


# ---------------------------------------------------------------------- what it leaves alone


async def test_a_value_that_the_program_sets_meanwhile_is_left_alone_for_good() -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 100)
        await inside(gate, FOUND)
        await beats.seconds(0.02)
        limiter().total_tokens = 45
        await beats.seconds(1.0)
        assert (limiter().total_tokens, figures(runtime).total, figures(runtime).floor) == (45, 45, FOUND)
        assert figures(runtime).stopped == "the program set it to 45 itself"
        gate.release()
        await asyncio.gather(*tasks)
    assert limiter().total_tokens == 45


@pytest.mark.parametrize("tokens", [1, 39, math.inf])
async def test_a_limit_that_holds_back_and_one_that_does_not_limit_are_left_alone(tokens: float) -> None:
    limiter().total_tokens = tokens
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 50)
        await inside(gate, 1)
        await beats.seconds(1.0)
        assert limiter().total_tokens == tokens
        assert figures(runtime).stopped == f"the program had set it to {tokens}"
        assert figures(runtime).total == figures(runtime).floor == (None if tokens == math.inf else tokens)
        gate.release()
        await asyncio.gather(*tasks)
    assert limiter().total_tokens == tokens


async def test_a_limiter_of_the_programs_own_is_left_alone() -> None:
    own = anyio.CapacityLimiter(1)
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = [asyncio.ensure_future(anyio.to_thread.run_sync(gate, n, limiter=own)) for n in range(10)]
        await inside(gate, 1)
        await beats.seconds(1.0)
        assert (own.total_tokens, gate.is_empty()) == (1, True)
        gate.release()
        await asyncio.gather(*tasks)


TRIO = """
import asyncio, threading, anyio, anyio.to_thread, hybridrt

async def starve():
    limiter = anyio.to_thread.current_default_thread_limiter()
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(anyio.to_thread.run_sync, go.wait, 30)
        while limiter.statistics().tasks_waiting < 10:
            await anyio.sleep(0)
        starving.set()
    return limiter.total_tokens

async def main():
    runtime = hybridrt.Runtime.current()
    total = asyncio.ensure_future(asyncio.to_thread(anyio.run, starve, backend="trio"))
    await asyncio.to_thread(starving.wait, 30)
    runtime._watch._heartbeat.stop()
    for beat in range(100):
        runtime._limiter.beat(beat / 100, 0.0)
        await asyncio.sleep(0)
    go.set()
    assert (await total, runtime.statistics().anyio) == (40, None)

starving, go = threading.Event(), threading.Event()
hybridrt.run(main())
"""


@pytest.mark.slow
def test_a_trio_loop_in_another_thread_keeps_its_limit() -> None:
    """In a process of its own: trio keeps its threads for some seconds."""
    pytest.importorskip("trio")
    subprocess.run([sys.executable, "-c", TRIO], check=True, timeout=50)


# ---------------------------------------------------------------------- what it costs others


async def test_a_program_without_anyios_threads_gets_no_limiter() -> None:
    async with Runtime() as runtime:
        beats = Beats(runtime)
        await beats.seconds(0.5)
        assert runtime.statistics().anyio is None
        assert beats.limiter._limiter is None
    limiter().total_tokens = 7  # the first to ask makes it, and this loop's value goes with the loop


@pytest.mark.slow
def test_a_program_without_anyio_does_not_import_it() -> None:
    program = (
        "import asyncio, sys, hybridrt\n"
        "async def main():\n"
        "    runtime = hybridrt.Runtime.current()\n"
        "    await runtime.offload(int)\n"
        "    while runtime.statistics().loop_delay is None:\n"
        "        await asyncio.sleep(0)\n"
        "hybridrt.run(main())\n"
        "assert 'anyio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


HALF_IMPORTED = """
import asyncio, importlib, sys, threading, hybridrt

class Pause:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "anyio.lowlevel":  # which the backend imports before it defines anything
            reached.set()
            assert go.wait(30)

async def main():
    runtime = hybridrt.Runtime.current()
    runtime._watch._heartbeat.stop()
    backend = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "anyio._backends._asyncio"))
    await asyncio.to_thread(reached.wait, 30)
    assert "anyio._backends._asyncio" in sys.modules
    runtime._limiter.beat(0.0, 0.0)
    assert runtime.statistics().anyio is None
    go.set()
    await backend
    import anyio.to_thread
    await anyio.to_thread.run_sync(int)
    runtime._limiter.beat(1.0, 0.0)
    assert (runtime.statistics().anyio.total, runtime.statistics().anyio.stopped) == (40, None)

reached, go = threading.Event(), threading.Event()
sys.meta_path.insert(0, Pause)
hybridrt.run(main())
"""


@pytest.mark.slow
def test_a_backend_that_another_thread_is_just_importing_is_not_there_yet() -> None:
    subprocess.run([sys.executable, "-c", HALF_IMPORTED], check=True, timeout=50)


async def test_the_beats_come_fast_while_calls_run_and_no_longer() -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        tasks = crowd(gate, 3)
        await inside(gate, 3)
        assert not beats.limiter.is_busy()  # nobody has looked
        await beats.seconds(0.01)
        assert beats.limiter.is_busy()
        gate.release()
        await asyncio.gather(*tasks)
        assert not beats.limiter.is_busy()


async def test_nothing_of_a_call_is_kept() -> None:
    class Result:
        pass

    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        await anyio.to_thread.run_sync(int)  # anyio's thread keeps the task that made it
        task = asyncio.ensure_future(anyio.to_thread.run_sync(gate, Result()))
        result = weakref.ref(await gate.entered())
        await beats.seconds(0.02)
        gate.release()
        await task
        watched = weakref.ref(task)
        del task
        await turns()  # the loop holds what woke this task
        gc.collect()
        assert (watched(), result()) == (None, None)


# ---------------------------------------------------------------------- failures


class Broken:
    """A policy that works at first."""

    interval = 0.05

    def start(self, limits: Any) -> Any:
        return State(workers=limits.lowest)

    def at_rest(self, limits: Any, state: Any) -> bool:
        return False

    def decide(self, limits: Any, state: Any, window: Any) -> Any:
        raise ArithmeticError("no decision")


async def test_a_failure_stops_it_and_leaves_a_limiter_that_works(caplog: pytest.LogCaptureFixture) -> None:
    async with Runtime() as runtime, Gate() as gate:
        beats = Beats(runtime)
        beats.limiter._policy = Broken()
        tasks = crowd(gate, 60)
        await inside(gate, FOUND)
        await beats.seconds(1.0)
        assert figures(runtime).stopped == "ArithmeticError('no decision')"
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert not beats.limiter.is_busy()
        gate.release()
        assert await asyncio.gather(*tasks) == [*range(60)]
    assert limiter().total_tokens == FOUND


async def test_one_that_failed_before_it_found_the_limiter_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await anyio.to_thread.run_sync(int)
    async with Runtime() as runtime:
        beats = Beats(runtime)
        monkeypatch.delattr("anyio.lowlevel._run_vars")
        await beats.seconds(0.02)
        monkeypatch.undo()
        seen = figures(runtime)
        assert seen.stopped is not None
        assert "_run_vars" in seen.stopped
        assert (seen.total, seen.floor, seen.borrowed, seen.waiting) == (None, None, 0, 0)
    assert len(caplog.records) == 1
