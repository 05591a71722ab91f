"""A tool-calling loop over any endpoint that speaks the OpenAI chat completions protocol."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import openai
from openai import AsyncOpenAI

from .errors import EndpointError
from .tools import Toolbox

__all__ = ["Agent", "AnswerText", "Event", "ToolUsed", "TurnEnded"]

_INSTRUCTIONS = (
    "Answer the question from the documents that your tools search, and from nothing else. "
    "Search first, in parallel and in different words where that helps, and read on around a passage "
    "when it is cut off. Put the title of the passage in square brackets after each statement, "
    "as in [title]. Say so when the documents do not answer."
)


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of the answer, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """A tool call with its result; the calls of one turn ran side by side."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """One exchange with the model is over; tokens are None where the endpoint counts none."""

    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


Event = AnswerText | ToolUsed | TurnEnded


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""

    def message(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class _Turn:
    """What has come of one streamed reply."""

    text: str = ""
    calls: dict[int, _Call] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Any = None

    def add_call(self, delta: Any) -> None:
        """Add a piece of a tool call; pieces of one call share an index."""
        number = delta.index if delta.index is not None else len(self.calls)
        call = self.calls.setdefault(number, _Call())
        call.id = delta.id or call.id
        if delta.function is not None:
            call.name += delta.function.name or ""
            call.arguments += delta.function.arguments or ""

    def message(self) -> dict[str, Any]:
        calls = [call.message() for call in self.calls.values()]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls}

    def ended(self) -> TurnEnded:
        usage = self.usage
        return TurnEnded(
            self.finish_reason,
            usage.prompt_tokens if usage else None,
            usage.completion_tokens if usage else None,
        )


class Agent:
    """Lets a model use tools until it answers.

    Args:
        client: Where the model is.
        model: Its name there.
        tools: What it may call.
        turns_max: Exchanges with the model; in the last one it may not call tools, so it answers.
    """

    def __init__(self, client: AsyncOpenAI, model: str, tools: Toolbox, *, turns_max: int = 6) -> None:
        if turns_max < 1:
            raise ValueError(f"turns_max must be at least 1, got {turns_max}")
        self._client = client
        self._model = model
        self._tools = tools
        self._turns_max = turns_max

    async def ask(self, question: str) -> AsyncIterator[Event]:
        """Answer one question; yields what happens as it happens.

        Raises:
            EndpointError: The endpoint failed.
        """
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": _INSTRUCTIONS},
            {"role": "user", "content": question},
        ]
        for left in reversed(range(self._turns_max)):
            turn = _Turn()
            async for text in self._stream(messages, turn, may_call=left > 0):
                yield AnswerText(text)
            yield turn.ended()
            if not turn.calls or left == 0:
                return
            messages.append(turn.message())
            for used, message in await self._use(turn.calls.values()):
                yield used
                messages.append(message)

    async def _stream(
        self, messages: list[dict[str, Any]], turn: _Turn, *, may_call: bool
    ) -> AsyncIterator[str]:
        try:
            stream = await self._client.chat.completions.create(  # type: ignore[call-overload]  # plain dicts
                model=self._model,
                messages=messages,
                tools=self._tools.schemas(),
                tool_choice="auto" if may_call else "none",
                stream=True,
                stream_options={"include_usage": True},
            )
            async with stream:
                async for chunk in stream:
                    turn.usage = chunk.usage or turn.usage
                    for choice in chunk.choices:
                        turn.finish_reason = choice.finish_reason or turn.finish_reason
                        for delta in choice.delta.tool_calls or ():
                            turn.add_call(delta)
                        if choice.delta.content:
                            turn.text += choice.delta.content
                            yield choice.delta.content
        except _stream_errors() as error:
            raise EndpointError(
                f"expected {self._model} at {self._client.base_url} to answer, got {_cause(error)}; "
                "see the endpoint's own log, or choose another with --base-url and --llm-model"
            ) from error

    async def _use(self, calls: Iterable[_Call]) -> list[tuple[ToolUsed, dict[str, Any]]]:
        """Run the calls of one turn side by side; results keep their order."""
        calls = list(calls)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._tools.call(call.name, call.arguments)) for call in calls]
        results = [task.result() for task in tasks]
        return [
            (
                ToolUsed(call.name, call.arguments, result),
                {"role": "tool", "tool_call_id": call.id, "content": result},
            )
            for call, result in zip(calls, results, strict=True)
        ]


def _stream_errors() -> tuple[type[Exception], ...]:
    """Return what reading a stream may raise.

    The client wraps errors of the request, but not those in the middle of a stream: broken JSON, and
    whatever its HTTP library, which depends on its version, says of a connection that is cut.
    """
    modules = (sys.modules.get(name) for name in ("httpx2", "httpx"))
    return (openai.OpenAIError, ValueError, *(module.HTTPError for module in modules if module is not None))


def _cause(error: Exception) -> str:
    inner = error.__cause__
    return f"{error} ({inner})" if inner is not None and str(inner) else str(error) or type(error).__name__
