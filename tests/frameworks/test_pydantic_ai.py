"""pydantic-ai: function tools of an agent, asked for by a model that a test plays."""

from __future__ import annotations

from typing import Any

import pytest

from hybridrt import Runtime

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]
ai = framework("pydantic_ai")
function = framework("pydantic_ai.models.function")
messages = framework("pydantic_ai.messages")


def answer(history: list[Any], info: Any) -> Any:
    """Stand for a model: ask for the tool twice, then say what came back."""
    parts = [part for message in history for part in message.parts]
    results = [str(part.content) for part in parts if type(part) is messages.ToolReturnPart]
    if results:
        return messages.ModelResponse([messages.TextPart(f"The tools said {', '.join(results)}.")])
    return messages.ModelResponse([messages.ToolCallPart("double", {"number": n}) for n in (4, 5)])


async def test_the_tools_of_an_agent_run_on_the_runtime(sight: Sight) -> None:
    agent = ai.Agent(function.FunctionModel(answer))

    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    agent.tool_plain(double)
    sight.begin()
    async with Runtime() as runtime:
        result = await agent.run("Double 4 and 5.")
        sight.assert_offloaded(runtime.executor, double, calls=2, prefix="hybridrt")
    assert result.output == "The tools said 8, 10."
