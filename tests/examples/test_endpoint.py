"""The extractive answerer as a server: the chat completions protocol through the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from ragkit import answerer
from ragkit.endpoint import make_app
from ragkit.endpoint_process import extractive_endpoint
from ragkit.errors import EndpointError
from ragkit.llm import choose_model, open_client
from ragkit.model import find_model, prepare_onnx

import hybridrt

from .conftest import EXAMPLES, Serve, serving

if TYPE_CHECKING:
    from ragkit.encoder import Encoder

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
    for name in ("by_meaning", "by_words")
]
QUESTION = {"role": "user", "content": "Where do foxes live?"}
FOUND = json.dumps(
    [{"id": 4, "title": "Foxes", "text": "Foxes live in dens that they dig under the ground."}]
)
USED: list[Any] = [
    QUESTION,
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "by_meaning", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": FOUND},
]
ANSWER = "Foxes live in dens that they dig under the ground. [Foxes]"


@asynccontextmanager
async def client_of(encoder: Encoder) -> AsyncIterator[Any]:
    """Serve, and connect with the official client."""
    async with hybridrt.Runtime(), serving(make_app(encoder)) as url:
        async with open_client(f"{url}/v1", None, local=True) as client:
            yield client


async def test_it_names_itself_as_what_it_is(encoder: Encoder) -> None:
    async with client_of(encoder) as client:
        assert await choose_model(client, None) == "extractive-answerer"


async def test_it_first_calls_its_tools_side_by_side(encoder: Encoder) -> None:
    async with client_of(encoder) as client:
        reply = await client.chat.completions.create(model="any", messages=[QUESTION], tools=TOOLS)
    (choice,) = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert [
        (call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls
    ] == [
        ("by_meaning", {"query": "Where do foxes live?"}),
        ("by_words", {"query": "Where do foxes live?"}),
    ]
    assert len({call.id for call in choice.message.tool_calls}) == 2


async def test_it_answers_with_a_quotation_and_its_source(encoder: Encoder) -> None:
    async with client_of(encoder) as client:
        reply = await client.chat.completions.create(model="any", messages=USED)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (ANSWER, "stop")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0


async def test_tools_it_may_not_use_it_does_not_use(encoder: Encoder) -> None:
    async with client_of(encoder) as client:
        reply = await client.chat.completions.create(
            model="any", messages=[QUESTION], tools=TOOLS, tool_choice="none"
        )
    assert reply.choices[0].message.content == answerer.NOTHING_FOUND


async def test_text_and_tool_calls_stream_in_pieces_and_usage_comes_last(encoder: Encoder) -> None:
    async with client_of(encoder) as client:
        async with client.chat.completions.stream(
            model="any", messages=USED, stream_options={"include_usage": True}
        ) as stream:
            pieces = [event.delta async for event in stream if event.type == "content.delta"]
            final = await stream.get_final_completion()
        async with client.chat.completions.stream(model="any", messages=[QUESTION], tools=TOOLS) as stream:
            message = (await stream.get_final_completion()).choices[0].message
    assert len(pieces) > 5
    assert "".join(pieces) == ANSWER
    assert final.usage.completion_tokens == 11
    assert json.loads(message.tool_calls[1].function.arguments) == {"query": "Where do foxes live?"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{nonsense", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"messages": "hello"}', 400),
        ("/v1/embeddings", b"{}", 404),
    ],
)
async def test_what_it_cannot_do_it_says_in_the_protocols_own_form(
    encoder: Encoder, path: str, body: bytes, status: int
) -> None:
    async with serving(make_app(encoder)) as url, aiohttp.ClientSession() as session:
        async with session.post(url + path, data=body) as response:
            assert response.status == status
            assert (await response.json())["error"]["message"].startswith("expected")


async def test_the_process_serves_until_its_block_ends(encoder: Encoder) -> None:
    async with extractive_endpoint(None, prepare_onnx(find_model())) as address:
        url = await address()
        async with open_client(url, None, local=True) as client:
            assert await choose_model(client, None) == answerer.NAME
    async with open_client(url, None, local=True) as client:
        with pytest.raises(EndpointError, match=r"expected an OpenAI-compatible server at"):
            await choose_model(client, None)


async def test_a_process_that_does_not_come_up_is_an_error(tmp_path: Path, encoder: Encoder) -> None:
    async with extractive_endpoint(None, tmp_path / "missing.onnx") as address:
        with pytest.raises(EndpointError, match=r"expected the extractive answerer to print its address"):
            await address()


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_the_process_does_not_outlive_a_parent_that_is_killed(encoder: Encoder) -> None:
    parent = """
import asyncio, sys
from pathlib import Path
from ragkit.endpoint_process import extractive_endpoint

async def main():
    async with extractive_endpoint(None, Path(sys.argv[1])) as address:
        print(await address(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
    command = [sys.executable, "-c", parent, str(prepare_onnx(find_model()))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent)])}
    # The child inherits our end of standard error; it closes when the last of the two processes is gone.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"http://127.0.0.1:")
        process.send_signal(signal.SIGKILL)
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("status", "content_type", "body", "told"),
    [
        (200, "text/html", "<html>hello</html>", "no list of models"),
        (200, "application/json", '{"data": []}', "to list a model, got none.*--llm-model"),
        (
            401,
            "application/json",
            '{"error": {"message": "no key"}}',
            "accept the API key, got 401.*OPENAI_API_KEY",
        ),
        (404, "application/json", '{"error": {"message": "no route"}}', "no list of models.*no route"),
    ],
)
async def test_a_server_of_another_kind_is_told_from_one_that_will_do(
    serve: Serve, status: int, content_type: str, body: str, told: str
) -> None:
    from aiohttp import web

    async def models(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type=content_type)

    async with serve({"/v1/models": models}) as url, open_client(f"{url}/v1", None, local=True) as client:
        with pytest.raises(EndpointError, match=told):
            await choose_model(client, None)


async def test_a_server_that_lists_no_models_will_do_when_one_is_named(serve: Serve) -> None:
    async with serve({}) as url, open_client(f"{url}/v1", None, local=True) as client:
        assert await choose_model(client, "mine") == "mine"


async def test_an_address_where_nobody_listens_says_what_to_do() -> None:
    async with open_client("http://127.0.0.1:9/v1", None, local=True) as client:
        with pytest.raises(
            EndpointError, match=r"expected an OpenAI-compatible server at .* got .*; start it"
        ):
            await asyncio.wait_for(choose_model(client, "mine"), 20)
