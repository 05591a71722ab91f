"""LlamaIndex: function tools and workflow steps."""

from __future__ import annotations

from typing import Any

from hybridrt import AdaptiveThreadPoolExecutor

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = FOREIGN_WARNINGS
tools = framework("llama_index.core.tools")
workflow = framework("llama_index.core.workflow")

StartEvent: Any = workflow.StartEvent
StopEvent: Any = workflow.StopEvent
Workflow: Any = workflow.Workflow


async def test_a_function_tool_runs_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    sight.begin()
    output = await tools.FunctionTool.from_defaults(double).acall(number=4)
    assert output.raw_output == 8
    sight.assert_offloaded(executor, double)


async def test_a_step_of_a_workflow_runs_on_the_executor(
    executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    class Doubling(Workflow):  # type: ignore[misc]  # the base is known at run time alone
        @workflow.step  # type: ignore[untyped-decorator]
        def double(self, event: StartEvent) -> StopEvent:
            sight.look()
            return StopEvent(result=2 * event.number)

    sight.begin()
    assert await Doubling().run(number=4) == 8
    sight.assert_offloaded(executor, Doubling.double)
