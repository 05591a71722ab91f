"""The gateway before real upstreams: keys, rates, routes, forwarding, leaving clients."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from .hostile_shapes import BODY, HEAD
from .servers import (
    KEY,
    USAGE,
    WORDS,
    asking,
    authorized,
    gateway,
    settings,
    stall,
    stall_inside,
    status,
    upstream,
    well,
)

CHAT = "/v1/chat/completions"


async def post(url: str, body: Any, *, key: str = KEY, path: str = CHAT) -> tuple[int, Any, Any]:
    """Return status, JSON and headers of an answer."""
    async with aiohttp.ClientSession() as session:
        async with session.post(url + path, json=body, headers=authorized(key)) as answer:
            return answer.status, await answer.json(), answer.headers


async def test_an_answer_comes_through_unchanged() -> None:
    async with upstream(well) as one, gateway(one) as (_, url):
        code, answer, headers = await post(url, asking())
    assert (code, answer["choices"][0]["message"]["content"], answer["usage"]) == (200, "".join(WORDS), USAGE)
    assert len(headers["X-Request-Id"]) == 32
    assert one.asked == [asking()]


async def test_the_clients_key_never_reaches_an_upstream_and_the_gateways_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_TEST_KEY", "upstream-key")
    async with upstream(well) as one:
        async with gateway(one, upstream={"key_env": "GATEWAY_TEST_KEY"}) as (_, url):
            await post(url, asking())
    assert one.headers[0]["Authorization"] == "Bearer upstream-key"
    assert KEY not in str(one.headers)


@pytest.mark.parametrize(
    "header", ["", "Bearer ", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY]
)
async def test_without_a_valid_key_nothing_is_forwarded(header: str) -> None:
    async with upstream(well) as one, gateway(one) as (_, url), aiohttp.ClientSession() as session:
        headers = {"Authorization": header}
        async with session.post(url + CHAT, json=asking(), headers=headers) as answer:
            assert answer.status == 401
            assert (await answer.json())["error"]["code"] == "invalid_api_key"
    assert not one.asked


async def test_where_it_was_told_so_no_key_is_needed() -> None:
    async with upstream(well) as one:
        async with gateway(one, keys=[], server={"allow_no_keys": True}) as (_, url):
            assert (await post(url, asking(), key="anything"))[0] == 200


async def test_a_key_has_its_rate_and_is_told_when_to_come_back() -> None:
    async with upstream(well) as one:
        keys = [{**settings()["keys"][0], "rate": 0.001, "burst": 2}]
        async with gateway(one, keys=keys) as (_, url):
            codes = [(await post(url, asking()))[0] for _ in range(2)]
            code, answer, headers = await post(url, asking())
    assert codes == [200, 200]
    assert (code, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 900 < int(headers["Retry-After"]) <= 1000


async def test_a_key_may_use_its_models_only() -> None:
    async with upstream(well) as one:
        keys = [{**settings()["keys"][0], "models": ["small", "tiny-*"]}]
        async with gateway(one, keys=keys) as (_, url):
            codes = [(await post(url, asking(model=model)))[0] for model in ("small", "tiny-1", "large")]
    assert codes == [200, 200, 403]


async def test_models_are_listed_and_those_that_no_upstream_has_are_refused() -> None:
    async with upstream(well) as one:
        async with gateway(one, upstream={"models": ["small", "tiny-*"]}) as (_, url):
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{url}/v1/models", headers=authorized()) as answer:
                    listed = await answer.json()
                async with session.get(f"{url}/v1/models") as answer:
                    assert answer.status == 401
            code, answer_, _ = await post(url, asking(model="large"))
    assert [row["id"] for row in listed["data"]] == ["small"]
    assert (code, answer_["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", CHAT, 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/healthz", 404),
        ("DELETE", "/v1/models", 404),
    ],
)
async def test_other_routes_are_refused_in_the_protocols_form(method: str, path: str, code: int) -> None:
    async with upstream(well) as one, gateway(one) as (_, url), aiohttp.ClientSession() as session:
        async with session.request(method, url + path, headers=authorized()) as answer:
            assert answer.status == code
            assert (await answer.json())["error"]["message"].startswith("expected")


@pytest.mark.parametrize("code", [400, 404, 422])
async def test_what_an_upstream_says_of_the_request_is_passed_on(code: int) -> None:
    async with upstream(status(code)) as one, gateway(one) as (_, url):
        got, answer, _ = await post(url, asking())
    assert (got, answer["error"]["message"]) == (code, "bad key None")


async def test_completions_and_embeddings_are_forwarded_to_their_own_paths() -> None:
    async with upstream(well) as one, gateway(one) as (_, url):
        for path, content in (("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": ["a"]})):
            assert (await post(url, {"model": "small", **content}, path=path))[0] == 200
    assert [sorted(body) for body in one.asked] == [["model", "prompt"], ["input", "model"]]


async def test_pieces_of_a_stream_arrive_as_they_are_sent() -> None:
    async with upstream(stall_inside) as one, gateway(one) as (_, url), aiohttp.ClientSession() as session:
        async with session.post(url + CHAT, json=asking(stream=True), headers=authorized()) as answer:
            first = await answer.content.readany()
            assert WORDS[0].strip().encode() in first  # and the upstream has not gone on yet
            one.go.set()
            rest = await answer.content.read()
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_client_that_leaves_cancels_the_request_upstream() -> None:
    async with upstream(stall_inside) as one, gateway(one) as (served, url):
        async with aiohttp.ClientSession() as session:
            async with session.post(url + CHAT, json=asking(stream=True), headers=authorized()) as answer:
                await answer.content.readany()
                answer.close()
            await asyncio.wait_for(one.gone.wait(), 20)
        assert await served.idle(20)


async def test_a_client_that_leaves_before_the_first_byte_cancels_the_request_upstream() -> None:
    async with upstream(stall) as one, gateway(one) as (served, url):
        asked = asyncio.create_task(post(url, asking()))
        await asyncio.wait_for(one.came.wait(), 20)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.wait_for(one.gone.wait(), 20)
        assert await served.idle(20)


async def test_health_readiness_and_counters_need_no_key_here() -> None:
    async with upstream(well) as one, gateway(one) as (served, url), aiohttp.ClientSession() as session:
        await post(url, asking())
        for path, told in (
            ("/healthz", b"ok"),
            ("/readyz", b"ready"),
            ("/metrics", b"gateway_requests_total"),
        ):
            async with session.get(url + path) as answer:
                assert answer.status == 200
                assert told in await answer.read()
        served.draining = True
        async with session.get(f"{url}/readyz") as answer:
            assert (answer.status, await answer.json()) == (503, {"status": "draining"})


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For"])
async def test_counters_need_a_key_through_a_proxy_on_this_machine(header: str) -> None:
    async with upstream(well) as one, gateway(one) as (_, url), aiohttp.ClientSession() as session:
        for headers, code in (({}, 401), (authorized(), 200)):
            async with session.get(f"{url}/metrics", headers={header: "192.0.2.1", **headers}) as answer:
                assert answer.status == code


async def test_requests_under_way_end_when_the_gateway_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(stall) as one:
        async with gateway(one) as (served, url):
            monkeypatch.setattr(served.server, "pre_shutdown", one.go.set)
            asked = asyncio.create_task(post(url, asking()))
            await asyncio.wait_for(one.came.wait(), 20)
        code, answer, _ = await asked
        assert (code, answer["usage"]) == (200, USAGE)


async def test_requests_that_do_not_end_are_cancelled_by_the_drains_deadline() -> None:
    async with upstream(stall) as one:
        async with gateway(one, server={"drain_timeout": 0.01}) as (_, url):
            asked = asyncio.create_task(post(url, asking()))
            await asyncio.wait_for(one.came.wait(), 20)
        with pytest.raises((aiohttp.ClientError, OSError)):
            await asked
        await asyncio.wait_for(one.gone.wait(), 20)


async def test_a_client_that_waits_to_be_told_to_send_its_body_is_told() -> None:
    async with upstream(well) as one, gateway(one) as (_, url):
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()
