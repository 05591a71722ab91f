"""MCP: synchronous tools of a server that knows nothing of the runtime."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hybridrt import Runtime

from .support import FOREIGN_WARNINGS, framework

pytestmark = [FOREIGN_WARNINGS, pytest.mark.slow]
server = framework("mcp.server.mcpserver")

DEADLINE = 30.0


async def test_sixty_tools_that_wait_for_each_other_all_answer() -> None:
    barrier = threading.Barrier(60)
    tools = server.MCPServer("tools")

    @tools.tool()
    def wait() -> str:
        barrier.wait(DEADLINE)
        return "all here"

    async with Runtime() as runtime:
        answers = await asyncio.gather(*(tools.call_tool("wait", {}) for _ in range(60)))
        booked = {row.name: row.calls for row in runtime.statistics().functions}
    assert [answer.content[0].text for answer in answers] == ["all here"] * 60
    assert booked[f"{__name__}:{wait.__qualname__}"] == 60
