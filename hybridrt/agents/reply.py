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

from hybridrt.agents.errors import ModelError

__all__ = ["Reply", "RequestedCall", "read_reply"]

Json = dict[str, Any]

_GRACE = 5.0
"""Seconds that a reply whose end has been said may take to say what it used; not measured."""


@dataclass(slots=True)
class RequestedCall:
    """A tool call as it comes together."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def message(self) -> Json:
        """Return it as the protocol writes it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class Reply:
    """What has come of a reply so far.

    Attributes:
        text: What the model said.
        calls: What it asks for, in order.
        finish_reason: Why it ended; None as long as it has not.
        usage: What the endpoint counted, or None.
        pieces: Pieces of text and of calls, each at least a token.
    """

    text: str = ""
    calls: list[RequestedCall] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Any = None
    pieces: int = 0
    _numbered: dict[int, RequestedCall] = field(default_factory=dict)

    def add(self, chunk: Any) -> str:
        """Take in a chunk and return the text that it brings.

        Endpoints differ: some send no list of choices with what they count, or no index or id with a call.
        """
        self.usage = getattr(chunk, "usage", None) or self.usage
        said = ""
        for choice in getattr(chunk, "choices", None) or ():
            if choice.index:  # only one was asked for
                continue
            self.finish_reason = choice.finish_reason or self.finish_reason
            delta = choice.delta
            if delta is None:
                continue
            self.pieces += 1
            for piece in delta.tool_calls or ():
                self._add_call(piece)
            said += (delta.content or "") + (getattr(delta, "refusal", None) or "")
        self.text += said
        return said

    def _add_call(self, piece: Any) -> None:
        """Add a piece of a tool call: those of one call share an index, and all but the first lack the id."""
        number = piece.index if piece.index is not None else -1
        call = self._numbered.get(number)
        if call is None or (piece.id and call.id and piece.id != call.id) or (number < 0 and piece.id):
            call = self._numbered[number] = RequestedCall()
            self.calls.append(call)
        call.id = piece.id or call.id
        if piece.function is not None:
            call.name += piece.function.name or ""
            call.arguments += piece.function.arguments or ""

    def clear(self) -> None:
        """Forget what has come: it is asked for again."""
        self.text, self.finish_reason, self.usage, self.pieces = "", None, None, 0
        self.calls.clear()
        self._numbered.clear()

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
    async with aclosing(_chunks(client, request, reply, stall_timeout)) as chunks:
        async for chunk in chunks:
            yield reply.add(chunk)
    if reply.finish_reason is None:
        raise ModelError(_told(client, request, "a stream that ended before the reply did"))


async def _chunks(
    client: AsyncOpenAI, request: Json, reply: Reply, stall_timeout: float | None
) -> AsyncGenerator[Any, None]:
    try:
        async with asyncio.timeout(_patience(reply, stall_timeout)):
            stream: Any = await client.chat.completions.create(
                **request, stream=True, stream_options={"include_usage": True}
            )
        async with stream:
            while True:
                async with asyncio.timeout(_patience(reply, stall_timeout)):
                    try:
                        chunk = await anext(stream)
                    except StopAsyncIteration:
                        return
                yield chunk
    except Exception as error:  # the client lets through what its HTTP library and its parsers raise
        if reply.finish_reason is None:
            status = error.status_code if isinstance(error, openai.APIStatusError) else None
            raise ModelError(_told(client, request, _cause(error, stall_timeout)), status=status) from error


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
    if isinstance(error, TimeoutError):
        return f"nothing for {stall_timeout} s"
    if isinstance(error, json.JSONDecodeError):
        return f"a stream that is no JSON ({error})"
    inner = error.__cause__
    told = str(error) or type(error).__name__
    return f"{told} ({inner})" if inner is not None and str(inner) else told
