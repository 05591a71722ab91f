"""Endpoints that speak the protocol otherwise than OpenAI does: Gemini, DeepSeek, Mistral, GLM and others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybridrt import tool
from hybridrt.agents import Done, Event, ModelError, Text, ToolCall, Usage
from tests.agents.server import Json, ModelServer, Status, call, end, text

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


@pytest.mark.parametrize(
    ("pieces", "back"),
    [
        (
            [{"reasoning_content": "Let me "}, {"reasoning_content": "see."}],
            {"reasoning_content": "Let me see."},
        ),
        (
            [
                {"reasoning": "a", "reasoning_details": [thought("a")]},
                {"reasoning": "b", "reasoning_details": [thought("b")]},
            ],
            {"reasoning": "ab", "reasoning_details": [thought("a"), thought("b")]},
        ),
        (
            [{"reasoning_content": "\ud83d"}, {"reasoning_content": "\ude00"}],
            {"reasoning_content": "\U0001f600"},
        ),
        ([{"reasoning_content": None}], {}),
        ([{"reasoning_content": ""}], {"reasoning_content": ""}),
        (
            [
                {"reasoning_details": [{**thought("a"), "index": 0}]},
                {"reasoning_details": [{**thought("b"), "index": 0}]},
                {"reasoning_details": [{"type": thought("")["type"], "index": 0, "signature": "c2ln"}]},
            ],
            {"reasoning_details": [{**thought("ab"), "index": 0, "signature": "c2ln"}]},
        ),
    ],
)
async def test_what_the_model_thought_goes_back_with_its_tool_calls(pieces: list[Json], back: Json) -> None:
    server = ModelServer([*(piece(**each) for each in pieces), *SEARCH], ANSWER)
    await events_of(server)
    message = server.requests[1]["messages"][1]
    assert {name: value for name, value in message.items() if name.startswith("reasoning")} == back
    assert message["content"] is None


async def test_what_the_model_thought_before_an_answer_does_not_go_back() -> None:
    server = ModelServer([piece(reasoning_content="Hm."), *ANSWER])
    async with server.agent() as agent:
        done = await agent.run("Why?")
    assert done.messages[-1] == {"role": "assistant", "content": "Because."}


async def test_what_the_model_thought_after_its_tools_stays_in_the_conversation() -> None:
    server = ModelServer(SEARCH, [piece(reasoning_content="Hm."), *ANSWER])
    *_, done = await events_of(server)
    assert isinstance(done, Done)
    assert done.messages[-1] == {"role": "assistant", "content": "Because.", "reasoning_content": "Hm."}


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


async def test_a_second_name_after_arguments_is_another_call_where_only_the_first_has_an_id() -> None:
    other = call("other", "{}", id=None)
    server = ModelServer([call("search", "{}", id="a"), other, end("tool_calls")], ANSWER)
    events = await events_of(server)
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["search", "other"]


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


async def test_arguments_may_be_null_where_none_are_needed() -> None:
    server = ModelServer([call("search", "null"), end("tool_calls")], ANSWER)
    await events_of(server)
    assert told(server) == ["found nothing"]
    (asked,) = server.requests[1]["messages"][1]["tool_calls"]
    assert asked["function"]["arguments"] == "{}"


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


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("sensitive", "content_filter"),
    ],
)
async def test_a_cut_reply_is_known_by_the_endpoints_own_reason(said: str, reason: str) -> None:
    server = ModelServer([text("Well"), call("search", "{}"), end(said)])
    async with server.agent(search) as agent:
        done = await agent.run("Why?")
    assert (done.reason, done.tool_calls) == (reason, 0)


async def test_text_that_comes_in_parts_is_said_without_what_was_thought() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts = [{"type": "text", "text": "Be"}, {"type": "text", "text": "cause."}]
    server = ModelServer([piece(content=[thinking]), piece(content=parts), end()])
    events = await events_of(server)
    assert events[:-1] == [Text("Because.")]


async def test_an_emoji_that_was_cut_in_two_is_joined() -> None:
    halves = [text("a\ud83d"), text("\ude00b"), call("search", '{"query":"\ud83d'), call(None, '\ude00"}')]
    server = ModelServer([*halves, end("tool_calls")], ANSWER)
    events = await events_of(server)
    assert events[:2] == [Text("a"), Text("\U0001f600b")]
    assert server.requests[1]["messages"][1]["content"] == "a\U0001f600b"
    assert told(server) == ["found \U0001f600"]


async def test_half_an_emoji_alone_becomes_a_replacement_character() -> None:
    server = ModelServer([text("a\ud83d"), text("b"), *SEARCH], ANSWER)
    await events_of(server)
    assert server.requests[1]["messages"][1]["content"] == "a\ufffdb"


async def test_pieces_that_bring_nothing_are_no_tokens() -> None:
    empty = [piece(role="assistant", content=""), piece(), piece(content=None)]
    async with ModelServer([*empty * 5, *ANSWER]).agent(max_tokens=5) as agent:
        done = await agent.run("Why?")
    assert (done.text, done.reason) == ("Because.", "answered")


@pytest.mark.parametrize(
    ("counted", "written"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 112}, 107),
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, 7),
        ({"prompt_tokens": 5, "completion_tokens": 7}, 7),
    ],
)
async def test_thoughts_that_only_the_total_counts_are_counted(counted: Json, written: int) -> None:
    async with ModelServer([*ANSWER, {"choices": [], "usage": counted}]).agent() as agent:
        done = await agent.run("Why?")
    assert done.usage == Usage(requests=1, prompt_tokens=5, completion_tokens=written)


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        (
            {"prompt_tokens": "5", "completion_tokens": "7", "total_tokens": "12"},
            Usage(prompt_tokens=5, completion_tokens=7),
        ),
        ({"prompt_tokens": 5.0, "completion_tokens": None}, Usage(prompt_tokens=5)),
        ({"prompt_tokens": 5, "completion_tokens": {"text": 7}, "total_tokens": -1}, Usage(prompt_tokens=5)),
        ({"prompt_tokens": None, "completion_tokens": "many"}, Usage(uncounted=1)),
        ({"input_tokens": 5}, Usage(uncounted=1)),
    ],
)
async def test_counts_may_be_strings_and_what_is_no_count_is_left_out(counted: Json, usage: Usage) -> None:
    async with ModelServer([*ANSWER, {"choices": [], "usage": counted}]).agent(max_tokens=100) as agent:
        done = await agent.run("Why?")
    assert (done.text, done.usage) == ("Because.", replace(usage, requests=1))


@pytest.mark.parametrize(
    "error",
    ['{"error": "out of memory"}', '{"object": "error", "message": "out of memory", "code": 400}'],
)
async def test_an_error_within_a_stream_keeps_its_text(error: str) -> None:
    async with ModelServer([error]).agent(retries=0) as agent:
        with pytest.raises(ModelError, match="to answer, got out of memory"):
            await agent.run("Why?")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("out of memory", "out of memory"),
        ({"message": "out of memory", "code": 502}, "out of memory"),
        ({"code": 502}, r"\{'code': 502\}"),
    ],
)
async def test_an_error_instead_of_a_reply_keeps_its_text(error: Any, told: str) -> None:
    async with ModelServer(Status(200, body={"error": error})).agent(retries=0) as agent:
        with pytest.raises(ModelError, match=f"to answer, got {told};"):
            await agent.run("Why?")


async def test_the_options_of_the_stream_can_be_left_out() -> None:
    server = ModelServer(ANSWER)
    async with server.agent(parameters={"stream_options": None}) as agent:
        done = await agent.run("Why?")
    assert "stream_options" not in server.requests[0]
    assert done.usage == Usage(requests=1, uncounted=1)


async def test_a_conversation_does_not_end_with_a_message_that_says_nothing() -> None:
    server = ModelServer([piece(reasoning_content="Hm."), end("length")])
    async with server.agent() as agent:
        done = await agent.run("Why?")
    assert (done.reason, done.messages) == ("length", ({"role": "user", "content": "Why?"},))


def whole(reason: str, **message: Any) -> Status:
    """Return a reply that is no stream."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return Status(200, body={"object": "chat.completion", "choices": [choice], "usage": usage})


async def test_replies_that_are_no_streams_are_taken_as_they_are() -> None:
    function = {"name": "search", "arguments": '{"query": "x"}'}
    calls = [{"id": id, "type": "function", "function": function} for id in "ab"]
    server = ModelServer(
        whole("tool_calls", content=None, tool_calls=calls), whole("stop", content="Because.")
    )
    events = await events_of(server)
    assert [event.id for event in events if isinstance(event, ToolCall)] == ["a", "b"]
    assert told(server) == ["found x", "found x"]
    assert Text("Because.") in events
    assert isinstance(events[-1], Done)
    assert events[-1].usage == Usage(requests=2, prompt_tokens=10, completion_tokens=14)
    assert len(server.requests) == 2


async def test_a_stream_is_read_as_one_also_where_its_type_says_json() -> None:
    server = ModelServer(ANSWER)
    server.content_type = "application/json"
    async with server.agent() as agent:
        assert (await agent.run("Why?")).text == "Because."


async def test_what_a_stream_repeats_of_the_whole_message_is_not_said_twice() -> None:
    """Perplexity sends the message so far beside each piece."""
    last = end()
    last["choices"][0]["message"] = {"role": "assistant", "content": "Because."}
    async with ModelServer([text("Because."), last]).agent() as agent:
        assert (await agent.run("Why?")).text == "Because."
