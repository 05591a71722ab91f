"""Lanes and permits with real threads and the real governor.

Nothing here asserts a time: functions count who is inside, and meet at gates that only open when
all of them are there.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import zlib
from concurrent.futures import Future, wait
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Kind

from .conftest import Make
from .support import DEADLINE, Meeting, compute, until


class Counted:
    """Computes in pure Python and counts how many of its calls are inside at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self.inside = self.most_inside = self.ended = 0

    def __call__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        compute(self._seconds)
        with self._lock:
            self.inside -= 1
            self.ended += 1


class Endless:
    """Computes in pure Python until it is told to stop."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.stop = threading.Event()

    def __call__(self) -> None:
        self.started.set()
        deadline = time.monotonic() + DEADLINE
        while not self.stop.is_set() and time.monotonic() < deadline:
            pass


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(DEADLINE) for future in futures]


@pytest.mark.slow
def test_eight_computing_calls_settle_at_one_at_a_time(make: Make) -> None:
    executor, counted = make(), Counted(0.06)
    results([executor.submit(counted) for _ in range(8)])
    # A second one only as an overdraft, which a machine that is busy otherwise may bring about.
    assert counted.most_inside <= 1 + executor.statistics().overdrafts
    assert counted.ended == 8


@pytest.mark.slow
def test_fifty_waiting_calls_submitted_with_computing_ones_all_run_at_once(make: Make) -> None:
    executor, counted = make(), Counted(0.03)
    barrier = threading.Barrier(50)

    def waits() -> int:
        return barrier.wait(DEADLINE)

    computing = [executor.submit(counted) for _ in range(8)]
    waiting = [executor.submit(waits) for _ in range(50)]
    # The barrier opens for fifty only.
    assert sorted(results(waiting)) == list(range(50))
    results(computing)
    assert counted.most_inside <= 1 + executor.statistics().overdrafts


def test_a_short_call_beside_an_endless_one_ends_while_that_still_runs(make: Make) -> None:
    executor, endless = make(), Endless()
    long = executor.submit(endless)
    assert endless.started.wait(DEADLINE)
    try:
        assert executor.submit(compute, 0.001).result(DEADLINE) == 0.001
        assert [executor.submit(len, "ab").result(DEADLINE) for _ in range(20)] == [2] * 20
        assert not long.done()
    finally:
        endless.stop.set()
    long.result(DEADLINE)


@pytest.mark.slow
def test_several_endless_functions_nobody_knew_let_the_next_call_through(make: Make) -> None:
    executor, loops = make(), [Endless() for _ in range(2)]

    # A code object for each, or they would be one function.
    def one() -> None:
        loops[0]()

    def two() -> None:
        loops[1]()

    endless = [executor.submit(fn) for fn in (one, two)]
    try:
        assert executor.submit(len, "abc").result(DEADLINE) == 3
        assert not any(future.done() for future in endless)
    finally:
        for loop in loops:
            loop.stop.set()
    results(endless)


@pytest.mark.slow
def test_a_call_that_spins_on_the_result_of_a_queued_one_gets_it(make: Make) -> None:
    executor, answer = make(), threading.Event()

    def spins() -> bool:
        deadline = time.monotonic() + DEADLINE
        while not answer.is_set() and time.monotonic() < deadline:
            pass
        return answer.is_set()

    spinning = executor.submit(spins)
    executor.submit(answer.set)
    assert spinning.result(DEADLINE)


def test_unknown_waiting_calls_that_wait_for_one_another_all_start(make: Make, meeting: Meeting) -> None:
    executor = make()
    futures = [executor.submit(meeting, number) for number in range(20)]
    meeting.wait_for(20)
    meeting.end()
    assert results(futures) == list(range(20))


def test_computing_calls_that_begin_to_wait_for_one_another_all_start(make: Make, meeting: Meeting) -> None:
    """Each computes first and hands its permit over when it waits."""

    def computes_then_waits(number: int) -> Any:
        compute(0.004)
        return meeting(number)

    executor = make()
    futures = [executor.submit(computes_then_waits, number) for number in range(6)]
    meeting.wait_for(6)
    meeting.end()
    assert results(futures) == list(range(6))


@pytest.mark.parametrize("policy", ["demand", "paper"])
def test_a_batch_of_short_calls_whose_first_call_blocks_gives_the_rest_back(
    make: Make, meeting: Meeting, policy: Any
) -> None:
    executor = make(policy=policy)
    block = threading.Event()

    def usually_short(number: int) -> int:
        if number and block.is_set():
            meeting(number)
        return number

    results([executor.submit(usually_short, 0) for _ in range(400)])
    block.set()
    blocked = executor.submit(usually_short, 1)
    others = [executor.submit(usually_short, 0) for _ in range(300)]
    meeting.wait_for(1)
    assert results(others) == [0] * 300
    assert not blocked.done()
    meeting.end()
    assert blocked.result(DEADLINE) == 1


def test_a_call_of_a_batch_may_wait_for_one_that_ended_before_it_in_the_same_batch(make: Make) -> None:
    executor = make()
    before: list[Future[int]] = []

    def usually_short(number: int) -> int:
        return before[0].result(DEADLINE) if number and before else number

    results([executor.submit(usually_short, 0) for _ in range(400)])
    gate = threading.Event()
    blocker = executor.submit(gate.wait, DEADLINE)
    before.extend(executor.submit(usually_short, 0) for _ in range(8))
    after = [executor.submit(usually_short, 1) for _ in range(8)]
    gate.set()
    assert results([blocker, *before, *after]) == [True] + [0] * 16


def test_a_call_of_a_batch_that_takes_long_holds_no_result_back(make: Make) -> None:
    executor = make()
    block, seen = threading.Event(), threading.Event()

    def usually_short(number: int) -> int:
        if number and block.is_set():
            assert seen.wait(DEADLINE)
        return number

    results([executor.submit(usually_short, 0) for _ in range(400)])
    gate = threading.Event()
    blocker = executor.submit(gate.wait, DEADLINE)
    block.set()
    first, long = executor.submit(usually_short, 0), executor.submit(usually_short, 1)
    gate.set()
    assert first.result(DEADLINE) == 0
    seen.set()
    assert results([blocker, long]) == [True, 1]


@pytest.mark.slow
def test_two_executors_share_one_budget_and_both_get_turns(make: Make) -> None:
    counted = Counted(0.03)
    executors = [make(), make()]
    first = [executors[0].submit(counted) for _ in range(5)]
    second = [executors[1].submit(counted) for _ in range(5)]
    order: list[int] = []
    for number, futures in enumerate((first, second)):
        for future in futures:
            future.add_done_callback(lambda _, number=number: order.append(number))
    results(first + second)
    overdrafts = sum(executor.statistics().overdrafts for executor in executors)
    # The first call of an executor that knows nothing yet may be short, and starts beside a long one.
    assert counted.most_inside <= 2 + overdrafts
    until_the_first_was_done = order[: 1 + max(place for place, number in enumerate(order) if number == 0)]
    assert 1 in until_the_first_was_done


@pytest.mark.slow
@pytest.mark.parametrize("work", ["hashlib", "zlib"])
def test_calls_that_leave_the_gil_free_are_found_and_may_use_the_cores(make: Make, work: str) -> None:
    executor = make()
    data = bytes(range(256)) * 4096 * 8

    def hashes() -> None:
        for _ in range(6):
            hashlib.sha256(data).digest()

    def packs() -> None:
        zlib.compress(data[: 2 << 20], 9)
        zlib.compress(data[: 2 << 20], 9)

    fn = hashes if work == "hashlib" else packs
    deadline = time.monotonic() + DEADLINE
    kinds = {Kind.UNKNOWN}
    while Kind.FREE not in kinds and time.monotonic() < deadline:
        wait([executor.submit(fn) for _ in range(4)])
        kinds = {row.kind for row in executor.statistics().functions}
    assert Kind.FREE in kinds


def test_with_one_worker_order_is_kept_and_lanes_are_not_asked(make: Make, meeting: Meeting) -> None:
    executor = make(1)
    order: list[int] = []
    held = executor.submit(meeting)
    futures = [executor.submit(order.append, number) for number in range(50)]
    meeting.wait_for(1)
    meeting.end()
    results([held, *futures])
    assert order == list(range(50))


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_an_idle_timeout_may_be_as_long_as_one_likes(make: Make, timeout: float) -> None:
    executor = make(min_workers=0, idle_timeout=timeout)
    for number in range(2):
        assert executor.submit(abs, -number).result(DEADLINE) == number
        until(lambda: executor._pool.roster.idle, "the worker parks")


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_unmeasured_an_executor_runs_calls_in_their_order_without_lanes(
    make: Make, monkeypatch: pytest.MonkeyPatch, meeting: Meeting, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("HYBRIDRT_MEASURE", "0")
    executor: AdaptiveThreadPoolExecutor = make(8, measure=by == "environment")
    futures = [executor.submit(meeting, number) for number in range(8)]
    meeting.wait_for(8)
    meeting.end()
    assert results(futures) == list(range(8))
    statistics = executor.statistics()
    assert (statistics.completed, statistics.beta, statistics.functions) == (8, None, ())


# ---------------------------------------------------------------------- nested waits


@pytest.mark.parametrize("workers", [1, 4])
def test_a_chain_of_waits_deeper_than_there_are_workers_gets_through(make: Make, workers: int) -> None:
    executor = make(workers)

    def descend(depth: int) -> int:
        return 0 if depth == 0 else 1 + executor.submit(descend, depth - 1).result()

    assert executor.submit(descend, 40).result(DEADLINE) == 40
    assert executor.statistics().completed == 41


@pytest.mark.parametrize("workers", [1, 4])
def test_a_tree_of_waits_gets_through(make: Make, workers: int) -> None:
    executor = make(workers)

    def count(depth: int) -> int:
        if depth == 0:
            return 1
        return sum(future.result() for future in [executor.submit(count, depth - 1) for _ in range(3)])

    assert executor.submit(count, 4).result(DEADLINE) == 81


@pytest.mark.parametrize("workers", [1, 4])
def test_maps_inside_maps_get_through(make: Make, workers: int) -> None:
    executor = make(workers)

    def row(number: int) -> int:
        return sum(executor.map(lambda column: number * column, range(10)))

    assert sum(executor.map(row, range(10))) == 45 * 45
    assert executor.submit(lambda: sum(executor.map(row, range(10)))).result(DEADLINE) == 45 * 45


def test_a_call_run_inside_another_is_not_booked_on_it_twice(make: Make) -> None:
    executor = make(1)

    def inner() -> float:
        return compute(0.02)

    def outer() -> float:
        return executor.submit(inner).result()

    executor.submit(outer).result(DEADLINE)
    rows = {row.name.rpartition(".")[2]: row for row in executor.statistics().functions}
    assert rows["inner"].cpu >= 0.02
    assert rows["outer"].cpu < 0.02
    assert rows["outer"].wall < rows["inner"].wall


def test_below_max_workers_as_completed_and_wait_inside_calls_get_through(make: Make) -> None:
    """They wait without telling for what, so they need a free thread; below `max_workers` there is one."""
    executor = make(8)

    def waits_for_others(number: int) -> int:
        done, _ = wait([executor.submit(pow, number, 2), executor.submit(pow, number, 3)])
        return sum(future.result() for future in done)

    assert results([executor.submit(waits_for_others, number) for number in range(4)]) == [0, 2, 12, 36]


def test_calls_that_come_one_by_one_are_seen_to_wait_and_compute_by_turns(make: Make) -> None:
    """So that a crowd that comes later has a permit for each phase: they start without one, known to wait."""
    executor = make()

    def waits_and_computes() -> None:
        time.sleep(0.01)
        compute(0.003)

    def seen() -> int:
        executor.submit(waits_and_computes).result(DEADLINE)
        return sum(site.waits for site in executor.statistics().phases.sites)

    until(lambda: seen() >= 100, "its waits are told from within")
