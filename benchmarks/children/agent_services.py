"""The candidates of the agents benchmark: what answers one question, on what threads."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import wraps
from typing import Any

from benchmarks.children import agent_work
from benchmarks.children.agent_work import TOOLS

__all__ = ["SERVICES", "Ask", "endpoints"]

Ask = Callable[[str], Awaitable[object]]
"""Answers a question."""
_WAITS = (0.3, 0.6)
"""Seconds that a tool takes which only waits: about as many questions a second as with a pure parse."""


def _client(url: str) -> Any:
    from openai import AsyncOpenAI, DefaultAioHttpClient

    return AsyncOpenAI(
        base_url=url,
        api_key="x",
        timeout=120.0,
        http_client=DefaultAioHttpClient(verify=False, trust_env=False),
    )


def _definitions() -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return [
        {
            "type": "function",
            "function": {"name": fn.__name__, "description": fn.__doc__, "parameters": parameters},
        }
        for fn in TOOLS
    ]


@asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[Ask]:
    """The loop as one writes it: a client, and the tools of a turn gathered on the default executor."""
    tools = {fn.__name__: fn for fn in TOOLS}
    definitions = _definitions()

    async def call(requested: Any) -> dict[str, Any]:
        arguments = json.loads(requested.function.arguments)
        value = await asyncio.to_thread(tools[requested.function.name], arguments["query"])
        return {"role": "tool", "tool_call_id": requested.id, "content": json.dumps(value)}

    async with _client(url) as client:

        async def ask(question: str) -> str:
            messages: list[Any] = [{"role": "user", "content": question}]
            while True:
                reply = await client.chat.completions.create(model="x", messages=messages, tools=definitions)
                message = reply.choices[0].message
                if not message.tool_calls:
                    return str(message.content)
                messages.append(message.model_dump(exclude_none=True))
                messages += await asyncio.gather(*map(call, message.tool_calls))

        yield ask


@asynccontextmanager
async def by_agent(url: str) -> AsyncIterator[Ask]:
    """hybridrt's agent on a runtime; what parses is pure."""
    from hybridrt import Agent, Runtime, tool

    tools = [tool(fn, pure=fn is agent_work.orders) for fn in TOOLS]
    async with Runtime(), _client(url) as client:
        agent = Agent(client, "x", tools)
        yield agent.run


def graph(runtime: str) -> Callable[[str], AbstractAsyncContextManager[Ask]]:
    """Return a service on LangGraph: "none", a "runtime", one with a "pure" parse, or tools that "wait"."""

    @asynccontextmanager
    async def service(url: str) -> AsyncIterator[Ask]:
        from langchain_core.messages import AIMessage, HumanMessage
        from langchain_core.tools import tool
        from langgraph.graph import END, START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode

        definitions = _definitions()
        async with _runtime(runtime), _client(url) as client:

            async def model(state: Any) -> dict[str, Any]:
                messages = [_as_openai(message) for message in state["messages"]]
                reply = await client.chat.completions.create(model="x", messages=messages, tools=definitions)
                message = reply.choices[0].message
                calls: Any = [
                    {"name": c.function.name, "args": json.loads(c.function.arguments), "id": c.id}
                    for c in message.tool_calls or ()
                ]
                return {"messages": [AIMessage(content=message.content or "", tool_calls=calls)]}

            def after(state: Any) -> str:
                return "tools" if state["messages"][-1].tool_calls else END

            builder: Any = StateGraph(MessagesState)
            builder.add_node("model", model)
            builder.add_node("tools", ToolNode([tool(fn) for fn in _work(runtime)]))
            builder.add_edge(START, "model")
            builder.add_conditional_edges("model", after)
            builder.add_edge("tools", "model")
            compiled = builder.compile()

            async def ask(question: str) -> object:
                return await compiled.ainvoke({"messages": [HumanMessage(content=question)]})

            yield ask

    return service


def _as_openai(message: Any) -> dict[str, Any]:
    if message.type == "human":
        return {"role": "user", "content": message.content}
    if message.type == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content, "tool_calls": calls}


def _waiting(fn: Callable[..., object]) -> Callable[..., object]:
    """Return a tool of that name that computes nothing: what is left is the work of the service itself."""

    @wraps(fn)
    async def wait(query: str) -> int:
        await asyncio.sleep(random.uniform(*_WAITS))
        return 1

    return wait


def _runtime(runtime: str) -> AbstractAsyncContextManager[Any]:
    if runtime in ("none", "wait"):
        return nullcontext()
    from hybridrt import Runtime

    return Runtime()


def _work(runtime: str) -> list[Callable[..., Any]]:
    """Return the tools, the one that parses offloaded as pure if that is asked for, or what only waits."""
    if runtime == "wait":
        return [_waiting(fn) for fn in TOOLS]
    if runtime != "pure":
        return list(TOOLS)
    from hybridrt import offload

    return [offload(fn, pure=True) if fn is agent_work.orders else fn for fn in TOOLS]


def endpoints(runtime: str) -> Any:
    """Return a FastAPI application with a `def` endpoint for each tool."""
    from fastapi import FastAPI

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _runtime(runtime):
            yield

    app = FastAPI(lifespan=lifespan)
    for fn, work in zip(TOOLS, _work(runtime), strict=True):
        app.get(f"/{fn.__name__}")(work)
    return app


SERVICES: Mapping[str, Callable[[str], AbstractAsyncContextManager[Ask]]] = {
    "by hand": by_hand,
    "agent": by_agent,
    "langgraph": graph("none"),
    "langgraph, runtime": graph("runtime"),
    "langgraph, pure": graph("pure"),
    "langgraph, waiting": graph("wait"),
}
