"""Several upstreams: retry before the first byte, queues with a deadline, breakers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from gateway.serving import bind

from .servers import (
    KEY,
    WORDS,
    Upstream,
    asking,
    authorized,
    break_inside,
    gateway,
    reset,
    stall,
    stall_inside,
    status,
    until,
    upstream,
    well,
)
from .test_service import CHAT, post

FAILING = {
    "reset": (reset, 502, {"upstream_failed"}),
    "500": (status(500), 502, {"upstream_error"}),
    "503": (status(503), 502, {"upstream_error"}),
    "redirect": (status(307, Location="/elsewhere"), 502, {"upstream_error"}),
    "401": (status(401), 502, {"upstream_refused"}),
    "429": (status(429, **{"Retry-After": "7"}), 429, {"upstream_rate_limit"}),
}


@pytest.mark.parametrize("name", FAILING)
async def test_another_upstream_answers_where_the_first_fails_before_its_first_byte(name: str) -> None:
    behave, _, _ = FAILING[name]
    async with upstream(behave) as bad, upstream(well) as good, gateway(bad, good) as (_, url):
        code, answer, _ = await post(url, asking())
    assert (code, answer["choices"][0]["message"]["content"]) == (200, "".join(WORDS))
    assert bad.asked
    assert len(good.asked) == 1


@pytest.mark.parametrize("name", FAILING)
async def test_where_there_is_no_other_the_client_is_told_what_happened(name: str) -> None:
    behave, expected, codes = FAILING[name]
    async with upstream(behave) as bad, gateway(bad) as (_, url):
        code, answer, headers = await post(url, asking())
    assert code == expected
    assert answer["error"]["code"] in codes
    assert KEY not in str(answer)
    if expected == 429:
        assert headers["Retry-After"] == "7"


async def test_an_absurd_wait_of_an_upstream_is_cut() -> None:
    async with upstream(status(429, **{"Retry-After": "9" * 400})) as busy, gateway(busy) as (_, url):
        code, _, headers = await post(url, asking())
    assert (code, headers["Retry-After"]) == (429, "86400")


async def test_an_upstream_that_nobody_serves_is_passed_over() -> None:
    gone = Upstream(well)
    with bind("127.0.0.1", 0, shared=False) as bound:  # and never listens
        gone.url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        async with upstream(well) as good, gateway(gone, good) as (_, url):
            assert (await post(url, asking()))[0] == 200


async def test_an_upstream_without_a_first_byte_in_time_is_passed_over() -> None:
    async with upstream(stall) as slow:
        async with gateway(slow, upstream={"first_byte_timeout": 0.05}) as (_, url):
            code, answer, _ = await post(url, asking())
    assert (code, answer["error"]["code"]) == (504, "upstream_timeout")


async def test_the_first_byte_may_take_longer_than_the_pieces_after_it() -> None:
    async with upstream(stall) as slow, gateway(slow, upstream={"stall_timeout": 0.05}) as (_, url):
        asked = asyncio.create_task(post(url, asking()))
        await asyncio.wait_for(slow.came.wait(), 20)
        await asyncio.sleep(0.15)
        slow.go.set()
        assert (await asked)[0] == 200


async def test_an_answer_that_stalls_is_broken_off() -> None:
    async with upstream(stall_inside) as slow, gateway(slow, upstream={"stall_timeout": 0.05}) as (_, url):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(url, asking(stream=True))


async def test_after_the_first_byte_nothing_is_retried_and_the_client_sees_that_the_answer_broke_off() -> (
    None
):
    async with upstream(break_inside) as bad, upstream(well) as good, gateway(bad, good) as (_, url):
        async with aiohttp.ClientSession() as session:
            async with session.post(url + CHAT, json=asking(stream=True), headers=authorized()) as answer:
                got = bytearray(await answer.content.readany())
                bad.go.set()
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await read_into(got, answer)
    assert WORDS[0].strip().encode() in got
    assert b"[DONE]" not in got
    assert not good.asked


async def read_into(got: bytearray, answer: aiohttp.ClientResponse) -> None:
    """Read to the end, and keep what came before an error."""
    while piece := await answer.content.readany():
        got += piece


async def test_the_least_busy_upstream_takes_the_next_request() -> None:
    async with upstream(stall) as one, upstream(stall) as two, gateway(one, two) as (_, url):
        first = asyncio.create_task(post(url, asking()))
        await asyncio.wait_for(one.came.wait(), 20)
        second = asyncio.create_task(post(url, asking()))
        await asyncio.wait_for(two.came.wait(), 20)
        one.go.set()
        two.go.set()
        assert [(await task)[0] for task in (first, second)] == [200, 200]


async def test_requests_beyond_the_places_wait_and_the_one_beyond_the_queue_is_refused() -> None:
    async with upstream(stall) as one:
        async with gateway(one, upstream={"concurrency": 1, "queue_max": 1}) as (served, url):
            (server,) = served._upstreams
            first = asyncio.create_task(post(url, asking()))
            await asyncio.wait_for(one.came.wait(), 20)
            second = asyncio.create_task(post(url, asking()))
            await until(lambda: server.waiting)
            code, answer, headers = await post(url, asking())
            assert (code, answer["error"]["code"], headers["Retry-After"]) == (503, "queue_full", "1")
            one.go.set()
            assert [(await task)[0] for task in (first, second)] == [200, 200]


async def test_a_place_that_does_not_come_free_in_time_is_a_refusal() -> None:
    async with upstream(stall) as one:
        options = {"upstream": {"concurrency": 1}, "routing": {"queue_timeout": 0.02}}
        async with gateway(one, **options) as (_, url):
            first = asyncio.create_task(post(url, asking()))
            await asyncio.wait_for(one.came.wait(), 20)
            code, answer, _ = await post(url, asking())
            assert (code, answer["error"]["code"]) == (503, "queue_timeout")
            one.go.set()
            assert (await first)[0] == 200


async def test_a_client_that_leaves_the_queue_leaves_no_place_taken() -> None:
    async with upstream(stall) as one:
        async with gateway(one, upstream={"concurrency": 1}) as (served, url):
            (server,) = served._upstreams
            first = asyncio.create_task(post(url, asking()))
            await asyncio.wait_for(one.came.wait(), 20)
            second = asyncio.create_task(post(url, asking()))
            await until(lambda: server.waiting)
            second.cancel()
            await until(lambda: not server.waiting)
            one.go.set()
            assert (await first)[0] == 200
            assert await served.idle(20)
            assert (server.running, server.waiting, server.load) == (0, 0, 0.0)


async def test_failures_in_a_row_open_the_breaker_and_a_trial_closes_it() -> None:
    """Time is the loop's: the breaker's is moved instead of waiting for it."""

    async def ask(count: int) -> list[int]:
        return [(await post(url, asking()))[0] for _ in range(count)]

    async with upstream(status(500)) as one:
        async with gateway(one, upstream={"failures_max": 2, "open_seconds": 1000.0}) as (served, url):
            (server,) = served._upstreams
            assert await ask(3) == [502, 502, 503]
            assert len(one.asked) == 2
            async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
                assert await answer.json() == {"status": "upstreams_down"}
            expire(server)
            assert await ask(2) == [502, 503]  # the trial failed
            assert len(one.asked) == 3
            expire(server)
            one.behave = well
            assert await ask(2) == [200, 200]


async def test_answers_that_break_off_open_the_breaker_which_a_whole_one_closes() -> None:
    async with upstream(break_inside) as one, aiohttp.ClientSession() as session:

        async def cut() -> None:
            one.go.clear()
            async with session.post(url + CHAT, json=asking(stream=True), headers=authorized()) as answer:
                assert await answer.content.readany()
                one.go.set()
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await read_into(bytearray(), answer)

        async with gateway(one, upstream={"failures_max": 2, "open_seconds": 1000.0}) as (served, url):
            (server,) = served._upstreams
            for _ in range(2):
                await cut()
            assert (await post(url, asking()))[0] == 503
            expire(server)
            await cut()  # the trial
            assert (await post(url, asking()))[0] == 503
            expire(server)
            one.behave = well
            assert (await post(url, asking()))[0] == 200
            one.behave = break_inside
            await cut()  # the first in a row
            one.behave = well
            assert (await post(url, asking()))[0] == 200


def expire(server: Any) -> None:
    """Let the time of an open breaker be over."""
    server._breaker = replace(server._breaker, until=0.0)


async def test_an_open_breaker_costs_no_attempt_while_another_upstream_serves() -> None:
    async with upstream(status(500)) as bad, upstream(well) as good:
        async with gateway(bad, good, upstream={"failures_max": 1, "open_seconds": 1000.0}) as (_, url):
            assert [(await post(url, asking()))[0] for _ in range(5)] == [200] * 5
    assert len(bad.asked) == 1
