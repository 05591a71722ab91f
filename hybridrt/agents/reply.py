"""One reply of a model, read from a stream of the chat completions protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import openai
from openai import AsyncOpenAI

from hybridrt.agents.chunks import as_json, open_chunks
from hybridrt.agents.errors import ModelError
from hybridrt.agents.requested import RequestedCalls

__all__ = ["Reply", "read_reply"]

Json = dict[str, Any]

_GIVEN_UP = frozenset({"abort", "error", "insufficient_system_resource"})
"""What an endpoint says of a reply that it did not bring to its end: vLLM the first, DeepSeek the last."""
_GRACE = 5.0
"""Seconds that a reply whose end has been said may take to say what it used; not measured."""


@dataclass(slots=True)
class Reply:
    """What has come of a reply so far.

    Attributes:
        text: What the model said.
        calls: What it asks for, in order.
        finish_reason: Why it ended; None as long as it has not.
        usage: What the endpoint counted, or None.
        pieces: Pieces of text and of calls, each at least a token.
        opened: The endpoint has begun to answer.
    """

    text: str = ""
    calls: RequestedCalls = field(default_factory=RequestedCalls)
    finish_reason: str | None = None
    usage: Json | None = None
    pieces: int = 0
    opened: bool = False

    def add(self, chunk: Json) -> str:
        """Take in a chunk and return the text that it brings.

        Endpoints differ: some send no list of choices with what they count.
        """
        self.usage = dict(chunk.get("usage") or ()) or self.usage
        said = ""
        for choice in chunk.get("choices") or ():
            if choice.get("index"):  # only one was asked for
                continue
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta")
            if delta is None:
                continue
            self.pieces += 1
            for piece in delta.get("tool_calls") or ():
                self.calls.add(piece)
            said += (delta.get("content") or "") + (delta.get("refusal") or "")
        self.text += said
        return said

    def clear(self) -> None:
        """Forget what has come: it is asked for again."""
        self.text, self.finish_reason, self.usage, self.pieces, self.opened = "", None, None, 0, False
        self.calls = RequestedCalls()

    def name_calls(self, first: int) -> None:
        """Give ids to calls that came without one; the first is numbered so."""
        for number, call in enumerate(self.calls, first):
            call.id = call.id or f"call_{number}"

    def message(self) -> Json:
        """Return the reply as a message of the conversation."""
        message: Json = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [call.message() for call in self.calls]
        return message


async def read_reply(
    client: AsyncOpenAI, request: Json, reply: Reply, stall_timeout: float | None
) -> AsyncGenerator[str, None]:
    """Ask for a reply and yield the text of each piece, which may be none; `reply` is filled meanwhile.

    A reply is complete once its end was said, whatever becomes of the connection afterwards. Closing this
    before its end closes the connection.

    Args:
        client: Where the model is.
        request: What it is asked.
        reply: Takes in what comes.
        stall_timeout: Seconds without a piece after which the stream counts as broken; None: no limit.

    Raises:
        ModelError: The endpoint refused, failed or broke off.
    """
    async with aclosing(_texts(client, request, reply, stall_timeout)) as texts:
        async for text in texts:
            yield text
    if reply.finish_reason is None:
        raise ModelError(_told(client, request, "a stream that ended before the reply did"))
    if reply.finish_reason in _GIVEN_UP:
        raise ModelError(_told(client, request, f"a reply that ended with {reply.finish_reason!r}"))


async def _texts(
    client: AsyncOpenAI, request: Json, reply: Reply, stall_timeout: float | None
) -> AsyncGenerator[str, None]:
    try:
        stream = await open_chunks(client, request, _patience(reply, stall_timeout))
        reply.opened = True
        async with stream:
            while True:
                async with asyncio.timeout(_patience(reply, stall_timeout)):
                    try:
                        chunk = await anext(stream)
                    except StopAsyncIteration:
                        return
                yield _added(reply, as_json(chunk))
    except Exception as error:  # the client lets through what its HTTP library and its parsers raise
        if reply.finish_reason is None:
            status = error.status_code if isinstance(error, openai.APIStatusError) else None
            raise ModelError(_told(client, request, _cause(error, stall_timeout)), status=status) from error


def _added(reply: Reply, chunk: Any) -> str:
    """Return the text of a chunk that was added to its reply."""
    try:
        return reply.add(chunk)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"a chunk that is none of a chat completion ({error})") from error


def _patience(reply: Reply, stall_timeout: float | None) -> float | None:
    if reply.finish_reason is None:
        return stall_timeout
    return _GRACE if stall_timeout is None else min(_GRACE, stall_timeout)


def _told(client: AsyncOpenAI, request: Json, got: str) -> str:
    return (
        f"expected {request['model']} at {client.base_url} to answer, got {got}; "
        "see the log of that server, or ask another"
    )


def _cause(error: Exception, stall_timeout: float | None) -> str:
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return f"nothing for {stall_timeout} s"
    if isinstance(error, json.JSONDecodeError):
        return f"a stream that is no JSON ({error})"
    inner = error.__cause__
    told = str(error) or type(error).__name__
    return f"{told} ({inner})" if inner is not None and str(inner) else told
