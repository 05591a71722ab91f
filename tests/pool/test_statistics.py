"""What `statistics()` says after a scripted scenario, and that it can be written down."""

from __future__ import annotations

import json
import time
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Kind, QueueFullError, Reason, Statistics
from hybridrt.values import Decision, FunctionStatistics, RunningCall

from .conftest import Make
from .support import DEADLINE, Meeting, compute, until


def fails() -> None:
    raise ValueError("on purpose")


def short_name(name: str) -> str:
    return name.rpartition(":")[2].rpartition(".")[2]


def settled(executor: AdaptiveThreadPoolExecutor) -> Statistics:
    """Return the statistics once no call runs any more: a future is done before its worker is free."""
    until(lambda: not executor.statistics().running, "no call runs")
    return executor.statistics()


def test_a_new_executor_has_nothing_to_report(make: Make) -> None:
    statistics = make(7).statistics()
    assert statistics.policy == "demand"
    assert (statistics.workers, statistics.idle, statistics.max_workers) == (0, 0, 7)
    assert (statistics.submitted, statistics.completed, statistics.failed) == (0, 0, 0)
    assert set(statistics.queued.values()) == {0}
    assert (statistics.running, statistics.functions) == ((), ())
    assert (statistics.beta, statistics.loop_delay, statistics.governor_error) == (None, None, None)
    assert statistics.background == 0
    assert [decision.reason for decision in statistics.decisions] == [Reason.START]


def test_every_call_is_counted_once(make: Make, meeting: Meeting) -> None:
    executor = make(1, queue_max=4)
    running = executor.submit(meeting)
    meeting.wait_for(1)
    ends = [executor.submit(len, "ab"), executor.submit(fails), executor.submit(len, "abc")]
    withdrawn = executor.submit(len, "abcd")
    with pytest.raises(QueueFullError):
        executor.submit(len, "too many")
    assert withdrawn.cancel()
    statistics = executor.statistics()
    assert statistics.queued["queue"] == 3
    assert len(statistics.running) == 1
    assert (statistics.workers, statistics.idle) == (1, 0)
    meeting.end()
    for future in (running, *ends):
        future.exception(DEADLINE)
    statistics = settled(executor)
    assert statistics.submitted == 5
    assert statistics.completed == 3
    assert statistics.failed == 1
    assert statistics.cancelled == 1
    assert statistics.rejected == 1
    assert (statistics.abandoned, statistics.abandoned_running, statistics.overdrafts) == (0, 0, 0)
    assert statistics.queued["queue"] == 0
    rows = {short_name(row.name): row for row in statistics.functions}
    assert (rows["len"].calls, rows["len"].failed) == (2, 0)
    assert (rows["fails"].calls, rows["fails"].failed) == (1, 1)


def test_a_running_call_shows_its_name_thread_age_and_cpu(make: Make, meeting: Meeting) -> None:
    executor = make(thread_name_prefix="mine")

    def computes_then_waits() -> None:
        compute(0.02)
        meeting()

    future = executor.submit(computes_then_waits)
    meeting.wait_for(1)
    (call,) = executor.statistics().running
    assert short_name(call.name) == "computes_then_waits"
    assert call.thread == "mine_0"
    assert call.cpu is None or call.cpu >= 0.02
    assert call.age >= (call.cpu or 0.02) * 0.9
    assert not call.abandoned
    (later,) = executor.statistics().running
    assert later.age > call.age
    meeting.end()
    future.result(DEADLINE)


def test_running_calls_come_oldest_first_and_functions_by_their_cpu(make: Make, meeting: Meeting) -> None:
    executor = make(4, policy="paper")
    executor.submit(compute, 0.02).result(DEADLINE)
    executor.submit(len, "ab").result(DEADLINE)
    futures = []
    for number in range(3):
        futures.append(executor.submit(meeting, number))
        meeting.wait_for(number + 1)
    statistics = executor.statistics()
    ages = [call.age for call in statistics.running]
    assert ages == sorted(ages, reverse=True)
    assert len(ages) == 3
    cpus = [row.cpu for row in statistics.functions]
    assert cpus == sorted(cpus, reverse=True)
    assert short_name(statistics.functions[0].name) == "compute"
    meeting.end()
    for future in futures:
        future.result(DEADLINE)


def test_times_and_beta_add_up(make: Make) -> None:
    executor = make(1)

    def waits() -> None:
        time.sleep(0.02)

    for _ in range(3):
        executor.submit(waits).result(DEADLINE)
        executor.submit(compute, 0.01).result(DEADLINE)
    statistics = settled(executor)
    rows = {short_name(row.name): row for row in statistics.functions}
    assert rows["waits"].wall >= 0.06
    assert rows["compute"].cpu >= 0.03
    assert rows["waits"].beta is not None
    assert rows["waits"].beta > 0.5
    assert statistics.beta is not None
    wall = sum(row.wall for row in statistics.functions)
    cpu = sum(row.cpu for row in statistics.functions)
    assert statistics.beta == pytest.approx(1.0 - cpu / wall)
    assert all(row.queue_wait >= 0.0 for row in statistics.functions)


def test_the_queue_wait_of_a_call_is_what_it_waited_behind_others(make: Make, meeting: Meeting) -> None:
    executor = make(1)
    first = executor.submit(meeting)
    meeting.wait_for(1)
    second = executor.submit(len, "ab")
    begun = time.perf_counter()
    time.sleep(0.02)
    waited = time.perf_counter() - begun
    meeting.end()
    for future in (first, second):
        future.result(DEADLINE)
    rows = {short_name(row.name): row for row in settled(executor).functions}
    assert rows["len"].queue_wait >= waited


def test_queued_calls_are_reported_by_lane(make: Make, meeting: Meeting) -> None:
    executor = make()

    def is_long() -> bool:
        executor.submit(compute, 0.025).result(DEADLINE)  # a single one may have been kept from its core
        return settled(executor).functions[0].kind is Kind.LONG

    until(is_long, "calls of 25 ms are long")
    profile = executor._pool.profiles.of(meeting)
    profile.unclassified = 1 << 20  # nobody of this function may start
    futures = [executor.submit(meeting) for _ in range(3)]
    queued = executor.statistics().queued
    assert queued["unknown"] == 3
    assert set(queued) == {"waiting", "short", "long", "free", "unknown", "resolve", "gated", "backlog"}
    for future in futures:
        assert future.cancel()


def test_everything_can_be_written_as_json(make: Make, meeting: Meeting) -> None:
    executor = make()
    executor.submit(compute, 0.001).result(DEADLINE)
    executor.submit(fails).exception(DEADLINE)
    future = executor.submit(meeting)
    meeting.wait_for(1)
    statistics = executor.statistics()
    written: dict[str, Any] = json.loads(json.dumps(statistics.to_dict()))
    assert set(written) == {field.name for field in fields(Statistics)}
    assert set(written["running"][0]) == {field.name for field in fields(RunningCall)}
    assert set(written["functions"][0]) == {field.name for field in fields(FunctionStatistics)}
    assert set(written["decisions"][0]) == {field.name for field in fields(Decision)}
    assert written["decisions"][0]["reason"] == "start"
    assert {row["kind"] for row in written["functions"]} <= {str(kind) for kind in Kind}
    assert written["submitted"] == 3
    meeting.end()
    future.result(DEADLINE)


def test_functions_of_one_name_have_a_row_each(make: Make) -> None:
    executor = make()
    double, square = (lambda number: 2 * number), (lambda number: number**2)
    for _ in range(3):
        executor.submit(square, 3).result(DEADLINE)
    executor.submit(double, 3).result(DEADLINE)
    rows = settled(executor).functions
    assert [row.calls for row in sorted(rows, key=lambda row: row.calls)] == [1, 3]
    assert len({row.name for row in rows}) == 1


def test_the_values_cannot_be_changed(make: Make) -> None:
    statistics = make().statistics()
    with pytest.raises(FrozenInstanceError):
        statistics.workers = 3  # type: ignore[misc]


def test_the_statistics_of_a_closed_executor_can_still_be_read(make: Make) -> None:
    executor = make()
    executor.submit(len, "ab").result(DEADLINE)
    executor.shutdown()
    statistics = executor.statistics()
    assert (statistics.completed, statistics.workers, statistics.running) == (1, 0, ())


@pytest.mark.parametrize("policy", ["demand", "paper"])
def test_a_batch_of_short_calls_is_counted_call_by_call(make: Make, policy: Any) -> None:
    executor = make(policy=policy)

    def short(number: int) -> int:
        if number % 10 == 0:
            raise ValueError(number)
        return number

    futures = [executor.submit(short, number) for number in range(2000)]
    for number, future in enumerate(futures):
        error = future.exception(DEADLINE)
        assert (error is None) == bool(number % 10)
    statistics = settled(executor)
    until(lambda: executor.statistics().completed == 1800, "the last batch is booked")
    (row,) = executor.statistics().functions
    assert (row.calls, row.failed) == (2000, 200)
    assert statistics.submitted == 2000
