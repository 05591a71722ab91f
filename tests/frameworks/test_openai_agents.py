"""openai-agents: function tools, asked for by a model behind an OpenAI-compatible endpoint.

The endpoint is served by aiohttp in the same loop. It asks for the tool twice in parallel and, once
it has seen both results, answers with them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from hybridrt import AdaptiveThreadPoolExecutor

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = FOREIGN_WARNINGS
agents = framework("agents")
openai = framework("openai")


def _completion(message: dict[str, Any], reason: str) -> dict[str, Any]:
    return {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": "local",
        "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _ask_for_tool(arguments: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "double", "arguments": json.dumps(each)}}
        for n, each in enumerate(arguments)
    ]
    return _completion({"content": None, "tool_calls": calls}, "tool_calls")


async def _complete(request: web.Request) -> web.Response:
    seen = [message for message in (await request.json())["messages"] if message["role"] == "tool"]
    if not seen:
        return web.json_response(_ask_for_tool([{"number": 4}, {"number": 5}]))
    results = ", ".join(message["content"] for message in seen)
    return web.json_response(_completion({"content": f"The tools said {results}."}, "stop"))


@pytest.fixture
async def model() -> AsyncIterator[Any]:
    """A model of openai-agents on the local endpoint."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", _complete)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="none") as client:
        yield agents.OpenAIChatCompletionsModel(model="local", openai_client=client)
    await runner.cleanup()


async def test_the_tools_of_an_agent_run_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight, model: Any
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    sight.begin()
    agent = agents.Agent(name="calculator", model=model, tools=[agents.function_tool(double)])
    quiet = agents.RunConfig(tracing_disabled=True)
    result = await agents.Runner.run(agent, "Double 4 and 5.", run_config=quiet)
    assert result.final_output == "The tools said 8, 10."
    sight.assert_offloaded(executor, double, calls=2)
