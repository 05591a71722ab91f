"""Worker processes that die: their call fails, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hybridrt import Runtime, RuntimeClosedError, WorkerLostError
from hybridrt.isolates.isolate_pool import close_isolates, processes
from hybridrt.isolates.process import WorkerProcess
from tests.loop.support import eventually

from . import far
from .support import FarGate, cancel_kills, push, run_isolated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("runtime"),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals"),
]


def open_ends() -> int:
    """Return how many sockets and pipes this process has open."""
    kept = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            kept += os.readlink(file).startswith(("socket:", "pipe:"))
    return kept


async def test_a_worker_killed_in_the_middle_of_a_call_fails_that_call_alone(far_gate: FarGate) -> None:
    held = far_gate.push()
    victim = await far_gate.entered()
    neighbour = await run_isolated(far.pid) if processes.limiter.limit > 1 else None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=rf"worker process {victim} .*SIGKILL .*far:hold") as caught:
        await held
    assert (caught.value.started, caught.value.exitcode) == (True, -signal.SIGKILL)
    assert await run_isolated(far.pid) == neighbour or neighbour is None


async def test_a_worker_that_ends_itself_is_told_with_its_exit_code() -> None:
    with pytest.raises(WorkerLostError, match="exit code 3") as caught:
        await run_isolated(far.end, 3)
    assert caught.value.exitcode == 3
    assert await run_isolated(far.add, 1) == 2


async def test_where_the_program_ignores_sigchld_no_exit_code_is_made_up() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(WorkerLostError, match=r"not known: .* ignores SIGCHLD") as caught:
            await run_isolated(far.end, 3)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert caught.value.exitcode is None


async def test_an_idle_worker_that_died_is_replaced_and_no_call_hears_of_it() -> None:
    first = await run_isolated(far.pid)
    os.kill(first, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first)]) if psutil.pid_exists(first) else None
    second = await run_isolated(far.pid)
    assert second not in (first, os.getpid())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_all_processes_of_a_program_leaves_the_workers_to_their_parent(
    far_gate: FarGate, number: int
) -> None:
    held = far_gate.push("still there")
    os.kill(await far_gate.entered(), number)
    await far_gate.release()
    assert await held == "still there"


async def test_sigterm_ends_a_process_that_a_function_forks() -> None:
    assert await run_isolated(far.fork_and_terminate) == -signal.SIGTERM


async def test_a_timeout_kills_the_worker(far_gate: FarGate) -> None:
    held = far_gate.push()
    victim = psutil.Process(await far_gate.entered())
    held.expire(0.5)
    with pytest.raises(TimeoutError, match=r"still ran after its timeout of 0\.5 s; its process is ended"):
        await held
    await asyncio.to_thread(victim.wait, 30.0)
    assert await run_isolated(far.add, 1) == 2


async def test_abandoning_calls_that_run_or_are_queued_hits_no_other_call() -> None:
    await run_isolated(far.add, 1)
    calls = [push(far.add, number) for number in range(4)]
    for call in calls[::2]:
        call.abandon_on_cancel = True
        call.cancel()
    assert [await call for call in calls[1::2]] == [2, 4]
    await eventually(lambda: not calls[0].pool.is_active() and not processes.limiter.active)


async def test_cancelling_kills_the_worker_where_the_call_may_be_abandoned(far_gate: FarGate) -> None:
    await cancel_kills(far_gate.push(), far_gate)


async def test_cancelling_lets_the_call_end_elsewhere(far_gate: FarGate) -> None:
    held = far_gate.push()
    before = await far_gate.entered()
    held.cancel()
    await far_gate.release()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert await run_isolated(far.pid) == before


async def test_a_runtime_that_closes_in_a_hurry_kills_what_runs(far_gate: FarGate, runtime: Runtime) -> None:
    runtime.shutdown_timeout = 0.0
    held = far_gate.push()
    victim = psutil.Process(await far_gate.entered())
    await runtime.aclose()
    with pytest.raises(RuntimeClosedError, match=r"closed while .*far:hold"):
        await held
    await asyncio.to_thread(victim.wait, 30.0)


@pytest.mark.parametrize("calls", [40])
async def test_a_storm_of_kills_costs_the_calls_that_ran_and_nothing_else(calls: int) -> None:
    chance = random.Random(7)
    ended: Counter[str] = Counter()

    async def one(number: int) -> None:
        try:
            assert await run_isolated(far.add, number) == number + 1
            ended["result"] += 1
        except WorkerLostError:
            ended["lost"] += 1

    storm = asyncio.gather(*map(one, range(calls)))
    while not storm.done():
        for worker in processes.isolates():
            if isinstance(worker, WorkerProcess) and chance.random() < 0.3:
                worker._process.kill()
        await asyncio.sleep(0.02)
    await storm
    assert ended.total() == calls
    assert await run_isolated(far.add, 1) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.blocks_the_loop
async def test_nothing_stays_open_after_workers_that_were_killed_left_or_timed_out(far_gate: FarGate) -> None:
    await run_isolated(far.add, 1)
    close_isolates()
    before = open_ends()
    with pytest.raises(WorkerLostError):
        await run_isolated(far.end, 1)
    held = far_gate.push()
    await far_gate.entered()
    held.expire(0.5)
    with pytest.raises(TimeoutError):
        await held
    await run_isolated(far.add, 1)
    close_isolates()
    await eventually(lambda: open_ends() <= before)


@pytest.mark.slow
async def test_a_kill_meant_for_one_call_never_hits_the_next_one_in_its_worker() -> None:
    first = push(far.add, 1)
    first.abandon_on_cancel = True
    second = push(far.add, 2)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 3
    await asyncio.wait({first})
