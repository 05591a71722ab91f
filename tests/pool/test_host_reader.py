"""The host is read now and then: without the lock, and beside the governor, which goes on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest

from hybridrt.executor.budget import GovernedBudget
from hybridrt.governor.host import HostReader
from hybridrt.measure.host import Memory
from hybridrt.pool import state as state_module
from hybridrt.values import Kind

from .support import DEADLINE, MS, Stage, until

HALF = Memory(limit=1 << 30, given=1 << 30, share=0.5)


def test_the_host_is_looked_at_without_the_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading files gives the GIL away: workers and loop would wait until the governor has it again."""
    lock, held = stage.budget.lock, []

    def read(*_: object) -> Memory:
        held.append(lock.locked())
        return HALF

    monkeypatch.setattr(state_module, "read_memory", read)
    stage.step(2001 * MS, prompt=True)
    assert held == [False]
    assert stage.budget.memory.share == 0.5


@pytest.fixture
def host_cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cores that the host gives: the last of them now."""
    cores = [2]
    monkeypatch.setattr(state_module, "usable_cores", lambda: cores[-1])
    return cores


@pytest.mark.parametrize("gil", [True, False], ids=["a GIL", "no GIL"])
def test_a_quota_that_changes_counts_from_the_next_look_on(host_cores: list[int], gil: bool) -> None:
    stage = Stage(gil=gil)
    stage.budget._counts_cores = True
    stage.step(prompt=True)
    stage.clock.advance(2.0)
    free = stage.learn(Kind.FREE)
    calls = stage.push_many(6, free)
    stage.compute(*stage.running())
    assert len(stage.running()) == 2
    host_cores.append(4)
    stage.step(MS, prompt=True)
    stage.compute(*stage.running())
    assert len(stage.running()) == 4
    assert stage.pool.limits.cores == stage.budget.cores == 4
    assert stage.pool.limits.capacity == (1 if gil else 4)
    host_cores.append(1)
    stage.budget.governor.look_soon_locked()
    stage.step(MS, prompt=True)
    for call in calls[:4]:
        stage.end(call)
    assert len(stage.running()) == 1


def test_where_the_gil_is_wanted_all_the_time_the_host_is_looked_at_every_ten_seconds(
    host_cores: list[int],
) -> None:
    stage = Stage()
    stage.budget._counts_cores = True
    stage.step(prompt=True)
    host_cores.append(3)
    stage.step(9.9, prompt=False)
    assert stage.budget.cores == 2
    stage.step(0.2, prompt=False)
    assert stage.budget.cores == 3


def test_cores_that_were_given_by_the_program_stay(host_cores: list[int]) -> None:
    stage = Stage(cores=5)
    host_cores.append(3)
    stage.step(2001 * MS, prompt=True)
    assert stage.budget.cores == 5


def test_the_least_budget_of_all_open_pools_is_asked_for_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int | None] = []

    def read(memory_max: int | None = None, children: Iterable[int] = ()) -> Memory:
        asked.append(memory_max)
        assert list(children) == [7]
        return HALF

    stage = Stage()
    stage.step(3 * MS, prompt=True)
    monkeypatch.setattr(state_module, "read_memory", read)
    stage.budget.children.append(lambda: [7])
    pools = [stage.add_pool(memory_max=size << 20) for size in (100, 50)]
    stage.step(3 * MS, prompt=False)
    assert asked == [50 << 20]
    pools[1].refusal = RuntimeError
    stage.step(2001 * MS, prompt=True)
    assert asked == [50 << 20, 100 << 20]


# ---------------------------------------------------------------------- beside the governor


def reading_later(stage: Stage) -> list[Callable[[], None]]:
    """Have the stage read when the test says so; return the readings that have begun."""
    begun: list[Callable[[], None]] = []
    stage.budget.governor.host = HostReader(stage.budget, run=begun.append)
    return begun


def test_a_reading_that_takes_long_keeps_no_call_from_its_start(host_cores: list[int]) -> None:
    """Beside eight threads that compute it took 0.6 s, and a call that was due waited for it."""
    stage = Stage()
    stage.budget._counts_cores = True
    begun = reading_later(stage)
    endless, due = stage.push_many(2, stage.learn(Kind.LONG))
    assert stage.running() == [endless]
    host_cores.append(4)
    stage.step(prompt=True)
    for _ in range(20):
        stage.compute(endless)
        stage.step(30 * MS)
    assert stage.running() == [endless, due]
    assert stage.pool.tally.overdrafts == 1
    assert stage.budget.cores == 2
    begun[0]()
    stage.step(MS)
    assert stage.budget.cores == 4


def test_a_second_reading_begins_when_the_first_has_ended(host_cores: list[int]) -> None:
    stage = Stage()
    begun = reading_later(stage)
    for _ in range(3):
        stage.step(2.1, prompt=True)
        stage.budget.governor.look_soon_locked()
    assert len(begun) == 1
    begun[0]()
    stage.step(MS, prompt=True)  # it was asked for while the first was under way
    assert len(begun) == 2


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_without_a_thread_the_next_look_tries_again(error: Exception, host_cores: list[int]) -> None:
    stage, refused = Stage(), [True]
    stage.budget._counts_cores = True

    def run(read: Callable[[], None]) -> None:
        if refused.pop():
            raise error
        read()

    stage.budget.governor.host = HostReader(stage.budget, run=run)
    host_cores.append(4)
    stage.step(MS, prompt=True)
    refused.append(False)
    stage.step(2.1, prompt=True)
    assert stage.budget.cores == 4
    assert stage.budget.governor.error is None


def test_a_reading_that_lacks_memory_ends_and_the_next_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, lacks = Stage(), [True]

    def read(*_: object) -> Memory:
        if lacks.pop():
            raise MemoryError
        return HALF

    monkeypatch.setattr(state_module, "read_memory", read)
    before = stage.budget.memory
    stage.step(MS, prompt=True)
    assert stage.budget.memory is before
    lacks.append(False)
    stage.step(2.1, prompt=True)
    assert stage.budget.memory is HALF


def test_a_thread_of_its_own_reads_and_stop_waits_for_its_end(
    private: GovernedBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, readers = threading.Event(), list[threading.Thread]()

    def read(*_: object) -> Memory:
        readers.append(threading.current_thread())
        assert gate.wait(DEADLINE)
        return HALF

    monkeypatch.setattr(state_module, "read_memory", read)
    reader = HostReader(private)
    reader.step(private.clock.wall_ns(), prompt=True)
    until(lambda: bool(readers), "the reading has begun")
    assert readers[0].daemon
    assert readers[0] is not threading.current_thread()
    reader.stop(0.001)
    assert readers[0].is_alive()
    gate.set()
    reader.stop()
    assert not readers[0].is_alive()
    assert private.memory is HALF
