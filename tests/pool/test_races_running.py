"""Races of running calls: hand-off, looks from outside, batches taken back, help, gates, books."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt.executor.future import ThreadCall
from hybridrt.executor.report import pool_statistics
from hybridrt.observe.profiles import Profiles
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.permits import LONG, NONE
from hybridrt.pool.rebalance import exchange_permit, reclaim_batch_locked
from hybridrt.pool.state import Pool
from hybridrt.pool.worker import current_worker
from hybridrt.values import Kind

from .racing import Beside, check, end, known, open_pool, submit
from .support import DEADLINE, make_pool, named

pytestmark = pytest.mark.race


# ---------------------------------------------------------------------- permits


def test_a_hand_off_and_the_end_of_a_call_give_the_permit_back_once() -> None:
    with open_pool() as pool:
        fn = named("long")
        known(pool, fn, Kind.LONG)
        calls = [submit(pool, fn, number) for number in range(6)]

        def hand_over() -> None:
            for _ in range(6):
                for worker in tuple(pool.roster.workers):
                    exchange_permit(worker, NONE)
                    exchange_permit(worker, LONG)

        with Beside(hand_over):
            for number, call in enumerate(calls):
                assert call.result(DEADLINE) == (number,)


def test_a_step_of_the_governor_beside_calls_that_come_and_go_loses_nothing() -> None:
    with open_pool() as pool:
        kinds = [named("long"), named("short"), named("waiting"), named("unknown")]
        for fn, kind in zip(kinds, (Kind.LONG, Kind.SHORT, Kind.WAITING, Kind.UNKNOWN), strict=True):
            known(pool, fn, kind)
        governor = pool.budget.governor

        def look() -> None:
            for number in range(10):
                # A time far ahead: every call is old enough to be looked at, every window over.
                now = pool.budget.clock.wall_ns() + number * 1_000_000_000
                governor.step(now, 0, prompt=number % 2 == 0)

        calls = [submit(pool, fn, number) for number in range(5) for fn in kinds]
        with Beside(look):
            calls += [submit(pool, fn, number) for number in range(5) for fn in kinds]
        for call in calls:
            call.result(DEADLINE)


def test_a_batch_taken_back_while_its_worker_runs_it_runs_each_call_once() -> None:
    ran: list[int] = []
    go = threading.Event()
    with open_pool() as pool:
        known(pool, ran.append, Kind.SHORT, batch=8)
        known(pool, go.wait, Kind.SHORT)
        blocker = submit(pool, go.wait, DEADLINE)
        calls = [submit(pool, ran.append, number) for number in range(16)]

        def take_back() -> None:
            for _ in range(20):
                with pool.lock:
                    to_start = [one for worker in pool.roster.workers for one in reclaim_batch_locked(worker)]
                pool.start(to_start)

        with Beside(take_back):
            go.set()
        blocker.result(DEADLINE)
        check(calls, ran)


def test_the_results_of_a_batch_released_from_outside_arrive_once_each() -> None:
    ran: list[int] = []
    go = threading.Event()
    with open_pool() as pool:
        known(pool, ran.append, Kind.SHORT, batch=8)
        known(pool, go.wait, Kind.SHORT)
        blocker = submit(pool, go.wait, DEADLINE)
        calls = [submit(pool, ran.append, number) for number in range(16)]

        def release() -> None:
            for _ in range(20):
                for worker in list(pool.roster.workers):
                    worker.release()

        with Beside(release):
            go.set()
        blocker.result(DEADLINE)
        check(calls, ran)


def test_two_pools_that_compete_for_permits_both_get_through() -> None:
    with open_pool() as pool:
        other = make_pool(pool.budget)
        fn = named("long")
        for one in (pool, other):
            known(one, fn, Kind.LONG)
        calls: list[ThreadCall] = []
        with Beside(lambda: calls.extend([submit(other, fn, number) for number in range(8)])):
            mine = [submit(pool, fn, number) for number in range(8)]
        for call in (*mine, *calls):
            call.result(DEADLINE)
        end(other)


# ---------------------------------------------------------------------- helping


def test_a_call_that_is_waited_for_and_claimed_runs_once() -> None:
    ran: list[int] = []
    with open_pool(lanes=False, max_workers=2) as pool:

        def waits(number: int) -> int:
            inner = submit(pool, ran.append, number)
            inner.result()
            return number

        calls = [submit(pool, waits, number) for number in range(6)]
        assert [call.result(DEADLINE) for call in calls] == list(range(6))
    assert sorted(ran) == list(range(6))


def test_waits_in_a_batch_for_calls_of_the_same_batch_get_through() -> None:
    go, filled = threading.Event(), threading.Event()
    with open_pool() as pool:
        futures: list[ThreadCall] = []

        def waits_for_the_next(number: int) -> int:
            assert current_worker() is not None
            assert filled.wait(DEADLINE)  # the governor may have seen that the blocker waits
            return number if number == 5 else futures[number + 1].result()

        known(pool, waits_for_the_next, Kind.SHORT, batch=6)
        known(pool, go.wait, Kind.SHORT)
        blocker = submit(pool, go.wait, DEADLINE)
        futures += [submit(pool, waits_for_the_next, number) for number in range(6)]
        filled.set()
        go.set()
        blocker.result(DEADLINE)
        assert [call.result(DEADLINE) for call in futures] == [5] * 6


# ---------------------------------------------------------------------- gates


def test_calls_behind_one_gate_never_overlap_whatever_is_cancelled() -> None:
    inside: list[int] = []
    worst: list[int] = []
    limiter = Limiter(1, "limiter")
    with open_pool(lanes=False, max_workers=4) as pool:
        other = make_pool(pool.budget, lanes=False, max_workers=4)

        def passes(number: int) -> None:
            inside.append(number)
            worst.append(len(inside))
            inside.remove(number)

        calls: list[ThreadCall] = []

        def submit_some(one: Pool, first: int) -> None:
            for number in range(first, first + 8):
                call = submit(one, passes, number, limiters=(limiter,))
                calls.append(call)
                if number % 3 == 0:
                    call.cancel()

        with Beside(lambda: submit_some(other, 100)):
            submit_some(pool, 0)
        for call in calls:
            if not call.cancelled():
                call.result(DEADLINE)
        end(other)
    assert set(worst) <= {1}
    assert (limiter.active, len(limiter.waiting)) == (0, 0)


# ---------------------------------------------------------------------- books


def test_functions_beyond_the_bound_are_found_by_many_threads_at_once() -> None:
    profiles = Profiles(bound=4)
    mine, theirs = [named(f"mine_{n}") for n in range(12)], [named(f"theirs_{n}") for n in range(12)]

    def find(fns: list[Callable[..., Any]]) -> None:
        for fn in fns:
            profiles.of(fn)

    with Beside(lambda: find(theirs)):
        find(mine)
        profiles.copy_locked()
    assert len(profiles._by_key) <= 4


def test_statistics_can_be_read_while_calls_begin_and_end() -> None:
    with open_pool(lanes=False, max_workers=2) as pool:

        def look() -> None:
            for _ in range(10):
                statistics = pool_statistics(pool, "demand")
                assert statistics.completed <= statistics.submitted

        with Beside(look):
            calls = [submit(pool, named("one"), number) for number in range(20)]
        for call in calls:
            call.result(DEADLINE)
