"""Gates whose limit changes while calls are inside and others wait."""

from __future__ import annotations

import pytest

from hybridrt.governor.governor import start
from hybridrt.pool.limiters import WatchedLimiter
from hybridrt.pool.scheduler import resize_limiter_locked
from hybridrt.values import Kind

from .racing import Beside, end, known, open_pool, submit
from .support import DEADLINE, Stage, named


def test_a_gate_that_widens_lets_in_who_waited_in_their_order() -> None:
    stage, gate = Stage(), WatchedLimiter(1, "gate", most=1)
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, number, limiters=(gate,)) for number in range(4)]
    assert stage.running() == calls[:1]
    start(resize_limiter_locked(gate, 3, 3))
    assert stage.running() == calls[:3]
    stage.end(calls[1])
    assert stage.running() == [calls[0], calls[2], calls[3]]


def test_a_gate_that_narrows_lets_the_next_in_when_enough_have_left() -> None:
    stage, gate = Stage(), WatchedLimiter(3, "gate", most=3)
    fn = stage.learn(Kind.WAITING)
    calls = [stage.push(fn, number, limiters=(gate,)) for number in range(5)]
    resize_limiter_locked(gate, 1, 1)
    for call in calls[:2]:
        stage.end(call)
    assert stage.running() == [calls[2]]
    stage.end(calls[2])
    assert stage.running() == [calls[3]]
    assert gate.active == 1


@pytest.mark.race
def test_no_call_is_forgotten_while_the_gate_changes_its_limit() -> None:
    gate = WatchedLimiter(1, "gate", most=1)

    def resize() -> None:
        for limit in (3, 1, 2, 5, 1):
            with pool.lock:
                to_start = resize_limiter_locked(gate, limit, limit)
            start(to_start)

    with open_pool() as pool:
        fn = named("work")
        known(pool, fn, Kind.WAITING)
        with Beside(resize):
            calls = [submit(pool, fn, number, limiters=(gate,)) for number in range(12)]
            for call in calls:
                call.result(DEADLINE)
        end(pool)
    assert gate.active == 0
