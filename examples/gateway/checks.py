"""Requests: reading a body within bounds, and what its JSON must be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from .config import Limits
from .errors import GatewayError

__all__ = ["PATHS", "Bodies", "Checked", "check_body"]

PATHS = {
    "/v1/chat/completions": "messages",
    "/v1/completions": "prompt",
    "/v1/embeddings": "input",
}
"""What is forwarded, and the key that each body must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the gateway needs to know of a body."""

    model: str
    stream: bool


class Bodies:
    """Reads bodies; all those held together stay below `bodies_max` bytes.

    A body counts until its record is made, and what is kept of the answer with it: a background path that
    falls behind makes requests wait, and then be refused, instead of growing.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._enough = limits.bodies_max // 2
        self._room = asyncio.Event()
        self.held = 0

    async def wait_for_room(self, timeout: float) -> None:
        """Wait until at most half of `bodies_max` is held, so that clients slow down before any is refused.

        Raises:
            GatewayError: 503, that took more than `timeout` seconds.
        """
        if self.held <= self._enough:
            return
        try:
            async with asyncio.timeout(timeout):
                while self.held > self._enough:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self._overloaded() from None

    async def read(self, request: web.BaseRequest) -> bytes:
        """Return the body. It counts as held until `release`.

        Raises:
            GatewayError: 400, 408, 413, 415 or 503; nothing is held then.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise GatewayError(415, "content_encoding", "expected a body without Content-Encoding")
        if (request.content_length or 0) > self._limits.body_max:
            raise self._too_large()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # no part of the answer
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                async for piece in request.content.iter_any():
                    size += len(piece)
                    self.held += len(piece)
                    self._check(size)
                    pieces.append(piece)
        except BaseException as error:
            self.release(size)
            if isinstance(error, TimeoutError):
                timeout = self._limits.body_timeout
                raise GatewayError(
                    408, "body_timeout", f"expected the whole body within {timeout:g} s"
                ) from None
            if isinstance(error, (GatewayError, ConnectionError)) or not isinstance(error, Exception):
                raise
            raise GatewayError(400, "bad_body", "expected a whole and well-formed body") from None
        return b"".join(pieces)

    def hold(self, size: int) -> None:
        """Count bytes in that are there already."""
        self.held += size

    def release(self, size: int) -> None:
        """Count bytes out."""
        self.held -= size
        if self.held <= self._enough:
            self._room.set()

    def _check(self, size: int) -> None:
        if size > self._limits.body_max:
            raise self._too_large()
        if self.held > self._limits.bodies_max:
            raise self._overloaded()

    def _overloaded(self) -> GatewayError:
        return GatewayError(
            503, "overloaded", "the gateway holds too many bodies; try again later", retry_after=1.0
        )

    def _too_large(self) -> GatewayError:
        return GatewayError(
            413, "body_too_large", f"expected a body of at most {self._limits.body_max:,} bytes"
        )


def check_body(path: str, body: bytes, limits: Limits) -> Checked:
    """Return what the body says, or refuse it. Pure; takes a millisecond for 200 kB.

    A key that stands twice in an object is refused: the gateway and the upstream might each take another one.

    Raises:
        GatewayError: 400, the body is no JSON object of the kind that the path wants.
    """
    value = _parse(body)
    if not isinstance(value, dict):
        raise _bad("expected a JSON object", "invalid_json")
    _check_shape(value, limits)
    model = value.get("model")
    if not isinstance(model, str) or not model or len(model) > 200 or not model.isprintable():
        raise _bad("expected model to be a text of at most 200 printable characters", "invalid_model")
    stream = value.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _bad("expected stream to be true or false", "invalid_stream")
    _check_content(PATHS[path], value)
    return Checked(model=model, stream=bool(stream))


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise _bad("the JSON is nested too deep", "too_deep") from None
    except ValueError:
        raise _bad("expected JSON in UTF-8, each key of an object once", "invalid_json") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _check_shape(value: Any, limits: Limits) -> None:
    """Refuse what is nested too deep or has too many values."""
    level: list[Any] = [value]
    depth = count = 0
    while level:
        depth += 1
        if depth > limits.depth_max:
            raise _bad(f"expected JSON nested at most {limits.depth_max} deep", "too_deep")
        below: list[Any] = []
        for each in level:
            children: Iterable[Any] = each.values() if isinstance(each, dict) else each
            count += len(each)
            below.extend(child for child in children if isinstance(child, (dict, list)))
        if count > limits.items_max:
            raise _bad(f"expected at most {limits.items_max:,} values", "too_many_values")
        level = below


def _check_content(name: str, value: Mapping[str, Any]) -> None:
    content = value.get(name)
    if name == "messages":
        if not isinstance(content, list) or not content or not all(isinstance(m, dict) for m in content):
            raise _bad("expected messages to be a list of at least one object", "invalid_messages")
    elif not isinstance(content, (str, list)) or not content:
        raise _bad(f"expected {name} to be a text or a list, and not empty", f"invalid_{name}")


def _bad(message: str, code: str) -> GatewayError:
    return GatewayError(400, code, message)
