"""Admission: the law of its limit, the order of its places, and that none is lost."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from gateway.admission import FIRST, HIGH, LEAST, LOOKS, LOW, PERIOD, Admission, adapted
from gateway.errors import GatewayError

from .servers import asking, gateway, stall, status, until, upstream, well
from .test_service import post


@pytest.mark.parametrize(
    ("now", "delay", "waited", "then"),
    [
        (16, 1.25 * HIGH, True, 12),
        (16, 1.25 * HIGH, False, 12),
        (16, 100 * HIGH, True, 8),
        (16, LOW / 2, True, 19),
        (16, LOW / 2, False, 16),
        (16, (LOW + HIGH) / 2, True, 16),
        (LEAST, 1.0, True, LEAST),
        (100, 0.0, True, 100),
    ],
    ids=["late", "late and no queue", "very late", "in time", "nobody waits", "between", "lowest", "highest"],
)
def test_the_limit_follows_the_delay(now: int, delay: float, waited: bool, then: int) -> None:
    assert adapted(now, 100, [delay] * LOOKS, waited=waited) == then


def test_a_highest_limit_below_the_usual_lowest_one_is_kept() -> None:
    assert Admission(2).limit == 2
    assert adapted(2, 2, [1.0], waited=True) == 2


def test_one_late_look_does_not_shrink_it() -> None:
    delays = [0.0] * (LOOKS - 1) + [HIGH * (LOOKS - 1)]
    assert adapted(16, 100, delays, waited=False) == 16


async def test_places_are_given_in_the_order_of_asking() -> None:
    admission = Admission(1)
    holder = await admission.enter(10)
    order: list[int] = []

    async def ask(number: int) -> None:
        place = await admission.enter(10)
        order.append(number)
        admission.leave(place)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(ask(number))
        await until(lambda: admission.waiting == 20)
        admission.leave(holder)
    assert order == list(range(20))
    assert admission.running == 0


async def test_who_waits_too_long_is_told_so_and_leaves_the_queue() -> None:
    admission = Admission(1)
    await admission.enter(10)
    with pytest.raises(GatewayError) as caught:
        await admission.enter(0.001)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    assert (admission.running, admission.waiting) == (1, 0)


async def test_a_place_that_comes_together_with_the_cancelling_goes_to_the_next() -> None:
    admission = Admission(1)
    holder = await admission.enter(10)
    first, second = (asyncio.create_task(admission.enter(10)) for _ in range(2))
    await until(lambda: admission.waiting == 2)
    admission.leave(holder)  # gives the place to the first
    first.cancel()
    await second
    assert first.cancelled()
    assert (admission.running, admission.waiting) == (1, 0)


async def test_no_place_is_lost_when_many_are_cancelled_at_random() -> None:
    admission, chance = Admission(5), random.Random(4)

    async def ask() -> None:
        place = await admission.enter(10)
        try:
            await asyncio.sleep(0)
        finally:
            admission.leave(place)

    for _ in range(200):
        tasks = [asyncio.create_task(ask()) for _ in range(20)]
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        for task in chance.sample(tasks, 10):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.running, admission.waiting) == (0, 0)


async def test_while_the_loop_is_in_time_the_limit_grows_until_all_have_a_place() -> None:
    admission = Admission(1000)
    tasks = [asyncio.create_task(admission.enter(60)) for _ in range(10 * FIRST)]
    await asyncio.sleep(0)
    assert (admission.running, admission.waiting) == (FIRST, 9 * FIRST)
    while admission.waiting:  # the looks are made here: the loop of a test may be late
        assert admission._timer is not None
        admission._timer.cancel()
        admission._look(time.monotonic() + PERIOD)
    places = await asyncio.gather(*tasks)
    assert admission.running == 10 * FIRST
    for place in places:
        admission.leave(place)


@pytest.mark.parametrize("code", [200, 400, 500])
async def test_every_exchange_gives_its_place_back(code: int) -> None:
    async with upstream(well if code == 200 else status(code)) as one, gateway(one) as (served, url):
        for _ in range(2):
            await post(url, asking())
        await until(lambda: served._admission.running == 0)


async def test_a_request_beyond_the_limit_waits_and_then_learns_that_the_gateway_is_full() -> None:
    async with upstream(stall) as one:
        settings = {"limits": {"exchanges_max": 1}, "routing": {"queue_timeout": 0.05}}
        async with gateway(one, **settings) as (served, url):
            holder = asyncio.create_task(post(url, asking()))
            await one.came.wait()
            code, answer, headers = await post(url, asking())
            assert (code, answer["error"]["code"], headers["Retry-After"]) == (503, "overloaded", "1")
            assert len(one.asked) == 1
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
            await until(lambda: served._admission.running == 0 and served._bodies.held == 0)
