"""Races at gates that calls of two pools pass without a detour through the queue."""

from __future__ import annotations

import threading

import pytest

from hybridrt.executor.future import ThreadCall
from hybridrt.pool.limiters import Limiter, lane_limiter
from hybridrt.pool.withdraw import abandon
from hybridrt.values import Kind

from .racing import Beside, check, end, known, open_pool, submit
from .support import DEADLINE, make_pool, named

pytestmark = pytest.mark.race


@pytest.mark.parametrize("kind", [Kind.WAITING, Kind.SHORT])
def test_calls_of_two_pools_never_overlap_in_a_lane_and_none_is_forgotten(kind: Kind) -> None:
    inside, ran = threading.Lock(), list[int]()
    limiter = Limiter(1, "lane")

    def enter(number: int) -> None:
        assert inside.acquire(blocking=False), "expected the lane to be empty"
        ran.append(number)
        inside.release()

    with open_pool() as pool:
        other = make_pool(pool.budget)
        for one in (pool, other):
            known(one, enter, kind)
            submit(one, named("warm")).result(DEADLINE)  # a parked worker
        calls = list[ThreadCall]()
        with Beside(
            lambda: [
                submit(other, enter, number, limiters=(limiter,)).result(DEADLINE) for number in range(4)
            ]
        ):
            for number in range(4, 8):
                calls.append(submit(pool, enter, number, limiters=(limiter,)))
        for call in calls:
            call.result(DEADLINE)
        end(other)
    assert sorted(ran) == list(range(8))
    assert (limiter.active, len(limiter.waiting)) == (0, 0)


def test_threads_that_ask_for_a_lane_at_once_get_one_gate() -> None:
    both_looked = threading.Barrier(2)

    class Lane:
        """Its name is asked for by who has looked and found no gate."""

        def __repr__(self) -> str:
            both_looked.wait(DEADLINE)
            return "lane"

    lanes = [Lane() for _ in range(8)]
    theirs = list[Limiter]()
    with Beside(lambda: theirs.extend(map(lane_limiter, lanes))):
        mine = list(map(lane_limiter, lanes))
    assert mine == theirs


def test_a_cancel_of_a_call_at_an_open_gate_gives_its_place_back_once() -> None:
    ran, limiter = list[int](), Limiter(1, "lane")
    with open_pool() as pool:
        known(pool, ran.append, Kind.WAITING)
        submit(pool, named("warm")).result(DEADLINE)
        calls = list[ThreadCall]()
        for number in range(4):
            call = submit(pool, ran.append, number, limiters=(limiter,))
            calls.append(call)
            with Beside(call.cancel):
                call.cancel()
        check(calls, ran)
    assert (limiter.active, len(limiter.waiting)) == (0, 0)


def test_a_call_abandoned_while_it_leaves_its_gate_leaves_it_once() -> None:
    limiter = Limiter(1, "lane")
    with open_pool() as pool:
        fn = named("wait")
        known(pool, fn, Kind.WAITING)
        submit(pool, named("warm")).result(DEADLINE)
        for _ in range(4):
            call = submit(pool, fn, limiters=(limiter,))
            abandon(call)
            call.result(DEADLINE)
    assert (limiter.active, len(limiter.waiting)) == (0, 0)
