"""What becomes of a question when its endpoint refuses, fails, or breaks off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from hybridrt import Agent, tool
from hybridrt.agents import AgentTimeoutError, Event, ModelError, Text
from hybridrt.agents.chunks import _timeout
from hybridrt.agents.reply import Reply
from tests.agents.server import (
    CUT,
    END,
    KEEP_ALIVE,
    STALL,
    Json,
    ModelServer,
    Status,
    Wait,
    call,
    end,
    spent,
    text,
)

ANSWER = [text("Because."), end(), spent(5, 7)]
AT_ONCE = {"retry-after-ms": "1"}


@tool
async def never(query: str = "") -> str:
    """Never to be called."""
    raise AssertionError("nobody should call this")


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Keep what the agent would wait before it asks again, and let it wait not at all."""
    waits: list[float] = []

    def wait(self: Any, failures: int, chance: float) -> float:
        waits.append(self.backoff * 2.0 ** (failures - 1))
        return 0.0

    monkeypatch.setattr("hybridrt.agents.retrying.Retries.wait", wait)
    return waits


@pytest.fixture
def short_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a reply stall that has said something: the first piece may take long on a busy machine."""

    def patience(reply: Reply, stall_timeout: float | None) -> float | None:
        return stall_timeout if reply.text else None

    monkeypatch.setattr("hybridrt.agents.reply._patience", patience)


@pytest.mark.parametrize("header", [{"retry-after-ms": "1"}, {"retry-after": "0.001"}])
@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_busy_or_failing_endpoint_is_asked_again_as_it_says(
    code: int, header: dict[str, str]
) -> None:
    server = ModelServer(Status(code, header), Status(code, header), ANSWER)
    async with server.agent(retries=2) as agent:
        done = await agent.run("Why?")
    assert done.text == "Because."
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [429, 500])
async def test_an_endpoint_that_stays_busy_is_an_error_that_says_so(code: int) -> None:
    server = ModelServer(Status(code, AT_ONCE, "overloaded"))
    async with server.agent(retries=1) as agent:
        with pytest.raises(
            ModelError, match=r"expected scripted at http://127.* to answer, got .*overloaded"
        ) as caught:
            await agent.run("Why?")
    assert caught.value.status == code
    assert caught.value.started
    assert len(server.requests) == 2


@pytest.mark.parametrize("code", [400, 401, 404])
async def test_an_endpoint_that_refuses_is_not_asked_again(code: int) -> None:
    server = ModelServer(Status(code, message="no such model"))
    async with server.agent() as agent:
        with pytest.raises(ModelError, match="no such model") as caught:
            await agent.run("Why?")
    assert caught.value.status == code
    assert len(server.requests) == 1


async def test_the_wait_that_an_endpoint_asks_for_is_no_stall(no_waits: list[float]) -> None:
    server = ModelServer(Status(429, {"retry-after-ms": "1200"}), ANSWER)
    async with server.agent(stall_timeout=1.0) as agent:
        assert (await agent.run("Why?")).text == "Because."
    assert no_waits == []


@pytest.mark.parametrize(("own", "read"), [(3.0, 3.0), (600.0, 5.0), (None, 5.0)])
async def test_a_client_that_is_less_patient_than_the_agent_stays_so(own: float | None, read: float) -> None:
    async with AsyncOpenAI(api_key="x", timeout=own) as client:
        found = _timeout(client, 5.0)
    assert (found.connect, found.read) == (own, read)


async def test_a_client_may_have_a_timeout_of_httpx() -> None:
    httpx = pytest.importorskip("httpx")
    async with AsyncOpenAI(api_key="x", timeout=httpx.Timeout(3.0, connect=1.0)) as client:
        found = _timeout(client, 5.0)
    assert (found.connect, found.read) == (1.0, 3.0)


async def test_an_endpoint_that_does_not_answer_is_asked_again_by_the_client_alone(
    no_waits: list[float],
) -> None:
    asked = 0

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Agent(f"http://127.0.0.1:{port}", "m", retries=1) as agent:
        with pytest.raises(ModelError) as caught:
            await agent.run("Why?")
    assert caught.value.status is None
    assert (asked, no_waits) == (2, [])


BREAKS: dict[str, list[Any]] = {
    "reset": [CUT],
    "ends before its end": [END],
    "says it is done before its end": [],
    "no JSON": ["{broken json"],
    "an error": ['{"error": {"message": "overloaded"}}'],
    "stalls": [STALL],
}


@pytest.mark.parametrize("last", BREAKS.values(), ids=BREAKS.keys())
@pytest.mark.parametrize(
    "first", [[], [call("never", '{"query": ', index=0)]], ids=["nothing came", "part of a tool call came"]
)
async def test_a_reply_that_breaks_off_before_it_says_anything_is_asked_for_again(
    first: list[Json], last: list[Any], no_waits: list[float]
) -> None:
    server = ModelServer([*first, *last], ANSWER)
    stall_timeout = 0.05 if last == [STALL] else None
    async with server.agent(never, stall_timeout=stall_timeout) as agent:
        while True:
            try:
                done = await agent.run("Why?")
            except ModelError:
                assert stall_timeout  # a machine so busy that a good answer stalls, too
                continue
            break
    assert (done.text, done.usage.requests) == ("Because.", 1)
    # A reset may reach the client before the head of the answer; then it is the client that asks again.
    assert no_waits[:1] == [0.5] or (last == [CUT] and len(server.requests) == 2)


@pytest.mark.parametrize("last", BREAKS.values(), ids=BREAKS.keys())
async def test_a_reply_that_breaks_off_after_it_has_said_something_is_an_error(
    last: list[Any], short_stalls: None
) -> None:
    received = asyncio.Event()
    server = ModelServer([text("Be"), Wait(received), *last])
    events: list[Event] = []

    async def ask(agent: Agent) -> None:
        async for event in agent.stream("Why?"):
            events.append(event)
            received.set()

    async with server.agent(never, stall_timeout=0.05) as agent:
        with pytest.raises(ModelError, match=r"expected scripted at .* to answer, got") as caught:
            await ask(agent)
    assert events == [Text("Be")]
    assert caught.value.status is None
    assert len(server.requests) == 1


async def test_a_reply_that_always_breaks_off_is_an_error(no_waits: list[float]) -> None:
    server = ModelServer([END])
    async with server.agent(retries=2) as agent:
        with pytest.raises(ModelError, match="a stream that ended before the reply did"):
            await agent.run("Why?")
    assert len(server.requests) == 3
    assert no_waits == [0.5, 1.0]


@pytest.mark.parametrize("last", [[CUT], [END], ["{broken json"]], ids=["reset", "end", "no JSON"])
async def test_a_reply_whose_end_was_said_is_complete_whatever_comes_then(
    last: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, add = asyncio.Event(), Reply.add

    def add_and_tell(reply: Reply, chunk: Any) -> str:
        said = add(reply, chunk)
        if reply.finish_reason is not None:
            ended.set()
        return said

    monkeypatch.setattr(Reply, "add", add_and_tell)
    server = ModelServer([text("Because."), end(), Wait(ended), *last])
    async with server.agent() as agent:
        done = await agent.run("Why?")
    assert (done.text, done.reason, done.usage.uncounted) == ("Because.", "answered", 1)


async def test_an_answer_that_is_no_stream_is_told_as_what_it_is(no_waits: list[float]) -> None:
    server = ModelServer(Status(200, body={"answer": "Because."}))
    async with server.agent() as agent:
        with pytest.raises(ModelError, match="a stream of application/json that ended before the reply did"):
            await agent.run("Why?")


async def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    async with Agent("http://127.0.0.1:9/v1", "x", retries=0) as agent:
        told = r"expected x at http://127.0.0.1:9/v1/ to answer, got Cannot connect to host 127.0.0.1:9"
        with pytest.raises(ModelError, match=told):
            await agent.run("Why?")


async def test_a_client_that_waits_no_longer_is_told_with_its_own_timeout() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, AsyncOpenAI(base_url=url, api_key="x", max_retries=0, timeout=0.05) as client:
        try:
            with pytest.raises(ModelError, match=r"to answer, got nothing for 0.05 s"):
                await Agent(client, "x", retries=0).run("Why?")
        finally:
            for writer in writers:
                writer.close()


@pytest.mark.parametrize("pieces", [[STALL], [text("Be"), STALL], [call("wait", "{}"), end("tool_calls")]])
async def test_a_question_that_takes_too_long_ends_with_all_that_it_started(pieces: list[Any]) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tool")

    server = ModelServer(pieces)
    async with server.agent(wait, timeout=0.3, stall_timeout=None) as agent:
        with pytest.raises(AgentTimeoutError, match=r"within the agent's timeout of 0.3 s"):
            await agent.run("Why?")
        await server.idle()
    assert len(ended) <= 1


async def test_comments_keep_the_connection_alive_but_not_the_question(short_stalls: None) -> None:
    server = ModelServer([text("Be"), KEEP_ALIVE])
    async with server.agent(stall_timeout=0.05) as agent:
        with pytest.raises(ModelError, match=r"got nothing for 0.05 s"):
            await agent.run("Why?")
        await server.idle()


@pytest.mark.parametrize(
    "piece",
    [
        "[]",
        "7",
        '{"choices": [3]}',
        '{"choices": 1}',
        '{"usage": 5}',
        '{"choices": [{"delta": {"content": [1]}}]}',
    ],
)
async def test_a_chunk_that_is_none_of_a_chat_completion_is_an_error_that_says_so(piece: str) -> None:
    async with ModelServer([piece, end()]).agent(retries=0) as agent:
        with pytest.raises(ModelError, match="a chunk that is none of a chat completion") as raised:
            await agent.run("Why?")
    assert raised.value.__cause__ is not None
    assert str(raised.value).count(str(raised.value.__cause__.__cause__)) == 1


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource", "network_error"])
async def test_a_reply_that_the_endpoint_gave_up_is_no_answer(reason: str) -> None:
    server = ModelServer([text("Be"), end(reason)])
    async with server.agent() as agent:
        with pytest.raises(ModelError, match=f"got a reply that ended with '{reason}'"):
            await agent.run("Why?")
    assert len(server.requests) == 1


async def test_a_reply_given_up_before_it_said_anything_is_asked_for_again(no_waits: list[float]) -> None:
    server = ModelServer([end("abort")], ANSWER)
    async with server.agent() as agent:
        assert (await agent.run("Why?")).text == "Because."
    assert len(no_waits) == 1


async def test_what_was_thought_in_a_reply_that_broke_off_is_forgotten(no_waits: list[float]) -> None:
    def thinking(thought: str) -> Json:
        return {"choices": [{"index": 0, "delta": {"reasoning_content": thought}}]}

    again = [thinking("Again."), call("fly", "{}"), end("tool_calls")]
    server = ModelServer([thinking("Lost."), end("abort")], again, ANSWER)
    async with server.agent(never) as agent:
        await agent.run("Why?")
    assert server.requests[-1]["messages"][1]["reasoning_content"] == "Again."


@pytest.mark.parametrize(
    ("sent", "back"),
    [
        ('{"query": ', '{"invalid_arguments": "{\\"query\\": "}'),
        ("[1]", '{"invalid_arguments": "[1]"}'),
        (" ", "{}"),
        ('{ "query":"a"}', '{ "query":"a"}'),
    ],
)
async def test_an_endpoint_gets_arguments_back_that_it_can_read(sent: str, back: str) -> None:
    @tool
    async def search(query: str) -> str:
        """Search."""
        return query

    server = ModelServer([call("search", sent), end("tool_calls")], ANSWER)
    async with server.agent(search) as agent:
        await agent.run("Why?")
    (asked,) = server.requests[1]["messages"][1]["tool_calls"]
    assert asked["function"]["arguments"] == back


@pytest.mark.parametrize(("index", "id"), [(None, ""), (0, None), (0, "")])
async def test_calls_without_ids_that_share_an_index_are_told_apart_by_their_names(
    index: int | None, id: str | None
) -> None:
    @tool
    async def search(query: str) -> str:
        """Search."""
        return query.upper()

    pieces = [call("search", f'{{"query":"{query}"}}', index=index, id=id) for query in "ab"]
    server = ModelServer([*pieces, end("tool_calls")], ANSWER)
    async with server.agent(search) as agent:
        await agent.run("Why?")
    told = [message["content"] for message in server.requests[1]["messages"] if message["role"] == "tool"]
    assert told == ["A", "B"]


async def test_pieces_without_an_index_that_repeat_their_id_are_one_call() -> None:
    @tool
    async def search(query: str) -> str:
        """Search."""
        return query.upper()

    pieces = [
        call("search", '{"query":', index=None, id="a"),
        call(None, '"x"}', index=None, id="a"),
        call("search", '{"query":"y"}', index=None, id="b"),
    ]
    server = ModelServer([*pieces, end("tool_calls")], ANSWER)
    async with server.agent(search) as agent:
        await agent.run("Why?")
    told = [message["content"] for message in server.requests[1]["messages"] if message["role"] == "tool"]
    assert told == ["X", "Y"]
