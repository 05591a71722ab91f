"""haystack: components of a pipeline and tools that are plain functions, run asynchronously."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor

from .support import FOREIGN_WARNINGS, Sight, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]


@pytest.fixture(scope="module")
def haystack() -> Any:
    """The framework, which is not to report to its makers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
        return framework("haystack")


async def test_a_component_of_a_pipeline_runs_on_the_executor(
    haystack: Any, executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    class Double:
        @haystack.component.output_types(value=int)  # type: ignore[untyped-decorator]  # known at run time alone
        def run(self, value: int) -> dict[str, int]:
            sight.look()
            return {"value": 2 * value}

    pipeline = haystack.Pipeline()
    pipeline.add_component("double", haystack.component(Double)())
    sight.begin()
    assert await pipeline.run_async({"double": {"value": 4}}) == {"double": {"value": 8}}
    sight.assert_offloaded(executor, Double.run)


async def test_a_tool_runs_on_the_executor(
    haystack: Any, executor: AdaptiveThreadPoolExecutor, sight: Sight
) -> None:
    def double(number: int) -> int:
        """Double a number."""
        sight.look()
        return 2 * number

    tool = framework("haystack.tools").create_tool_from_function(double)
    sight.begin()
    results = await asyncio.gather(*(tool.invoke_async(number=n) for n in range(5)))
    assert results == [0, 2, 4, 6, 8]
    sight.assert_offloaded(executor, double, calls=5)
