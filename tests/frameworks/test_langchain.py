"""LangChain: synchronous tools and steps awaited by an asynchronous application."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = FOREIGN_WARNINGS
tools = framework("langchain_core.tools")
runnables = framework("langchain_core.runnables")
BaseTool: Any = tools.BaseTool


async def test_a_tool_runs_on_the_executor_and_is_booked_under_its_own_name(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    sight.begin()
    assert await tools.tool(double).ainvoke({"number": 4}) == 8
    sight.assert_offloaded(executor, double)


async def test_many_calls_of_a_tool_share_one_row_of_the_statistics(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    sight.begin()
    tool = tools.tool(double)
    results = await asyncio.gather(*(tool.ainvoke({"number": n}) for n in range(30)))
    assert results == [2 * n for n in range(30)]
    sight.assert_offloaded(executor, double, calls=30)


async def test_a_method_made_a_tool_is_booked_under_the_method(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    class Shop:
        def price(self, article: str) -> int:
            """Price of an article."""
            sight.look()
            return len(article)

    sight.begin()
    tool = tools.StructuredTool.from_function(Shop().price)
    assert await tool.ainvoke({"article": "tea"}) == 3
    sight.assert_offloaded(executor, Shop.price)


async def test_a_tool_of_a_class_of_the_users_is_booked_under_its_run_method(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    class Double(BaseTool):  # type: ignore[misc]  # the base is known at run time alone
        name: str = "double"
        description: str = "Double a number."

        def _run(self, number: int) -> int:
            sight.look()
            return 2 * number

    sight.begin()
    assert await Double().ainvoke({"number": 4}) == 8
    sight.assert_offloaded(executor, Double._run)


async def test_a_step_of_a_chain_runs_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def shout(text: str) -> str:
        sight.look()
        return text.upper()

    sight.begin()
    chain = runnables.RunnableLambda(shout) | runnables.RunnableLambda(shout)
    assert await chain.ainvoke("tea") == "TEA"
    sight.assert_offloaded(executor, shout, calls=2)


async def test_what_a_tool_raises_reaches_the_caller(executor: AdaptiveThreadPoolExecutor) -> None:
    def fail(number: int) -> int:
        """Fail."""
        raise LookupError(f"no {number}")

    with pytest.raises(LookupError, match="no 4"):
        await tools.tool(fail).ainvoke({"number": 4})
    (profile,) = [row for row in executor.statistics().functions if row.name.endswith("fail")]
    assert (profile.calls, profile.failed) == (1, 1)
