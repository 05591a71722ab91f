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

_GIVEN_UP = frozenset({"abort", "error", "insufficient_system_resource", "network_error"})
"""What endpoints say of a reply that they did not bring to its end; the last two are DeepSeek's and GLM's."""
_MEANT = {"model_length": "length", "model_context_window_exceeded": "length", "sensitive": "content_filter"}
"""Reasons that Mistral (the first) and GLM give, by the names that OpenAI gives them."""
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""What a model thinks: DeepSeek and Kimi send the first, OpenRouter the others."""
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
        reasoning: What the model thought, under the endpoint's own names.
        pieces: Pieces that brought something, each at least a token.
        opened: The endpoint has begun to answer.
        kind: As what: "text/event-stream", if it streams; empty where that is not known.
    """

    text: str = ""
    calls: RequestedCalls = field(default_factory=RequestedCalls)
    finish_reason: str | None = None
    usage: Json | None = None
    reasoning: Json = field(default_factory=dict)
    pieces: int = 0
    opened: bool = False
    kind: str = ""
    _half: str = ""

    def add(self, chunk: Json) -> str:
        """Take in a chunk and return the text that it brings.

        Endpoints differ: some send no list of choices with what they count.
        """
        self.usage = dict(chunk.get("usage") or ()) or self.usage
        said = "".join(map(self._add_choice, chunk.get("choices") or ()))
        said, self._half = _join_pairs(self._half + said)
        self.text += said
        return said

    def _add_choice(self, choice: Json) -> str:
        if choice.get("index"):  # only one was asked for
            return ""
        if reason := choice.get("finish_reason"):
            self.finish_reason = _MEANT.get(reason, reason)
        delta = choice.get("delta", choice.get("message")) or {}  # the latter where it does not stream
        self.pieces += any(value for name, value in delta.items() if name != "role")
        for piece in delta.get("tool_calls") or ():
            self.calls.add(piece)
        for name in _REASONING:
            if (thought := delta.get(name)) is not None:  # DeepSeek wants an empty one back, too
                self.reasoning[name] = _with(self.reasoning.get(name), thought)
        return _text_of(delta.get("content")) + (delta.get("refusal") or "")

    def clear(self) -> None:
        """Forget what has come: it is asked for again."""
        self.text, self.finish_reason, self.usage, self.pieces, self.opened = "", None, None, 0, False
        self.calls, self.reasoning, self._half = RequestedCalls(), {}, ""

    def complete_calls(self, first: int) -> None:
        """Give ids to calls that came without one, the first numbered so, and join what was cut in two."""
        for number, call in enumerate(self.calls, first):
            call.id = call.id or f"call_{number}"
            call.arguments = _join_pairs(call.arguments)[0]

    def message(self) -> Json:
        """Return the reply as a message of the conversation.

        What the model thought goes back with tool calls only: there some endpoints refuse to go on without.
        """
        message: Json = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [call.message() for call in self.calls]
            message |= self.thoughts()
        return message

    def thoughts(self) -> Json:
        """Return what the model thought, as the endpoint has sent it."""
        thoughts: Json = json.loads(_join_pairs(json.dumps(self.reasoning, ensure_ascii=False))[0])
        return thoughts


def _with(thought: Any, piece: Any) -> Any:
    """Return a thought with one more piece; parts with one index are one part, which is signed as a whole."""
    if not isinstance(piece, list):
        return piece if thought is None else thought + piece
    parts: list[Json] = [] if thought is None else thought
    for part in piece:
        last = parts[-1] if parts else {}
        if part.get("index") is None or any(last.get(key) != part.get(key) for key in ("type", "index")):
            parts.append(dict(part))
            continue
        for key, value in part.items():
            if value is not None:
                last[key] = (last.get(key) or "") + value if key in ("text", "summary") else value
    return parts


def _text_of(content: Any) -> str:
    """Return the text of a content; Mistral sends it in parts, those of the kind "thinking" among them."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def _join_pairs(text: str) -> tuple[str, str]:
    """Return a text with its surrogate pairs joined, and the first half of one at its end.

    Some servers cut an emoji in two. A half that stays alone becomes a replacement character, and is left out
    at the end of a reply.
    """
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    text = text.removesuffix(half)
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text, half


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
        kind = "" if reply.kind in ("", "text/event-stream") else f" of {reply.kind}"
        raise ModelError(_told(client, request, f"a stream{kind} that ended before the reply did"))
    if reply.finish_reason in _GIVEN_UP:
        raise ModelError(_told(client, request, f"a reply that ended with {reply.finish_reason!r}"))


async def _texts(
    client: AsyncOpenAI, request: Json, reply: Reply, stall_timeout: float | None
) -> AsyncGenerator[str, None]:
    try:
        stream = await open_chunks(client, request, _patience(reply, stall_timeout))
        reply.opened, reply.kind = True, _kind_of(stream)
        async with stream:
            if reply.kind == "application/json":  # of an endpoint that does not stream, or does not say so
                async with asyncio.timeout(_patience(reply, stall_timeout)):
                    body = await stream.response.aread()
                if body.lstrip().startswith(b"{"):
                    yield _added(reply, json.loads(body))
                    return
            while True:
                async with asyncio.timeout(_patience(reply, stall_timeout)):
                    try:
                        chunk = await anext(stream)
                    except StopAsyncIteration:
                        return
                yield _added(reply, as_json(chunk))
    except Exception as error:  # the client lets through what its HTTP library and its parsers raise
        if not reply.opened and isinstance(error, (TypeError, UnicodeEncodeError)):
            raise  # what was to be sent is no JSON
        if reply.finish_reason is None:
            status = error.status_code if isinstance(error, openai.APIStatusError) else None
            raise ModelError(_told(client, request, _cause(error, stall_timeout)), status=status) from error


def _added(reply: Reply, chunk: Any) -> str:
    """Return the text of a chunk that was added to its reply."""
    try:
        failure = chunk if chunk.get("object") == "error" else chunk.get("error")  # the former is vLLM's
        if failure:
            told = failure.get("message") if isinstance(failure, dict) else None
            raise ValueError(told or failure)
        return reply.add(chunk)
    except (AttributeError, TypeError) as error:
        raise ValueError("a chunk that is none of a chat completion") from error


def _kind_of(stream: Any) -> str:
    """Return the content type of a stream, which that of a tracer may not know."""
    headers = getattr(getattr(stream, "response", None), "headers", {})
    kind: str = headers.get("content-type", "")
    return kind.partition(";")[0]


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
    if isinstance(error, openai.APITimeoutError):  # with aiohttp also where there is no server, or no host
        if type(error.__cause__).__name__ == "ReadTimeout":
            return f"nothing for {error.request.extensions.get('timeout', {}).get('read')} s"
        return str(error.__cause__ or "") or str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"a stream that is no JSON ({error})"
    inner = error.__cause__
    told = str(error) or type(error).__name__
    if type(error) is openai.APIError and isinstance(error.body, str):  # which the client does not read
        told = error.body
    return f"{told} ({inner})" if inner is not None and str(inner) else told
