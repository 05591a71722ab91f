"""Endpoints that speak the protocol otherwise than OpenAI does: Gemini, DeepSeek, Mistral, GLM and others."""

from __future__ import annotations

from typing import Any

import pytest

from hybridrt import tool
from hybridrt.agents import Event, ToolCall
from tests.agents.server import Json, ModelServer, call, end, text

ANSWER = [text("Because."), end()]
SEARCH = [call("search", '{"query": "x"}'), end("tool_calls")]


@tool
async def search(query: str = "nothing") -> str:
    """Search."""
    return f"found {query}"


def piece(**delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def events_of(server: ModelServer, **options: Any) -> list[Event]:
    async with server.agent(search, **options) as agent:
        return [event async for event in agent.stream("Why?")]


def told(server: ModelServer) -> list[str]:
    return [message["content"] for message in server.tool_messages()]


def thought(text: str) -> Json:
    return {"type": "reasoning.text", "text": text}


async def test_a_signature_beside_a_tool_call_goes_back_with_it() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    first = call("search", '{"query":', id="a")
    first["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = signed
    rest = call(None, '"x"}', id=None)
    server = ModelServer([first, rest, call("search", "{}", index=1, id="b"), end("tool_calls")], ANSWER)
    await events_of(server)
    with_one, without = server.requests[1]["messages"][1]["tool_calls"]
    assert with_one["extra_content"] == signed
    assert "extra_content" not in without


@pytest.mark.parametrize(
    "pieces",
    [
        [("search", "", "a"), ("search", '{"query":', "a"), ("search", '"x"}', "a")],
        [("search", "", "a"), ("search", '{"query":', None), ("search", '"x"}', None)],
        [("sea", "", "a"), ("rch", '{"query":', None), (None, '"x"}', None)],
        [("search", '{"query":', "a"), (None, '"x"}', "b")],
    ],
    ids=["name and id repeated", "name repeated", "name split", "another id for each piece"],
)
async def test_pieces_with_one_index_are_one_call(pieces: list[tuple[str | None, str, str | None]]) -> None:
    server = ModelServer(
        [*(call(name, given, id=id) for name, given, id in pieces), end("tool_calls")], ANSWER
    )
    events = await events_of(server)
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert calls == [ToolCall(id="a", name="search", arguments='{"query":"x"}')]
    assert told(server) == ["found x"]


async def test_arguments_may_come_as_an_object() -> None:
    given: Any = {"query": "x"}
    server = ModelServer([call("search", given), end("tool_calls")], ANSWER)
    await events_of(server)
    assert told(server) == ["found x"]


@pytest.mark.parametrize(
    ("name", "back"),
    [("web.search now", "web_search_now"), ("x" * 70, "x" * 64), ("", "unnamed")],
)
async def test_a_name_that_no_tool_may_have_goes_back_as_one_that_a_tool_may_have(
    name: str, back: str
) -> None:
    server = ModelServer([call(name, "{}"), end("tool_calls")], ANSWER)
    events = await events_of(server)
    (asked,) = server.requests[1]["messages"][1]["tool_calls"]
    assert asked["function"]["name"] == back
    assert isinstance(events[0], ToolCall)
    assert events[0].name == name
    assert f"got {name!r}" in told(server)[0]
