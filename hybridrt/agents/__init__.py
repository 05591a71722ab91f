"""Agents: functions as tools, and the loop in which a model calls them; needs the extra `agents`.

`schema` describes a function, `tools` calls it in its place (`measured` says what that took, `retrying`
when to try again), `reply` reads what a model says, `calling` runs what it asks for side by side, and
`agent` is the loop.
"""

from hybridrt.agents.agent import Agent
from hybridrt.agents.errors import AgentTimeoutError, ModelError
from hybridrt.agents.events import Done, Event, Text, ToolCall, ToolResult, Usage
from hybridrt.agents.schema import ArgumentsError
from hybridrt.agents.tools import Tool, tool

__all__ = [
    "Agent",
    "AgentTimeoutError",
    "ArgumentsError",
    "Done",
    "Event",
    "ModelError",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Usage",
    "tool",
]
