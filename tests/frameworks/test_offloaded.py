"""`@offload` functions as they are, given to frameworks as tools, nodes, routes and dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypedDict

import pytest

from hybridrt import Offloaded, Runtime, offload

from .support import FOREIGN_WARNINGS, Sight, framework
from .test_openai_agents import model

__all__ = ["model"]

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]


class State(TypedDict):
    number: int


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    """What offloaded functions run on in the running loop."""
    async with Runtime() as runtime:
        yield runtime


def assert_ran_in_a_thread(runtime: Runtime, sight: Sight, function: Offloaded[..., Any], calls: int) -> None:
    """Hold that each call ran on a thread of the runtime, in the task's context, and once."""
    assert sight.requests == ["of the task"] * calls
    assert sight.threads == ["hybridrt"] * calls
    booked = {profile.name: profile.calls for profile in runtime.statistics().functions}
    assert booked.get(f"{function.__module__}:{function.__qualname__}") == calls, booked


async def test_langchain_takes_an_offloaded_function_as_a_tool(runtime: Runtime, sight: Sight) -> None:
    @offload
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    sight.begin()
    tool = framework("langchain_core.tools").tool(double)
    assert (tool.name, tool.description) == ("double", "Double a number.")
    assert tool.args["number"]["type"] == "integer"
    assert await tool.ainvoke({"number": 4}) == 8
    assert_ran_in_a_thread(runtime, sight, double, 1)


async def test_langchain_takes_an_offloaded_method_as_a_tool(runtime: Runtime, sight: Sight) -> None:
    class Shop:
        @offload
        def price(self, article: str) -> int:
            """Price of an article."""
            sight.look()
            return len(article)

    sight.begin()
    tool = framework("langchain_core.tools").StructuredTool.from_function(coroutine=Shop().price)
    assert list(tool.args) == ["article"]
    assert await tool.ainvoke({"article": "tea"}) == 3
    assert_ran_in_a_thread(runtime, sight, Shop.price, 1)


async def test_langchain_takes_an_offloaded_function_as_a_step_of_a_chain(
    runtime: Runtime, sight: Sight
) -> None:
    @offload
    def shout(text: str) -> str:
        sight.look()
        return text.upper()

    runnables = framework("langchain_core.runnables")
    sight.begin()
    chain = runnables.RunnablePassthrough() | shout
    assert await chain.ainvoke("tea") == "TEA"
    assert_ran_in_a_thread(runtime, sight, shout, 1)


async def test_langgraph_takes_offloaded_functions_as_a_node_and_an_edge(
    runtime: Runtime, sight: Sight
) -> None:
    @offload
    def increment(state: State) -> State:
        sight.look()
        return {"number": state["number"] + 1}

    @offload
    def again(state: State) -> str:
        return "increment" if state["number"] < 3 else str(graphs.END)

    graphs = framework("langgraph.graph")
    graph = graphs.StateGraph(State)
    graph.add_node("increment", increment)
    graph.add_edge(graphs.START, "increment")
    graph.add_conditional_edges("increment", again)
    sight.begin()
    assert await graph.compile().ainvoke({"number": 0}) == {"number": 3}
    assert_ran_in_a_thread(runtime, sight, increment, 3)


async def test_langgraph_takes_an_offloaded_function_as_a_tool_of_a_tool_node(
    runtime: Runtime, sight: Sight
) -> None:
    @offload
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    graphs, messages = framework("langgraph.graph"), framework("langchain_core.messages")
    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("tools", framework("langgraph.prebuilt").ToolNode([double]))
    graph.add_edge(graphs.START, "tools")
    asked: list[dict[str, Any]] = [
        {"name": "double", "args": {"number": number}, "id": str(number)} for number in (4, 5)
    ]
    sight.begin()
    state = await graph.compile().ainvoke({"messages": [messages.AIMessage("", tool_calls=asked)]})
    assert [message.content for message in state["messages"][1:]] == ["8", "10"]
    assert_ran_in_a_thread(runtime, sight, double, 2)


async def test_openai_agents_takes_an_offloaded_function_as_a_tool(
    runtime: Runtime, sight: Sight, model: Any
) -> None:
    @offload
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    agents = framework("agents")
    tool = agents.function_tool(double)
    assert tool.params_json_schema["properties"]["number"]["type"] == "integer"
    sight.begin()
    agent = agents.Agent(name="calculator", model=model, tools=[tool])
    quiet = agents.RunConfig(tracing_disabled=True)
    result = await agents.Runner.run(agent, "Double 4 and 5.", run_config=quiet)
    assert result.final_output == "The tools said 8, 10."
    assert_ran_in_a_thread(runtime, sight, double, 2)


async def test_fastapi_takes_offloaded_functions_as_a_route_and_as_what_it_depends_on(
    runtime: Runtime, sight: Sight
) -> None:
    fastapi, httpx = framework("fastapi"), framework("httpx")
    application = fastapi.FastAPI()

    @offload
    def account(name: str) -> int:
        return len(name)

    @offload
    def times(by: int = 1, account: int = fastapi.Depends(account)) -> int:
        sight.look()
        return account * by

    application.get("/account")(times)
    sight.begin()
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/account", params={"name": "tea", "by": "2"})
        refused = await client.get("/account", params={"name": "tea", "by": "two"})
    assert (answer.json(), refused.status_code) == (6, 422)
    assert_ran_in_a_thread(runtime, sight, times, 1)
    booked = {profile.name.rpartition(".")[2]: profile.calls for profile in runtime.statistics().functions}
    assert booked["account"] == 2
