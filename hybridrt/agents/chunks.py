"""The chunks of one chat completion, as the JSON that comes."""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any

import openai
from openai import AsyncOpenAI, AsyncStream

__all__ = ["as_json", "open_chunks"]

Json = dict[str, Any]

_OPTIONS = {
    "extra_headers": "headers",
    "extra_query": "params",
    "extra_body": "extra_json",
    "timeout": "timeout",
}
"""What `create` takes beside the parameters of the model, and what a request calls it."""
_PACKAGE = Path(openai.__file__).parent


async def open_chunks(client: AsyncOpenAI, request: Json, stall_timeout: float | None) -> AsyncStream[Any]:
    """Ask for a streamed completion and return its chunks.

    `chat.completions.create` tries every message against every kind that there is, and makes objects of each
    chunk, on the loop. So the request is posted as it is. Where another `create` stands in its place, as
    tracers put one there, that is called.

    Args:
        client: Where the model is.
        request: What `create` takes, without `stream`. `stream_options` asks for what was used, if it is not
            given; None leaves it out.
        stall_timeout: Seconds without an answer after which the client tries again, if it may; None: as the
            client says. Not for all of its tries, between which it waits as `Retry-After` says.

    Raises:
        openai.OpenAIError: The endpoint refused or failed.
    """
    bound = {} if stall_timeout is None else {"timeout": _timeout(client, stall_timeout)}
    body = {"stream_options": {"include_usage": True}, **bound, **request, "stream": True}
    if body["stream_options"] is None:
        del body["stream_options"]
    create: Any = client.chat.completions.create
    if _is_replaced(create):
        stream: AsyncStream[Any] = await create(**body)
        return stream
    options: Any = {name: body.pop(given) for given, name in _OPTIONS.items() if given in body}
    options["security"] = {"bearer_auth": True}
    return await client.post(
        "/chat/completions",
        body=body,
        options=options,
        cast_to=object,
        stream=True,
        stream_cls=AsyncStream[object],
    )


def _timeout(client: AsyncOpenAI, stall_timeout: float) -> openai.Timeout:
    """Return the timeout of a client, with less patience while nothing comes."""
    own: Any = client.timeout
    if not hasattr(own, "read"):  # the package httpx has a class of its own
        own = openai.Timeout(own)
    read = stall_timeout if own.read is None else min(own.read, stall_timeout)
    return openai.Timeout(connect=own.connect, read=read, write=own.write, pool=own.pool)


def _is_replaced(create: Any) -> bool:
    """Return True if a method is not the one that the package openai has written."""
    # The type itself: a wrapper may pretend to be a method, with the code of the one it wraps.
    return type(create) is not MethodType or not Path(create.__code__.co_filename).is_relative_to(_PACKAGE)


def as_json(chunk: Any) -> Any:
    """Return a chunk as JSON; one of a tracer's stream is an object."""
    return chunk.model_dump() if hasattr(chunk, "model_dump") else chunk
