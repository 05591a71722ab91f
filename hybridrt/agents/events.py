"""What happens while an agent answers, as frozen values. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hybridrt.agents.measured import Place

__all__ = ["Done", "Event", "Reason", "Text", "ToolCall", "ToolResult", "Usage"]

Reason = Literal["answered", "max_turns", "max_tokens", "length", "content_filter"]
"""Why an agent stopped: the model had answered; it still asked for tools in the last turn; the tokens of
the question were used up; the endpoint cut the reply for its length, or for its content."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of what the model says, as it comes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model asks for a tool; the calls of one turn run side by side.

    Attributes:
        id: Names the call; its `ToolResult` has the same.
        name: The tool, as the model named it.
        arguments: As the model gave them: JSON, if it made no mistake.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool call has ended; the figures are those of its last attempt.

    Attributes:
        id: Names the call.
        name: The tool, as the model named it.
        text: What the model is told: the value, as JSON if it is no str; of a failure, what went wrong.
        error: The name of the error's type; None if it succeeded.
        place: Where it ran: "loop" for a coroutine, "inline" for a function short enough for the loop,
            "thread", "isolate"; None if it did not begin.
        attempts: How often the function was tried; 0 if the arguments were refused.
        queue_wait: Until the function began: for a place among the agent's tools, for its `limit` and for a
            worker.
        wall: From its begin to its end.
        cpu: CPU time of it; None where it is not known, as of a call that its timeout left behind.
    """

    id: str
    name: str
    text: str
    error: str | None = None
    place: Place | None = None
    attempts: int = 0
    queue_wait: float = 0.0
    wall: float = 0.0
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the endpoint counted them.

    Attributes:
        requests: Exchanges with the model that came to their end.
        uncounted: Those of which the endpoint did not say what they used.
        prompt_tokens: Read by the model.
        completion_tokens: Written by it.
    """

    requests: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Both kinds together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The question is answered, or a bound is reached; always the last event.

    Attributes:
        text: What the model said in its last reply.
        reason: Why it is the end.
        usage: Tokens of all exchanges.
        turns: Exchanges with the model.
        tool_calls: Tools that were called.
        messages: The whole conversation but for the instructions; give it to the agent again, with one more
            message of the user's, to go on. If the model said nothing in its last reply, it ends before that.
    """

    text: str
    reason: Reason
    usage: Usage
    turns: int
    tool_calls: int
    messages: tuple[Mapping[str, Any], ...]


Event = Text | ToolCall | ToolResult | Done
