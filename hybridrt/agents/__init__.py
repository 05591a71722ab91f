"""Agents: functions as tools, and the loop in which a model calls them; needs the extra `agents`.

`schema` describes a function, `tools` calls it in its place (`measured` says what that took, `retrying`
when to try again), `reply` reads what a model says (`requested` joins the pieces of its tool calls),
`calling` runs what it asks for side by side, and `agent` is the loop. A module that only makes tools, in an
isolate too, does not import the client.
"""

from typing import TYPE_CHECKING, Any

from hybridrt.agents.errors import AgentTimeoutError, ModelError, lacks_extra
from hybridrt.agents.events import Done, Event, Text, ToolCall, ToolResult, Usage

try:
    from hybridrt.agents.schema import ArgumentsError
    from hybridrt.agents.tools import Tool, tool
except ModuleNotFoundError as error:
    raise lacks_extra(error) from error

if TYPE_CHECKING:
    from hybridrt.agents.agent import Agent

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


def __getattr__(name: str) -> Any:
    """Import the agent, and with it the client, when it is asked for."""
    if name != "Agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from hybridrt.agents.agent import Agent
    except ModuleNotFoundError as error:
        raise lacks_extra(error) from error

    globals()[name] = Agent
    return Agent
