"""The agent: asks a model, calls the tools that it asks for, and goes on until it answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from openai import APIConnectionError, AsyncOpenAI

from hybridrt.agents.calling import call_tools
from hybridrt.agents.connecting import Connection
from hybridrt.agents.errors import AgentTimeoutError, ModelError
from hybridrt.agents.events import Done, Event, Reason, Text, ToolCall, ToolResult, Usage
from hybridrt.agents.reply import Reply, read_reply
from hybridrt.agents.retrying import Retries
from hybridrt.agents.tools import Tool, as_tool
from hybridrt.arguments import check_count, check_seconds

__all__ = ["Agent"]

T = TypeVar("T")
Json = dict[str, Any]

_RESERVED = frozenset({"messages", "model", "n", "stream", "tool_choice", "tools"})


@dataclass(slots=True)
class _Run:
    """One question on its way to its answer.

    Attributes:
        messages: The conversation.
        deadline: When the time is up, by the loop's clock; None: never.
    """

    messages: list[Json]
    deadline: float | None
    usage: Usage = field(default_factory=Usage)
    tool_calls: int = 0

    def count(self, reply: Reply) -> None:
        """Add what a reply used."""
        usage, counted = self.usage, reply.usage or {}
        read, written = _tokens(counted, "prompt_tokens"), _tokens(counted, "completion_tokens")
        total = _tokens(counted, "total_tokens")  # at xAI and Gemini it alone has the thoughts
        self.usage = Usage(
            requests=usage.requests + 1,
            uncounted=usage.uncounted + (not any((read, written, total))),
            prompt_tokens=usage.prompt_tokens + read,
            completion_tokens=usage.completion_tokens + max(written, total - read),
        )


class Agent:
    """Lets a model call tools until it answers.

    It speaks the chat completions protocol of OpenAI with any server that does, by the official client. One
    agent answers any number of questions at once, with an address also on several event loops. The tools that
    the model asks for in one turn run side by side: plain functions off the loop, as by `offload`, coroutine
    functions on it. What a tool raises, also `OffloadTimeoutError`, is told to the model as text, and so are
    arguments that do not fit and tools that do not exist: it may do better in its next turn.

    Cancelling the task that runs or iterates cancels the request and the tools, and waits for them; see
    `offload` for what that means for a function that runs. All times are in seconds.

    Args:
        client: An `openai.AsyncOpenAI`, which stays yours to close; or the address of a server, up to `/v1`,
            for which each event loop has one made (with aiohttp as its transport), closed by `aclose` or at
            the end of the loop.
        model: The model's name there.
        tools: Tools, or functions to make them of.
        instructions: The system message. None: none.
        max_turns: Exchanges with the model for one question, at least 1. In the last it may not call tools.
        max_tokens: Tokens of one question, read and written, as the endpoint counts them. At or beyond it no
            further turn begins, and a reply that comes in more pieces than are left is cut. None: no limit.
        max_concurrent_tools: Tools of one question that run at once; the others wait in order.
        timeout: For one question. None: no limit.
        stall_timeout: Without a piece of the reply; then the stream counts as broken. None: no limit.
        retries: Tries after the first of a reply that broke off before it said anything; with an address also
            of requests that got no answer, 408, 409, 429 or 5xx (the client waits as `Retry-After` says). A
            client of yours has a `max_retries` of its own for these.
        api_key: For an address. None: `OPENAI_API_KEY` in the environment, if it is set.
        parameters: More for each request, as `{"temperature": 0}`. `{"stream_options": None}` asks for no
            usage, which some endpoints refuse to give.

    Raises:
        TypeError: A tool cannot be described, or an argument has the wrong type.
        ValueError: An argument is out of its range, or two tools have one name.
    """

    def __init__(
        self,
        client: AsyncOpenAI | str,
        model: str,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        *,
        instructions: str | None = None,
        max_turns: int = 10,
        max_tokens: int | None = None,
        max_concurrent_tools: int = 16,
        timeout: float | None = 600.0,
        stall_timeout: float | None = 120.0,
        retries: int = 2,
        api_key: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("max_turns", max_turns, least=1)
        check_count("max_tokens", max_tokens, least=1, optional=True)
        check_count("max_concurrent_tools", max_concurrent_tools, least=1)
        check_seconds("timeout", timeout, zero=False, optional=True)
        check_seconds("stall_timeout", stall_timeout, zero=False, optional=True)
        check_count("retries", retries, least=0)
        self.model = _name_of_model(model)
        self.tools = _by_name(tools)
        self.instructions = instructions
        self.max_turns = max_turns
        self.max_tokens = max_tokens
        self.max_concurrent_tools = max_concurrent_tools
        self.timeout = timeout
        self.stall_timeout = stall_timeout
        self._retries = Retries(times=retries, on=(ModelError,) if retries else (), backoff=0.5)
        self._connection = Connection(client, api_key, retries)
        self._parameters = _checked(parameters)
        self._definitions = [tool.definition() for tool in self.tools.values()]

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what this event loop has for an address; a client of yours stays open."""
        await self._connection.aclose()

    async def run(self, question: str | Sequence[Mapping[str, Any]]) -> Done:
        """Answer a question.

        Args:
            question: A text, or the messages of a conversation, the last one the user's.

        Returns:
            The last event: `text` is the answer, `reason` says whether it is one.

        Raises:
            ModelError: The endpoint refused, failed or broke off, also when tried again.
            AgentTimeoutError: `timeout` is over.
            TypeError, UnicodeEncodeError: The question is neither a text nor messages that are JSON.
            ValueError: It has no message.
        """
        done: Done | None = None
        async with aclosing(self.stream(question)) as events:
            async for event in events:
                if isinstance(event, Done):
                    done = event
        assert done is not None  # the stream ends with it, or raises
        return done

    async def stream(self, question: str | Sequence[Mapping[str, Any]]) -> AsyncGenerator[Event, None]:
        """Answer a question and yield what happens as it happens; `Done` comes last.

        A consumer that may leave early closes it, as in `async with aclosing(agent.stream(...)) as events`;
        else what runs ends when the garbage collector finds the iterator.

        Args:
            question: A text, or the messages of a conversation, the last one the user's.

        Raises:
            ModelError: The endpoint refused, failed or broke off, also when tried again.
            AgentTimeoutError: `timeout` is over.
            TypeError, UnicodeEncodeError: The question is neither a text nor messages that are JSON.
            ValueError: It has no message.
        """
        loop = asyncio.get_running_loop()
        run = _Run(_messages(question), None if self.timeout is None else loop.time() + self.timeout)
        client = await self._in_time(run, self._connection.client)
        for turn in range(1, self.max_turns + 1):
            reply = Reply()
            async with aclosing(self._ask(client, run, reply, last=turn == self.max_turns)) as texts:
                while (text := await self._in_time(run, partial(anext, texts, None))) is not None:
                    yield Text(text)
            run.count(reply)
            reply.complete_calls(sum(message.get("role") == "tool" for message in run.messages))
            reason = self._ending(run, reply, last=turn == self.max_turns)
            if reason is not None:
                yield _done(run, reply, reason, turn)
                return
            run.messages.append(reply.message())
            async with aclosing(self._call_tools(run, reply)) as events:
                while (event := await self._in_time(run, partial(anext, events, None))) is not None:
                    yield event

    def _ending(self, run: _Run, reply: Reply, *, last: bool) -> Reason | None:
        """Return why a reply is the last one; None if its tools are to be called."""
        if reply.finish_reason is None:
            return "max_tokens"  # it was cut
        if reply.finish_reason == "length":
            return "length"
        if reply.finish_reason == "content_filter":
            return "content_filter"
        if not reply.calls:
            return "answered"
        if last:
            return "max_turns"
        spent = self.max_tokens is not None and run.usage.total_tokens >= self.max_tokens
        return "max_tokens" if spent else None

    # ------------------------------------------------------------------ the model

    async def _ask(
        self, client: AsyncOpenAI, run: _Run, reply: Reply, *, last: bool
    ) -> AsyncGenerator[str, None]:
        """Yield the text of a reply; one that breaks off before it said anything is asked for again."""
        request = self._request(run, last=last)
        failures = 0
        while True:
            try:
                async with aclosing(read_reply(client, request, reply, self.stall_timeout)) as texts:
                    async for text in texts:
                        if text:
                            yield text
                        if self._is_too_long(run, reply):
                            return
                return
            except ModelError as error:
                failures += 1
                if reply.text or failures > self._retries.times or _client_has_tried(error, reply):
                    raise
                reply.clear()
            await asyncio.sleep(self._retries.wait(failures, random.random()))

    def _request(self, run: _Run, *, last: bool) -> Json:
        head = [{"role": "system", "content": self.instructions}] if self.instructions is not None else []
        request: Json = {**self._parameters, "model": self.model, "messages": [*head, *run.messages]}
        if self._definitions:
            request |= {"tools": self._definitions, "tool_choice": "none" if last else "auto"}
        return request

    def _is_too_long(self, run: _Run, reply: Reply) -> bool:
        if self.max_tokens is None or reply.finish_reason is not None:
            return False
        return run.usage.total_tokens + reply.pieces >= self.max_tokens

    # ------------------------------------------------------------------ the tools

    async def _call_tools(self, run: _Run, reply: Reply) -> AsyncGenerator[Event, None]:
        """Call what a reply asks for; the model hears of it in the order in which it asked."""
        results: dict[int, ToolResult] = {}
        for call in reply.calls:
            run.tool_calls += 1
            yield ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        async with aclosing(call_tools(self.tools, reply.calls, self.max_concurrent_tools)) as events:
            async for number, result in events:
                results[number] = result
                yield result
        for _, result in sorted(results.items()):
            run.messages.append({"role": "tool", "tool_call_id": result.id, "content": result.text})

    # ------------------------------------------------------------------ the time

    async def _in_time(self, run: _Run, make: Callable[[], Awaitable[T]]) -> T:
        """Await one step; a generator may not yield within a timeout, so each step has its own."""
        timer = asyncio.timeout_at(run.deadline)
        try:
            async with timer:
                return await make()
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise AgentTimeoutError(
                f"{self.model} did not answer within the agent's timeout of {self.timeout} s "
                f"({run.usage.requests} replies and {run.tool_calls} tool calls by then)"
            ) from error


def _tokens(counted: Json, name: str) -> int:
    """Return a count, which some endpoints send as a string; 0 for what is none."""
    try:
        return max(0, int(counted.get(name) or 0))
    except (TypeError, ValueError, OverflowError):
        return 0


def _by_name(tools: Any) -> dict[str, Tool[..., Any]]:
    if not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a list of functions, got {tools!r}; put it into one, as in [search]")
    named: dict[str, Tool[..., Any]] = {}
    for each in map(as_tool, tools):
        if each.name in named:
            raise ValueError(f"expected tools with names of their own, got two named {each.name!r}")
        named[each.name] = each
    return named


def _name_of_model(model: Any) -> str:
    if isinstance(model, str) and model:
        return model
    kind = ValueError if isinstance(model, str) else TypeError
    raise kind(f"model must be the name of a model, got {model!r}")


def _checked(parameters: Any) -> Json:
    if not isinstance(parameters, Mapping | None):
        raise TypeError(f"parameters must be a dict, as {{'temperature': 0}}, or None, got {parameters!r}")
    if taken := _RESERVED & set(parameters or ()):
        raise ValueError(
            f"parameters must leave {', '.join(sorted(taken))} to the agent; it may have anything else"
        )
    return dict(parameters or {})


def _messages(question: str | Sequence[Mapping[str, Any]]) -> list[Json]:
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    messages: Any = question
    if not isinstance(messages, Sequence) or not all(isinstance(message, Mapping) for message in messages):
        raise TypeError(
            "expected a text or a list of messages, as {'role': 'user', 'content': '...'}, "
            f"got {question!r:.200}"
        )
    if not messages:
        raise ValueError("expected a question, got an empty list of messages; the last one is the user's")
    return [dict(message) for message in messages]


def _done(run: _Run, reply: Reply, reason: Reason, turns: int) -> Done:
    """Return the end; no conversation ends with calls that have no results, or with an empty message."""
    thoughts = reply.thoughts() if run.tool_calls else {}  # which DeepSeek wants back after tools
    last = [{"role": "assistant", "content": reply.text, **thoughts}] if reply.text else []
    return Done(
        text=reply.text,
        reason=reason,
        usage=run.usage,
        turns=turns,
        tool_calls=run.tool_calls,
        messages=(*run.messages, *last),
    )


def _client_has_tried(error: ModelError, reply: Reply) -> bool:
    """Return True if the client itself has asked as often as it may: no answer came, or one with an error."""
    unanswered = not reply.opened and isinstance(error.__cause__, APIConnectionError)
    return unanswered or error.status is not None
