"""The agent loop, through the official client, against a real server that follows a script."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import BaseModel, Field
from ragkit.agent import Agent, AnswerText, Event, ToolUsed, TurnEnded
from ragkit.errors import EndpointError
from ragkit.llm import open_client
from ragkit.tools import Tool, Toolbox

from .conftest import Serve

Json = dict[str, Any]
Script = Callable[[int, Json], list[Json | str]]


class Query(BaseModel):
    """Look something up."""

    query: str
    count: int = Field(3, ge=1, le=5)


def text(content: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}


def call(index: int | None, name: str | None, arguments: str, id: str | None = "c") -> Json:
    function = {"name": name, "arguments": arguments}
    delta = {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def end(reason: str) -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


USAGE: Json = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}}


class Server:
    """Plays a script: which chunks the n-th request gets; keeps what it was sent."""

    def __init__(self, serve: Serve, script: Script) -> None:
        self._serve = serve
        self._script = script
        self.requests: list[Json] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in self._script(len(self.requests) - 1, body):
            if chunk == "cut":
                assert request.transport is not None
                request.transport.abort()
                return response
            line = (
                chunk
                if isinstance(chunk, str)
                else json.dumps({"id": "x", "object": "chat.completion.chunk"} | chunk)
            )
            await response.write(f"data: {line}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    @asynccontextmanager
    async def agent(self, *tools: Tool[Any], turns_max: int = 6) -> AsyncIterator[Agent]:
        async with self._serve({"/v1/chat/completions": self._answer}) as url:
            client = open_client(f"{url}/v1", None, local=True)
            async with client:
                yield Agent(client, "scripted", Toolbox(*tools), turns_max=turns_max)

    def tool_messages(self) -> list[Json]:
        return [message for message in self.requests[-1]["messages"] if message["role"] == "tool"]


def tool(function: Callable[[Query], Any], name: str = "search") -> Tool[Query]:
    return Tool(name, Query, function)


async def never(arguments: Query) -> str:
    raise AssertionError("nobody should call this")


async def ask(agent: Agent) -> list[Event]:
    return [event async for event in agent.ask("Why?")]


async def test_an_answer_arrives_piece_by_piece_with_what_it_used(serve: Serve) -> None:
    server = Server(serve, lambda turn, body: [text("Be"), text("cause."), end("stop"), USAGE])
    async with server.agent() as agent:
        events = await ask(agent)
    assert events == [AnswerText("Be"), AnswerText("cause."), TurnEnded("stop", 5, 7)]
    assert [message["role"] for message in server.requests[0]["messages"]] == ["system", "user"]


async def test_the_calls_of_one_turn_run_side_by_side_and_keep_their_order(serve: Serve) -> None:
    pieces = [
        call(0, "search", '{"que', "a"),
        call(1, "search", "", "b"),
        call(0, None, 'ry": "one"}', None),
        call(1, None, '{"query": "two"}', None),
    ]

    def script(turn: int, body: Json) -> list[Json | str]:
        if turn:
            return [text("Done."), end("stop")]
        return [*pieces, end("tool_calls")]

    both = asyncio.Barrier(2)

    async def search(arguments: Query) -> str:
        await both.wait()  # passes only when the other call is here, too
        return f"found {arguments.query}"

    server = Server(serve, script)
    async with server.agent(tool(search)) as agent:
        async with asyncio.timeout(10):
            events = await ask(agent)
    assert [event.result for event in events if isinstance(event, ToolUsed)] == ["found one", "found two"]
    assert [(message["tool_call_id"], message["content"]) for message in server.tool_messages()] == [
        ("a", "found one"),
        ("b", "found two"),
    ]


async def broken(arguments: Query) -> str:
    raise LookupError("the shelf is empty")


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("search", '{"query": "x"}', "LookupError: the shelf is empty"),
        ("fly", "{}", "expected one of the tools search, got 'fly'"),
        ("search", '{"query": ', "expected arguments that fit the schema.*[Jj][Ss][Oo][Nn]"),
        ("search", '{"query": "x", "count": 99}', "count: Input should be less than or equal to 5"),
        ("search", "", "query: Field required"),
        ("search", "[1]", "arguments: Input should be an object"),
    ],
)
async def test_a_call_that_fails_tells_the_model_why_and_goes_on(
    serve: Serve, name: str, arguments: str, told: str
) -> None:
    server = Server(
        serve,
        lambda turn, body: (
            [text("Sorry."), end("stop")] if turn else [call(0, name, arguments), end("tool_calls")]
        ),
    )
    async with server.agent(tool(broken)) as agent:
        events = await ask(agent)
    assert events[-2:] == [AnswerText("Sorry."), TurnEnded("stop", None, None)]
    (message,) = server.tool_messages()

    assert re.search(told, json.loads(message["content"])["error"])


async def test_in_the_last_turn_the_model_must_answer(serve: Serve) -> None:
    async def search(arguments: Query) -> str:
        return "more"

    def script(turn: int, body: Json) -> list[Json | str]:
        if body["tool_choice"] == "none":
            return [text("Enough."), end("stop")]
        return [call(0, "search", '{"query": "x"}'), end("tool_calls")]

    server = Server(serve, script)
    async with server.agent(tool(search), turns_max=3) as agent:
        events = await ask(agent)
    assert events[-2] == AnswerText("Enough.")
    assert len(server.requests) == 3


async def test_calls_without_an_index_are_kept_apart(serve: Serve) -> None:
    async def search(arguments: Query) -> str:
        return arguments.query

    calls = [call(None, "search", '{"query": "one"}', "a"), call(None, "search", '{"query": "two"}', "b")]
    server = Server(
        serve, lambda turn, body: [text("ok"), end("stop")] if turn else [*calls, end("tool_calls")]
    )
    async with server.agent(tool(search)) as agent:
        await ask(agent)
    assert [message["content"] for message in server.tool_messages()] == ["one", "two"]


@pytest.mark.parametrize(
    "chunks", [[text("Be"), "cut"], ["{broken json"], ['{"error": {"message": "overloaded"}}']]
)
async def test_a_stream_that_breaks_is_an_endpoint_error(serve: Serve, chunks: list[Json | str]) -> None:
    server = Server(serve, lambda turn, body: chunks)
    async with server.agent(tool(never)) as agent:
        with pytest.raises(EndpointError, match=r"expected scripted at .* to answer, got"):
            await ask(agent)


async def test_a_server_that_refuses_is_an_endpoint_error(serve: Serve) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no such model"}}, status=404)

    async with serve({"/v1/chat/completions": refuse}) as url:
        async with open_client(f"{url}/v1", None, local=True) as client:
            with pytest.raises(EndpointError, match=r"no such model"):
                await ask(Agent(client, "gone", Toolbox()))


def test_an_agent_without_turns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"turns_max must be at least 1, got 0"):
        Agent(None, "x", Toolbox(), turns_max=0)  # type: ignore[arg-type]


def test_a_tool_describes_itself_by_its_arguments() -> None:
    (schema,) = Toolbox(tool(never)).schemas()
    assert schema["function"]["name"] == "search"
    assert schema["function"]["description"] == "Look something up."
    assert schema["function"]["parameters"]["required"] == ["query"]
