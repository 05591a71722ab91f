"""A LangGraph agent whose nodes and tools are plain functions, 32 questions at once.

    uv run --extra frameworks examples/langgraph_app.py
    uv run --extra frameworks examples/langgraph_app.py --plain     # on asyncio's default executor

The graph knows nothing of hybridrt: `hybridrt.run` in the last line instead of `asyncio.run` is all.
The model is a stand-in that asks for two tools and then answers, so no network is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

try:
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
except ModuleNotFoundError as error:
    message = f"expected the packages of the extra `frameworks`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra frameworks examples/langgraph_app.py`")

import hybridrt

QUESTIONS = 32
PAGE = json.dumps([{"title": f"page {n}", "words": n % 97} for n in range(2_000)])


@tool
def search(topic: str) -> str:
    """Search the web for a topic: wait for the answer, then parse it."""
    time.sleep(0.05)
    pages = json.loads(PAGE)
    return f"{len(pages)} pages on {topic}"


@tool
def count_words(topic: str) -> str:
    """Count the words of all pages on a topic: wait, parse, compute."""
    time.sleep(0.05)
    words = sum(page["words"] for page in json.loads(PAGE))
    return f"{words} words on {topic}"


def model(state: MessagesState) -> dict[str, Any]:
    """Stand for a language model: ask for both tools, then answer with what they said."""
    messages = state["messages"]
    if isinstance(messages[-1], HumanMessage):
        topic = {"topic": str(messages[-1].content)}
        calls = [{"name": each.name, "args": topic, "id": each.name} for each in (search, count_words)]
        return {"messages": [AIMessage("", tool_calls=calls)]}
    said = " and ".join(str(message.content) for message in messages[2:])
    return {"messages": [AIMessage(f"I found {said}.")]}


def build() -> Any:
    """Return the compiled graph: model, tools, model."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([search, count_words]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


async def main() -> None:
    """Ask all questions at once."""
    graph = build()
    begun = time.perf_counter()
    asked = [graph.ainvoke({"messages": [HumanMessage(f"topic {n}")]}) for n in range(QUESTIONS)]
    states = await asyncio.gather(*asked)
    print(states[-1]["messages"][-1].content)
    print(f"{len(states)} questions at once took {time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask 32 questions of an agent at once.")
    parser.add_argument("--plain", action="store_true", help="on asyncio's default executor")
    asyncio.run(main()) if parser.parse_args().plain else hybridrt.run(main())
