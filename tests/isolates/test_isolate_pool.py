"""Lending isolates: started when needed, kept for a while, ended in good order."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, WorkerLostError
from hybridrt.isolates import isolate_pool, remote_invocation
from hybridrt.isolates.child import VALUE
from hybridrt.isolates.isolate import LEAVING, Isolate
from hybridrt.isolates.isolate_pool import IsolatePool
from hybridrt.isolates.packing import Packed, pack
from hybridrt.isolates.process import WorkerProcess
from hybridrt.isolates.reference import refer
from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.isolates.subinterpreter import AVAILABLE, SubInterpreter
from hybridrt.isolates.wire import Message
from hybridrt.loop.binding import LoopBinding
from hybridrt.loop.isolated_call import isolated_call
from hybridrt.measure.host import Memory
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE, eventually

from . import far
from .support import FarGate, closes_after, push, run_isolated


class Recorded(WorkerProcess):
    """A worker that only says what becomes of it."""

    is_set_up = True

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.cold = self.alive = True
        self.killed = False

    def is_alive(self) -> bool:
        return self.alive

    def run(self, packed: Packed, *, sent: bool = False) -> Message:
        return Message(VALUE, 1, 1, "done")

    def kill(self) -> None:
        self.killed = True

    def ask_to_leave(self) -> None: ...

    def close(self) -> None:
        self.ended.set()


@pytest.fixture
def lending() -> Iterator[IsolatePool]:
    """Make a crew of isolates that are none, and that leave only when told."""
    lending = IsolatePool(Recorded, "recorded", most=2)
    yield lending
    lending.close()


def lease(lending: IsolatePool) -> Recorded:
    isolate = lending.lease()
    assert isinstance(isolate, Recorded)
    return isolate


def test_an_isolate_that_is_not_fit_is_asked_to_leave_before_its_end_is_waited_for(
    lending: IsolatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is short a sub-interpreter is not killed."""
    isolate, done = lease(lending), list[str]()
    for name in ("kill", "ask_to_leave", "close"):
        monkeypatch.setattr(isolate, name, partial(done.append, name))
    lending.discard(isolate)
    assert done == ["kill", "ask_to_leave", "close"]


class Stubborn(WorkerProcess):
    """Does not end when it is asked to, while the test's time passes."""

    def __init__(self, waits: list[float]) -> None:
        self._waits = waits
        super().__init__()

    def _start(self, there: socket.socket) -> None:
        there.close()
        self._process: Any = self

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            return -9
        self._waits.append(timeout)
        raise subprocess.TimeoutExpired("", timeout)

    def kill(self) -> None: ...


def test_isolates_that_are_asked_to_leave_together_do_so_in_the_time_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits))
    monkeypatch.setattr("hybridrt.isolates.isolate.time", clock, raising=False)
    IsolatePool(WorkerProcess, "stubborn").end(*(Stubborn(waits) for _ in range(3)))
    assert waits == [LEAVING, 0.0, 0.0]


def test_the_isolate_used_last_is_lent_first(lending: IsolatePool) -> None:
    first, second = lease(lending), lease(lending)
    lending.give_back(second)
    lending.give_back(first)
    assert lease(lending) is first
    assert lease(lending) is second


def test_an_idle_isolate_leaves_after_its_time() -> None:
    lending = IsolatePool(Recorded, "recorded", most=2, idle_timeout=0.0)
    isolate = lease(lending)
    lending.give_back(isolate)
    assert isolate.ended.wait(DEADLINE)
    assert lending.isolates() == ()
    again = lease(lending)
    lending.give_back(again)
    assert again.ended.wait(DEADLINE)
    lending.close()


def test_an_isolate_that_died_idle_is_not_lent(lending: IsolatePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate_pool, "FRESH", 0.0)
    isolate = lease(lending)
    lending.give_back(isolate)
    isolate.alive = False
    assert lease(lending) is not isolate
    assert isolate.ended.is_set()


def test_an_isolate_that_came_back_a_moment_ago_is_not_asked(
    lending: IsolatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate_pool, "FRESH", 3600.0)
    isolate = lease(lending)
    lending.give_back(isolate)
    isolate.alive = False
    assert lease(lending) is isolate


def test_closing_ends_the_idle_ones_now_and_the_lent_ones_when_they_come_back(lending: IsolatePool) -> None:
    idle, lent = lease(lending), lease(lending)
    lending.give_back(idle)
    lending.close()
    assert idle.ended.is_set()
    assert not lent.ended.is_set()
    lending.give_back(lent)
    assert lent.ended.is_set()
    assert lending.isolates() == ()
    assert lease(lending) not in (idle, lent)


def test_an_idle_isolate_that_was_dismissed_is_not_lent_before_it_has_left(
    lending: IsolatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate = lease(lending)
    lending.give_back(isolate)
    lending.limiter.limit = 3
    with monkeypatch.context() as patch:
        patch.setattr(lending._changed, "notify_all", lambda: None)  # the thread that ends it learns nothing
        lending.dismiss()
    assert lending.lease() is not isolate
    assert lending.lease_for("module") is not isolate


def test_short_memory_leaves_room_for_one_isolate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate_pool.shared, "memory", Memory(limit=1 << 40, given=1 << 40, share=1.0))
    assert IsolatePool(WorkerProcess, "processes").limiter.limit == 1


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A host of eight cores whose memory has room for two processes."""
    limit = 2 * int(WorkerProcess.MEMORY / isolate_pool.MEMORY_SHARE)
    memory = Memory(limit=limit, given=limit, share=0.0)
    monkeypatch.setattr(isolate_pool.shared, "cores", 8)
    monkeypatch.setattr(isolate_pool.shared, "memory", memory)
    return memory


def test_where_nobody_can_tell_what_memory_is_free_isolates_may_take_a_part_of_all(
    room_for_two: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate_pool.shared, "memory", replace(room_for_two, share=None))
    assert IsolatePool(WorkerProcess, "processes").limiter.limit == 2


def test_the_cores_limit_the_isolates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate_pool.shared, "memory", Memory(limit=1 << 50, given=1 << 50, share=0.0))
    monkeypatch.setattr(isolate_pool.shared, "cores", 3)
    assert IsolatePool(WorkerProcess, "processes").limiter.limit == 3


def test_a_look_at_the_host_lets_more_or_fewer_calls_in(
    room_for_two: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = IsolatePool(WorkerProcess, "processes")
    assert tested.limiter.limit == 2
    monkeypatch.setattr(isolate_pool.shared, "memory", replace(room_for_two, limit=2 * room_for_two.limit))
    tested.adapt()
    assert tested.limiter.limit == 4
    monkeypatch.setattr(isolate_pool.shared, "memory", replace(room_for_two, share=0.99))
    tested.adapt()
    assert tested.limiter.limit == 1


def test_the_memory_that_isolates_have_taken_does_not_count_against_them(
    room_for_two: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = IsolatePool(WorkerProcess, "processes")
    used = 2 * WorkerProcess.MEMORY / room_for_two.limit
    monkeypatch.setattr(isolate_pool.shared, "memory", replace(room_for_two, share=used))
    monkeypatch.setattr(tested, "isolates", lambda: (None, None))
    assert tested.limiter.limit == 2


def test_a_number_that_was_given_stays(room_for_two: Memory) -> None:
    tested = IsolatePool(WorkerProcess, "processes", most=5)
    assert tested.limiter.limit == 5
    tested.adapt()
    assert tested.limiter.limit == 5


def test_stopping_a_call_that_has_ended_leaves_its_isolate_to_the_next_one(lending: IsolatePool) -> None:
    call = remote_invocation.RemoteInvocation(refer(far.add), lending)
    leased = call._lease()
    call._let_go(leased, fit=True)
    call.stop()
    assert lease(lending) is leased
    assert not leased.killed  # type: ignore[attr-defined]


def test_a_call_that_was_stopped_before_it_had_an_isolate_takes_none(lending: IsolatePool) -> None:
    call = remote_invocation.RemoteInvocation(refer(far.add), lending)
    call.stop()
    with pytest.raises(asyncio.CancelledError, match="no caller waits for"):
        call(1)
    assert not lending._lent


def test_a_call_that_did_not_reach_its_isolate_is_done_by_another_one(lending: IsolatePool) -> None:
    gone, next_one = lease(lending), lease(lending)
    gone.run = _lose(started=False)  # type: ignore[method-assign]
    lending.give_back(next_one)
    lending.give_back(gone)
    assert remote_invocation.RemoteInvocation(refer(far.add), lending)(1) == "done"
    assert gone.ended.is_set()


def test_any_number_of_isolates_that_ended_idle_are_replaced(lending: IsolatePool) -> None:
    gone = [lease(lending) for _ in range(remote_invocation._ATTEMPTS + 1)]
    for isolate in gone:
        isolate.cold = False
        isolate.run = _lose(started=False)  # type: ignore[method-assign]
        lending.give_back(isolate)
    assert remote_invocation.RemoteInvocation(refer(far.add), lending)(1) == "done"
    assert all(isolate.ended.is_set() for isolate in gone)


def test_isolates_that_end_as_soon_as_they_are_started_are_given_up(
    lending: IsolatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorded, "run", staticmethod(_lose(started=False)))
    with pytest.raises(WorkerLostError, match=r"lost before it had the call of .*far:add") as caught:
        remote_invocation.RemoteInvocation(refer(far.add), lending)(1)
    assert not caught.value.started
    assert not lending.isolates()


async def test_a_process_that_was_killed_while_idle_is_replaced() -> None:
    assert await run_isolated(far.add, 1, isolation="process") == 2
    (process,) = isolate_pool.processes.isolates()
    assert isinstance(process, WorkerProcess)
    process._process.kill()
    process._process.wait()
    assert await run_isolated(far.add, 2, isolation="process") == 3
    assert process not in isolate_pool.processes.isolates()


def test_a_call_that_had_reached_its_isolate_is_not_done_twice(lending: IsolatePool) -> None:
    gone = lease(lending)
    gone.run = _lose(started=True)  # type: ignore[method-assign]
    lending.give_back(gone)
    with pytest.raises(WorkerLostError, match=r"lost while it ran .*far:add"):
        remote_invocation.RemoteInvocation(refer(far.add), lending)(1)


def _lose(*, started: bool) -> Callable[[Packed], Message]:
    def run(packed: Packed, *, sent: bool = False) -> Message:
        raise WorkerLostError("lost", started=started)

    return run


@pytest.mark.race
def test_a_call_that_is_stopped_while_it_ends_never_stops_the_next_one(lending: IsolatePool) -> None:
    isolate = lease(lending)
    isolate.killed = False
    lending.give_back(isolate)
    call = remote_invocation.RemoteInvocation(refer(far.add), lending)
    leased = call._lease()
    stopper = threading.Thread(target=call.stop)
    stopper.start()
    call._let_go(leased, fit=True)
    killed_when_let_go = leased.killed  # type: ignore[attr-defined]
    fit = any(leased is idle for _, idle in lending._idle)
    stopper.join()
    assert leased.killed == killed_when_let_go  # type: ignore[attr-defined]
    assert fit is not leased.killed  # type: ignore[attr-defined]


async def test_what_a_call_cost_is_told_to_who_wants_to_know(isolation: Isolation) -> None:
    told: list[RoundTrip] = []
    for _ in range(2):
        await run_isolated(far.echo, bytes(100_000), isolation=isolation, on_round_trip=told.append)
    with pytest.raises(LookupError):
        await run_isolated(far.fail, LookupError(), isolation=isolation, on_round_trip=told.append)
    assert [round_trip.cold for round_trip in told] == [True, False, False]
    assert told[1].wall_ns > told[1].child_wall_ns >= 0
    assert told[1].host_cpu_ns >= 0


async def test_isolates_end_when_the_last_pool_that_used_them_has_closed(isolation: Isolation) -> None:
    first, second = AdaptiveThreadPoolExecutor(), AdaptiveThreadPoolExecutor()
    for executor in (first, second):
        loop_binding = LoopBinding(asyncio.get_running_loop(), executor)
        call = isolated_call(loop_binding, far.add, (1,), {}, isolation)
        call.pool.push(call)
        assert await call == 2
    await asyncio.to_thread(first.shutdown)
    assert len(_all_isolates()) == 1
    await asyncio.to_thread(second.shutdown)
    assert not _all_isolates()


def _all_isolates() -> list[object]:
    return [isolate for each in isolate_pool._isolate_pools for isolate in each.isolates()]


async def test_a_call_that_was_withdrawn_starts_no_isolate(runtime: Runtime, isolation: Isolation) -> None:
    call = push(far.add, 1, isolation=isolation)
    call.abandon_on_cancel = True
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()


async def test_closing_the_runtime_waits_for_isolated_calls(
    runtime: Runtime, far_gate: FarGate, isolation: Isolation
) -> None:
    held = far_gate.push("done", isolation=isolation)
    await far_gate.entered()
    assert await closes_after(runtime, held, far_gate) == "done"
    assert not _all_isolates()


async def test_closing_a_runtime_without_threads_does_not_wait_for_its_isolates_on_the_loop() -> None:
    """blockbuster raises if it does."""
    async with Runtime(idle_timeout=0.01, min_workers=0) as runtime:
        assert await run_isolated(far.add, 1) == 2
        await eventually(lambda: runtime.statistics().workers == 0)
    await eventually(lambda: isolate_pool.processes.isolates() == ())


# ---------------------------------------------------------------------- sub-interpreters alone

needs_interpreters = pytest.mark.skipif(not AVAILABLE, reason="sub-interpreters need Python 3.14")


@needs_interpreters
@pytest.mark.usefixtures("runtime")
async def test_a_function_whose_extensions_refuse_sub_interpreters_goes_to_a_process() -> None:
    counts = [await run_isolated(far.use_numpy, isolation="auto") for _ in range(2)]
    assert all(pid != os.getpid() for pid, _ in counts)
    assert refer(far.use_numpy).place in remote_invocation._refused
    remote_invocation._refused.clear()


@needs_interpreters
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("fn", [far.start_daemon, far.fork])
async def test_a_function_that_starts_daemon_threads_or_forks_goes_to_a_process(
    fn: Callable[[], int],
) -> None:
    assert await run_isolated(fn, isolation="auto") != os.getpid()
    remote_invocation._refused.clear()


@needs_interpreters
@pytest.mark.usefixtures("runtime")
async def test_a_function_that_is_refused_runs_twice_at_most(tmp_path: Path) -> None:
    assert await run_isolated(far.add, 1, isolation="interpreter") == 2
    assert await run_isolated(far.refuse_late, str(tmp_path / "runs"), isolation="interpreter") != os.getpid()
    assert (tmp_path / "runs").read_text() == "xx"
    assert len(isolate_pool.interpreters.isolates()) == 1  # type: ignore[union-attr]  # there are some
    remote_invocation._refused.clear()


@needs_interpreters
async def test_a_call_left_behind_in_an_interpreter_goes_on_and_another_interpreter_takes_over(
    runtime: Runtime, far_gate: FarGate
) -> None:
    held = far_gate.push(isolation="interpreter")
    await far_gate.entered()
    before = set(_all_isolates())
    held.expire(0.5)
    with pytest.raises(TimeoutError):
        await held
    await eventually(lambda: not before & set(_all_isolates()))
    assert await run_isolated(far.add, 1, isolation="interpreter") == 2
    await far_gate.release()
    (left,) = before
    assert isinstance(left, SubInterpreter)
    await asyncio.to_thread(left._thread.join, DEADLINE)
    assert not left._thread.is_alive()


@needs_interpreters
def test_where_memory_is_short_a_call_keeps_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridrt.isolates import subinterpreter

    isolate = SubInterpreter()
    monkeypatch.setattr(subinterpreter.shared, "memory", Memory(limit=1 << 40, given=1 << 40, share=1.0))
    isolate.kill()
    assert isolate.run(pack((tuple(refer(far.add)), (1,), {}))).value == 2
    isolate.ask_to_leave()
    isolate.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_is_forked_while_an_isolate_starts_keeps_no_end_of_its_wire() -> None:
    """Else the end of the isolate would not be seen: the child could still write."""
    children: list[int] = []

    class Starting(Isolate):
        def _start(self, there: socket.socket) -> None:
            if (child := os.fork()) == 0:
                os._exit(0 if {end.fileno() for end in self._ends} == {-1} else 1)
            children.append(child)
            there.close()

        def kill(self) -> None: ...

        def close(self) -> None:
            self.wire.close()

    lending = IsolatePool(Starting, "starting", most=2)
    isolate = lending.lease()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]
    assert isolate.wire._socket.fileno() >= 0
    assert isolate._ends == ()
    lending.discard(isolate)
