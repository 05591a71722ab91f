"""The loop in which a model calls tools, by the official client against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient
from openai.resources.chat.completions import AsyncCompletions

from hybridrt import Agent, Runtime, tool
from hybridrt.agents import Done, Event, Text, ToolCall, ToolResult, Usage
from tests.agents.examples import count_letters
from tests.agents.server import Json, ModelServer, call, end, spent, text
from tests.loop.support import Gate, eventually

ANSWER = [text("Be"), text("cause."), end(), spent(5, 7)]
NOWHERE = "http://127.0.0.1:9/v1"


@tool
async def search(query: str) -> str:
    """Search."""
    return f"found {query}"


@tool
def broken(query: str) -> str:
    """Fail."""
    raise LookupError("the shelf is empty")


def asking(name: str, arguments: str = "{}", **more: Any) -> list[Json]:
    """Return a reply that asks for one tool."""
    return [call(name, arguments, **more), end("tool_calls")]


async def ask(agent: Agent, question: str = "Why?") -> list[Event]:
    return [event async for event in agent.stream(question)]


def results(events: list[Event]) -> list[ToolResult]:
    return [event for event in events if isinstance(event, ToolResult)]


async def test_an_answer_arrives_piece_by_piece() -> None:
    server = ModelServer(ANSWER)
    async with server.agent(instructions="Be brief.") as agent:
        events = await ask(agent)
    assert events == [
        Text("Be"),
        Text("cause."),
        Done(
            text="Because.",
            reason="answered",
            usage=Usage(requests=1, prompt_tokens=5, completion_tokens=7),
            turns=1,
            tool_calls=0,
            messages=(
                {"role": "user", "content": "Why?"},
                {"role": "assistant", "content": "Because."},
            ),
        ),
    ]
    (request,) = server.requests
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "tools" not in request


async def test_a_tool_is_called_and_the_model_goes_on_with_its_result() -> None:
    server = ModelServer([*asking("search", '{"query": "owls"}'), spent(1, 2)], ANSWER)
    async with server.agent(search) as agent:
        events = await ask(agent)
    assert events[0] == ToolCall(id="a", name="search", arguments='{"query": "owls"}')
    (result,) = results(events)
    assert (result.id, result.name, result.text, result.error) == ("a", "search", "found owls", None)
    assert (result.place, result.attempts) == ("loop", 1)
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.turns, done.tool_calls) == (2, 1)
    assert done.usage == Usage(requests=2, prompt_tokens=6, completion_tokens=9)
    assert server.requests[0]["tools"] == [search.definition()]
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "tool"]
    assert server.tool_messages() == [{"role": "tool", "tool_call_id": "a", "content": "found owls"}]


async def test_each_tool_runs_in_its_place_and_says_so() -> None:
    async def on_the_loop(text: str) -> str:
        return text

    calls = [
        call("count_letters", '{"text": "abc"}', index=0, id="a"),
        call("on_the_loop", '{"text": "abc"}', index=1, id="b"),
        call("inline", '{"text": "abc"}', index=2, id="c"),
        end("tool_calls"),
    ]

    def inline(text: str) -> str:
        return text

    server = ModelServer(calls, ANSWER)
    async with Runtime(), server.agent(count_letters, on_the_loop, tool(inline, where="inline")) as agent:
        found = {result.id: result for result in results(await ask(agent))}
    assert {id: result.place for id, result in found.items()} == {"a": "thread", "b": "loop", "c": "inline"}
    assert found["a"].text == "3"
    for result in found.values():
        assert result.cpu is not None
        assert min(result.cpu, result.wall, result.queue_wait) >= 0


async def test_the_calls_of_one_turn_run_side_by_side_and_keep_their_order() -> None:
    pieces = [
        call("meet", '{"na', index=0, id="a"),
        call("meet", "", index=1, id="b"),
        call(None, 'me": "one"}', index=0, id=None),
        call(None, '{"name": "two"}', index=1, id=None),
        end("tool_calls"),
    ]
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        await both.wait()  # passes only when the other call is here, too
        return f"met {name}"

    server = ModelServer(pieces, ANSWER)
    async with server.agent(meet) as agent:
        await ask(agent)
    assert [(message["tool_call_id"], message["content"]) for message in server.tool_messages()] == [
        ("a", "met one"),
        ("b", "met two"),
    ]


async def test_no_more_tools_of_a_question_than_allowed_run_at_once() -> None:
    inside = most = 0

    async def enter() -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(5):
            await asyncio.sleep(0)
        inside -= 1
        return "left"

    calls = [call("enter", "{}", index=number, id=str(number)) for number in range(6)]
    server = ModelServer([*calls, end("tool_calls")], ANSWER)
    async with server.agent(enter, max_concurrent_tools=2) as agent:
        found = results(await ask(agent))
    assert most == 2
    assert len(found) == 6


@pytest.mark.parametrize(
    ("name", "arguments", "error", "told"),
    [
        ("broken", '{"query": "x"}', "LookupError", "LookupError: the shelf is empty"),
        ("fly", "{}", "LookupError", "expected one of the tools search, broken, got 'fly'"),
        ("search", '{"query": ', "ArgumentsError", "expected arguments that fit the schema, got arguments: "),
        ("search", '{"query": "x", "depth": 9}', "ArgumentsError", "depth: "),
        ("search", "", "ArgumentsError", "query: Field required"),
        ("search", "[1]", "ArgumentsError", "arguments: "),
    ],
)
async def test_what_goes_wrong_with_a_tool_is_told_to_the_model_which_goes_on(
    name: str, arguments: str, error: str, told: str
) -> None:
    server = ModelServer(asking(name, arguments), ANSWER)
    async with server.agent(search, broken) as agent:
        events = await ask(agent)
    (result,) = results(events)
    assert result.error == error
    assert told in json.loads(result.text)["error"]
    assert server.tool_messages()[0]["content"] == result.text
    assert isinstance(events[-1], Done)


async def test_a_tool_that_misses_its_timeout_is_told_to_the_model() -> None:
    async with Gate() as gate:

        def wait() -> None:
            gate()

        server = ModelServer(asking("wait"), ANSWER)
        async with server.agent(tool(wait, timeout=0.01)) as agent:
            (result,) = results(await ask(agent))
    assert result.error == "OffloadTimeoutError"
    assert "timeout of 0.01 s" in json.loads(result.text)["error"]
    assert result.cpu is None


async def test_a_tool_that_cancels_itself_is_told_to_the_model() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    server = ModelServer(asking("give_up"), ANSWER)
    async with server.agent(give_up) as agent:
        (result,) = results(await ask(agent))
    assert (result.error, json.loads(result.text)) == ("CancelledError", {"error": "give_up was cancelled"})


async def test_values_reach_the_model_as_json_and_texts_as_they_are() -> None:
    async def found() -> list[dict[str, Any]]:
        return [{"title": "Owls", "score": 0.5, "thing": object}]

    server = ModelServer(asking("found"), ANSWER)
    async with server.agent(found) as agent:
        (result,) = results(await ask(agent))
    assert json.loads(result.text) == [{"title": "Owls", "score": 0.5, "thing": str(object)}]


async def test_in_the_last_turn_the_model_must_answer() -> None:
    def script(number: int, body: Json) -> list[Json]:
        return ANSWER if body["tool_choice"] == "none" else asking("search", '{"query": "x"}')

    server = ModelServer(script)
    async with server.agent(search, max_turns=3) as agent:
        done = await agent.run("Why?")
    assert (done.text, done.reason, done.turns) == ("Because.", "answered", 3)


async def test_a_model_that_asks_for_tools_in_the_last_turn_has_reached_the_bound() -> None:
    server = ModelServer(asking("search", '{"query": "x"}'))
    async with server.agent(search, max_turns=2) as agent:
        done = await agent.run("Why?")
    assert (done.reason, done.turns, done.tool_calls) == ("max_turns", 2, 1)
    assert len(server.requests) == 2
    assert not [message for message in done.messages[-1:] if "tool_calls" in message]


async def test_no_turn_begins_once_the_tokens_are_used_up() -> None:
    server = ModelServer([*asking("search", '{"query": "x"}'), spent(90, 10)])
    async with server.agent(search, max_tokens=150) as agent:
        done = await agent.run("Why?")
    assert (done.reason, done.turns, done.usage.total_tokens) == ("max_tokens", 2, 200)


@pytest.mark.parametrize(
    "piece", [text("and so on "), call("search", "x", index=0)], ids=["text", "a tool call"]
)
async def test_a_reply_that_never_ends_is_cut_at_the_bound_of_tokens(piece: Json) -> None:
    def forever(number: int, body: Json) -> Any:
        while True:
            yield piece

    server = ModelServer(forever)
    async with server.agent(search, max_tokens=50) as agent:
        done = await agent.run("Why?")
    assert (done.reason, done.usage.uncounted) == ("max_tokens", 1)
    assert len(done.text.split()) in (0, 150)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_reply_that_the_endpoint_cuts_ends_the_run_and_calls_no_tool(reason: str) -> None:
    server = ModelServer([text("Well"), call("search", '{"query": "x"}'), end(reason)])
    async with server.agent(search) as agent:
        done = await agent.run("Why?")
    assert (done.text, done.reason, done.tool_calls) == ("Well", reason, 0)


async def test_an_endpoint_that_does_not_count_is_counted_as_such() -> None:
    server = ModelServer([text("Yes."), end()])
    async with server.agent() as agent:
        done = await agent.run("Why?")
    assert done.usage == Usage(requests=1, uncounted=1)


@pytest.mark.parametrize("index", [None, 0], ids=["no index", "one index for all"])
async def test_calls_of_endpoints_that_do_not_number_them_are_told_apart_by_their_ids(
    index: int | None,
) -> None:
    calls = [call("search", f'{{"query": "{id}"}}', index=index, id=id) for id in ("a", "b")]
    server = ModelServer([*calls, end("tool_calls")], ANSWER)
    async with server.agent(search) as agent:
        await ask(agent)
    assert [message["content"] for message in server.tool_messages()] == ["found a", "found b"]


async def test_calls_without_ids_are_given_some() -> None:
    calls = [call("search", '{"query": "x"}', index=number, id=None) for number in (0, 1)]
    server = ModelServer([*calls, end("tool_calls")], ANSWER)
    async with server.agent(search) as agent:
        await ask(agent)
    assert [message["tool_call_id"] for message in server.tool_messages()] == ["call_0", "call_1"]


async def test_a_conversation_that_goes_on_gives_no_id_twice() -> None:
    wanted = asking("search", '{"query": "x"}', id=None)
    server = ModelServer(wanted, ANSWER, wanted, ANSWER)
    async with server.agent(search) as agent:
        first = await agent.run("Why?")
        await agent.run([*first.messages, {"role": "user", "content": "Really?"}])
    assert [message["tool_call_id"] for message in server.tool_messages()] == ["call_0", "call_1"]


async def test_a_conversation_goes_on_from_its_messages() -> None:
    server = ModelServer(asking("search", '{"query": "x"}'), ANSWER, ANSWER)
    async with server.agent(search) as agent:
        first = await agent.run("Why?")
        await agent.run([*first.messages, {"role": "user", "content": "Really?"}])
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_one_agent_answers_many_questions_at_once() -> None:
    here = asyncio.Barrier(8)

    async def meet() -> str:
        await here.wait()
        return "met"

    def script(number: int, body: Json) -> list[Json]:
        if body["messages"][-1]["role"] == "tool":
            return [text(body["messages"][0]["content"]), end()]
        return asking("meet")

    server = ModelServer(script)
    async with server.agent(meet) as agent:
        answers = await asyncio.gather(*(agent.run(f"question {number}") for number in range(8)))
    assert [done.text for done in answers] == [f"question {number}" for number in range(8)]


async def test_an_address_gets_a_client_which_is_closed_with_the_agent() -> None:
    server = ModelServer(ANSWER)
    async with server.serving() as url:
        agent = Agent(url, "scripted", api_key="secret")
        first, second = await asyncio.gather(agent.run("Why?"), agent.run("Why?"))
        assert first.text == second.text == "Because."
        client = await agent._connection.client()
        assert client.api_key == "secret"
        await agent.aclose()
        assert client.is_closed()
        assert (await agent.run("Why?")).text == "Because."  # with a new one
        await agent.aclose()


def test_the_client_of_an_address_is_closed_at_the_end_of_its_loop() -> None:
    agent = Agent(NOWHERE, "x")
    first, second = (asyncio.run(agent._connection.client()) for _ in range(2))
    assert first is not second
    assert first.is_closed()
    assert second.is_closed()


async def test_the_client_of_an_agent_that_is_dropped_is_closed() -> None:
    client = await Agent(NOWHERE, "x")._connection.client()
    await eventually(client.is_closed)


async def test_loops_that_run_at_once_have_a_client_each() -> None:
    async with Agent(NOWHERE, "x") as agent:
        own = await agent._connection.client()
        other = await asyncio.to_thread(asyncio.run, agent._connection.client())
        assert other is not own
        assert await agent._connection.client() is own
        assert not own.is_closed()


async def test_a_client_of_the_callers_own_stays_open() -> None:
    server = ModelServer(ANSWER)
    http_client = DefaultAioHttpClient(verify=False)
    async with server.serving() as url:
        async with AsyncOpenAI(base_url=url, api_key="x", http_client=http_client) as client:
            async with Agent(client, "scripted") as agent:
                assert (await agent.run("Why?")).text == "Because."
            assert not client.is_closed()


async def test_parameters_go_along_with_each_request() -> None:
    server = ModelServer(ANSWER)
    async with server.agent(parameters={"temperature": 0, "seed": 7}) as agent:
        await ask(agent)
    assert (server.requests[0]["temperature"], server.requests[0]["seed"]) == (0, 7)


async def test_what_goes_beside_the_parameters_goes_beside_the_body() -> None:
    server = ModelServer(ANSWER)
    more = {"extra_body": {"guided": True}, "extra_headers": {"X-A": "b"}, "timeout": 30.0}
    async with server.agent(parameters=more) as agent:
        await ask(agent)
    assert server.requests[0]["guided"] is True
    assert not more.keys() & server.requests[0].keys()


@pytest.mark.parametrize("level", ["object", "class"])
async def test_a_tracers_own_create_is_called(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracers put theirs in the place of the client's, and must see what is asked and answered."""
    server, seen = ModelServer(ANSWER), []
    async with server.agent() as agent:
        client = await agent._connection.client()
        own = AsyncCompletions.create

        async def traced(*args: Any, **asked: Any) -> Any:
            seen.append(asked["model"])
            return await own(client.chat.completions, **asked)

        traced.__code__ = traced.__code__.replace(co_filename=f"{Path(openai.__file__).parent}_traced/it.py")
        place = client.chat.completions if level == "object" else AsyncCompletions
        monkeypatch.setattr(place, "create", traced)
        done = await agent.run("Why?")
    assert (done.text, done.usage.total_tokens, seen) == ("Because.", 12, ["scripted"])


async def test_a_consumer_that_leaves_early_ends_the_tools() -> None:
    ended: list[str] = []
    entered = asyncio.Event()

    async def wait() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    calls = [call("wait", "{}", index=0, id="a"), call("search", '{"query": "x"}', index=1, id="b")]
    server = ModelServer([*calls, end("tool_calls")])
    async with server.agent(wait, search) as agent:
        events: AsyncGenerator[Event, None] = agent.stream("Why?")
        async with aclosing(events):
            async for event in events:
                if isinstance(event, ToolResult):
                    await entered.wait()
                    break
    assert ended == ["cancelled"]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"max_turns": 0}, ValueError, "max_turns must be an int >= 1, got 0"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be an int >= 1 or None, got 0"),
        ({"max_concurrent_tools": 0}, ValueError, "max_concurrent_tools must be an int >= 1, got 0"),
        ({"timeout": 0}, ValueError, "timeout is in seconds and must be a number > 0 or None, got 0"),
        ({"stall_timeout": -1}, ValueError, "stall_timeout is in seconds"),
        ({"retries": -1}, ValueError, "retries must be an int >= 0"),
        ({"parameters": {"stream": False}}, ValueError, "parameters must leave stream to the agent"),
        ({"tools": [search, search]}, ValueError, "got two named 'search'"),
        ({"parameters": [3]}, TypeError, "parameters must be a dict, as {'temperature': 0}, or None, got"),
        ({"tools": search}, TypeError, r"tools must be a list of functions, got .* as in \[search\]"),
        ({"tools": [7]}, TypeError, "expected a function for a tool, got 7"),
        ({"client": "localhost"}, ValueError, "expected the address of an OpenAI-compatible server"),
        ({"client": None}, TypeError, "client must be an openai.AsyncOpenAI or an address"),
        ({"model": ""}, ValueError, "model must be the name of a model"),
        ({"model": [search]}, TypeError, "model must be the name of a model"),
    ],
)
def test_an_agent_that_cannot_work_is_refused_when_it_is_made(
    options: dict[str, Any], error: type[Exception], told: str
) -> None:
    usual: dict[str, Any] = {"client": NOWHERE, "model": "x"}
    with pytest.raises(error, match=told):
        Agent(**usual | options)


@pytest.mark.parametrize(
    ("question", "error", "told"),
    [
        (None, TypeError, "expected a text or a list of messages"),
        ({"role": "user", "content": "Why?"}, TypeError, "expected a text or a list of messages"),
        (["Why?"], TypeError, r"got \['Why\?'\]"),
        ([], ValueError, "got an empty list of messages"),
        ([{"role": "user", "content": {1}}], TypeError, "set is not JSON serializable"),
        ("\ud83d", UnicodeEncodeError, "surrogates not allowed"),
    ],
)
async def test_what_is_no_question_is_refused(question: Any, error: type[Exception], told: str) -> None:
    async with Agent("http://127.0.0.1:9/v1", "x") as agent:
        with pytest.raises(error, match=told):
            await agent.run(question)


async def test_half_a_surrogate_pair_reaches_the_model_as_a_question_mark() -> None:
    async def broken() -> str:
        return "a\udcffb"

    server = ModelServer([call("broken", "{}"), end("tool_calls")], [text("Well."), end()])
    async with server.agent(broken) as agent:
        assert (await agent.run("Why?")).text == "Well."
    assert server.tool_messages()[0]["content"] == "a?b"


async def test_the_model_is_told_of_a_tool_that_cancels_its_own_task() -> None:
    @tool
    async def give_up() -> str:
        """Give up."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    server = ModelServer(asking("give_up"), ANSWER)
    async with server.agent(give_up) as agent:
        events = await ask(agent)
    (result,) = results(events)
    assert (result.error, result.text) == ("CancelledError", '{"error": "give_up was cancelled"}')
    assert isinstance(events[-1], Done)
