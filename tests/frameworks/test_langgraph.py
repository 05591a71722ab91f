"""LangGraph: synchronous nodes, edges, tasks and tools in a graph that runs asynchronously."""

from __future__ import annotations

from typing import Any, TypedDict

from hybridrt import AdaptiveThreadPoolExecutor

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = FOREIGN_WARNINGS
graphs = framework("langgraph.graph")
prebuilt = framework("langgraph.prebuilt")
functional = framework("langgraph.func")
messages = framework("langchain_core.messages")
tools = framework("langchain_core.tools")


class State(TypedDict):
    number: int


async def test_a_node_runs_on_the_executor(executor: AdaptiveThreadPoolExecutor, sight: Sight) -> None:
    def increment(state: State) -> State:
        sight.look()
        return {"number": state["number"] + 1}

    graph = graphs.StateGraph(State)
    graph.add_node("increment", increment)
    graph.add_edge(graphs.START, "increment")
    sight.begin()
    assert await graph.compile().ainvoke({"number": 1}) == {"number": 2}
    sight.assert_offloaded(executor, increment)


async def test_a_conditional_edge_runs_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    async def increment(state: State) -> State:
        return {"number": state["number"] + 1}

    def again(state: State) -> str:
        sight.look()
        return "increment" if state["number"] < 3 else str(graphs.END)

    graph = graphs.StateGraph(State)
    graph.add_node("increment", increment)
    graph.add_edge(graphs.START, "increment")
    graph.add_conditional_edges("increment", again)
    sight.begin()
    assert await graph.compile().ainvoke({"number": 0}) == {"number": 3}
    sight.assert_offloaded(executor, again, calls=3)


async def test_the_tools_of_a_tool_node_run_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("tools", prebuilt.ToolNode([tools.tool(double)]))
    graph.add_edge(graphs.START, "tools")
    asked: list[dict[str, Any]] = [
        {"name": "double", "args": {"number": number}, "id": str(number)} for number in (4, 5)
    ]
    sight.begin()
    state = await graph.compile().ainvoke({"messages": [messages.AIMessage("", tool_calls=asked)]})
    assert [message.content for message in state["messages"][1:]] == ["8", "10"]
    sight.assert_offloaded(executor, double, calls=2)


async def test_a_task_of_a_functional_workflow_runs_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def increment(number: int) -> int:
        sight.look()
        return number + 1

    task = functional.task(increment)

    @functional.entrypoint()  # type: ignore[untyped-decorator]  # known at run time alone
    async def flow(number: int) -> int:
        return int(await task(number))

    sight.begin()
    assert await flow.ainvoke(1) == 2
    sight.assert_offloaded(executor, increment)
