"""The frameworks, each around one plain function of a user's: what a request to it is.

Each is imported only when it is the one that is measured. A model that would ask for the tool is played by
a coroutine, so that nothing but the tool leaves the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

__all__ = ["ADAPTERS", "Ask", "Tool"]

Tool = Callable[[int], int]
Ask = Callable[[], Awaitable[object]] | int
"""Makes a request; of a web framework the port that clients send theirs to."""


@asynccontextmanager
async def _langchain(tool: Tool) -> AsyncIterator[Ask]:
    from langchain_core.tools import StructuredTool

    made = StructuredTool.from_function(tool, name="tool", description="Ask a service.")
    yield lambda: made.ainvoke({"number": 4})


@asynccontextmanager
async def _langgraph(tool: Tool) -> AsyncIterator[Ask]:
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    async def model(state: MessagesState) -> dict[str, Any]:
        if len(state["messages"]) > 1:
            return {"messages": [AIMessage("done")]}
        return {"messages": [AIMessage("", tool_calls=[{"name": "tool", "args": {"number": 4}, "id": "1"}])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    made = StructuredTool.from_function(tool, name="tool", description="Ask a service.")
    graph.add_node("tools", ToolNode([made]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    compiled = graph.compile()
    yield lambda: compiled.ainvoke({"messages": [HumanMessage("ask")]})


@asynccontextmanager
async def _openai_agents(tool: Tool) -> AsyncIterator[Ask]:
    agents: Any = __import__("agents")
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    def said(text: str) -> Any:
        part = ResponseOutputText(text=text, type="output_text", annotations=[])
        return ResponseOutputMessage(
            id="1", content=[part], role="assistant", status="completed", type="message"
        )

    class Model(agents.Model):  # type: ignore[misc]  # the base is known at run time alone
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> Any:
            asked = ResponseFunctionToolCall(
                arguments='{"number": 4}', call_id="1", name="tool", type="function_call"
            )
            output = said("done") if isinstance(input, list) and len(input) > 1 else asked
            return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

        def stream_response(self, *rest: Any, **named: Any) -> Any:
            raise NotImplementedError("the benchmark does not stream")

    made = agents.function_tool(tool, name_override="tool")
    agent = agents.Agent(name="agent", model=Model(), tools=[made])
    quiet = agents.RunConfig(tracing_disabled=True)
    yield lambda: agents.Runner.run(agent, "ask", run_config=quiet)


@asynccontextmanager
async def _pydantic_ai(tool: Tool) -> AsyncIterator[Ask]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    async def model(messages: list[Any], info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("tool", {"number": 4})])

    agent = Agent(FunctionModel(model))
    agent.tool_plain(name="tool")(tool)
    yield lambda: agent.run("ask")


@asynccontextmanager
async def _llama_index(tool: Tool) -> AsyncIterator[Ask]:
    from llama_index.core.tools import FunctionTool

    made = FunctionTool.from_defaults(tool, name="tool", description="Ask a service.")
    yield lambda: made.acall(number=4)


@asynccontextmanager
async def _haystack(tool: Tool) -> AsyncIterator[Ask]:
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack.tools.from_function import create_tool_from_function

    made = create_tool_from_function(tool, name="tool", description="Ask a service.")
    yield lambda: made.invoke_async(number=4)


@asynccontextmanager
async def _mcp(tool: Tool) -> AsyncIterator[Ask]:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("tools", log_level="ERROR")
    server.add_tool(tool, name="tool")
    yield lambda: server.call_tool("tool", {"number": 4})


@asynccontextmanager
async def _uvicorn(application: Any) -> AsyncIterator[Ask]:
    import uvicorn

    config = uvicorn.Config(application, port=0, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    await serving


@asynccontextmanager
async def _fastapi(tool: Tool) -> AsyncIterator[Ask]:
    from fastapi import FastAPI

    application = FastAPI()

    @application.get("/")
    def answer() -> int:
        return tool(4)

    async with _uvicorn(application) as port:
        yield port


@asynccontextmanager
async def _starlette(tool: Tool) -> AsyncIterator[Ask]:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def answer(request: Request) -> JSONResponse:
        return JSONResponse(tool(4))

    async with _uvicorn(Starlette(routes=[Route("/", answer)])) as port:
        yield port


@asynccontextmanager
async def _aiohttp(tool: Tool) -> AsyncIterator[Ask]:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(tool, 4))

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


ADAPTERS: dict[str, Callable[[Tool], AbstractAsyncContextManager[Ask]]] = {
    "langchain": _langchain,
    "langgraph": _langgraph,
    "openai_agents": _openai_agents,
    "pydantic_ai": _pydantic_ai,
    "llama_index": _llama_index,
    "haystack": _haystack,
    "mcp": _mcp,
    "fastapi": _fastapi,
    "starlette": _starlette,
    "aiohttp": _aiohttp,
}
