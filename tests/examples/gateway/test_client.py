"""The official client works through the gateway."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import hybridrt

from .servers import KEY, USAGE, WORDS, asking, break_inside, gateway, status, upstream, well
from .test_process import running, write

TOOLS: list[Any] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


@asynccontextmanager
async def client(url: str, key: str = KEY) -> AsyncIterator[openai.AsyncOpenAI]:
    """Connect; nothing is tried again by the client itself."""
    async with httpx.AsyncClient(trust_env=False) as http:
        yield openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http)


async def test_it_asks_and_is_answered() -> None:
    async with upstream(well) as one, gateway(one) as (_, url), client(url) as openai_client:
        reply = await openai_client.chat.completions.create(**asking())
    assert reply.choices[0].message.content == "".join(WORDS)
    assert reply.usage is not None
    assert reply.usage.total_tokens == USAGE["total_tokens"]


@pytest.mark.parametrize("durability", ["strict", "fast"])
async def test_it_streams(durability: str, tmp_path: Any) -> None:
    audit = {"folder": str(tmp_path), "durability": durability}
    async with upstream(well) as one, gateway(one, audit=audit) as (_, url), client(url) as openai_client:
        stream = await openai_client.chat.completions.create(**asking(), stream=True)
        pieces = [event.choices[0].delta.content async for event in stream]
    assert pieces == [*WORDS, None]


async def test_tools_stream_in_pieces() -> None:
    async with upstream(well) as one, gateway(one) as (_, url), client(url) as openai_client:
        async with openai_client.chat.completions.stream(**asking(), tools=TOOLS) as stream:
            final = await stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert call.function.name == "look_up"
    assert json.loads(call.function.arguments) == {"word": "fox"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SO_REUSEPORT")
@pytest.mark.timeout(300)
async def test_many_of_them_stream_and_call_tools_through_two_workers(tmp_path: Path) -> None:
    async def ask(url: str) -> tuple[list[str | None], str]:
        async with client(url) as openai_client:
            stream = await openai_client.chat.completions.create(**asking(), stream=True)
            pieces = [event.choices[0].delta.content async for event in stream]
            async with openai_client.chat.completions.stream(**asking(), tools=TOOLS) as called:
                final = await called.get_final_completion()
        (call,) = final.choices[0].message.tool_calls or []
        return pieces, call.function.arguments

    async with hybridrt.Runtime(), upstream(well) as one:
        async with running(write(tmp_path, one), workers=2) as (_, url):
            answers = await asyncio.gather(*(ask(url) for _ in range(16)))
    assert answers == [([*WORDS, None], '{"word": "fox"}')] * 16


async def test_an_answer_that_breaks_off_is_an_error_and_no_short_answer() -> None:
    async with upstream(break_inside) as bad, gateway(bad) as (_, url), client(url) as openai_client:
        stream = await openai_client.chat.completions.create(**asking(), stream=True)
        assert (await anext(aiter(stream))).choices[0].delta.content == WORDS[0]
        bad.go.set()
        with pytest.raises((openai.APIError, httpx.TransportError)):
            await anext(aiter(stream))


async def test_the_models_are_listed() -> None:
    async with upstream(well) as one, gateway(one, upstream={"models": ["small"]}) as (_, url):
        async with client(url) as openai_client:
            assert [model.id async for model in openai_client.models.list()] == ["small"]


async def test_its_errors_are_those_it_knows() -> None:
    async with upstream(status(429)) as one, gateway(one) as (_, url):
        async with client(url, "wrong") as openai_client:
            with pytest.raises(openai.AuthenticationError):
                await openai_client.chat.completions.create(**asking())
        async with client(url) as openai_client:
            with pytest.raises(openai.RateLimitError):
                await openai_client.chat.completions.create(**asking())
            with pytest.raises(openai.BadRequestError):
                await openai_client.chat.completions.create(model="", messages=[])
