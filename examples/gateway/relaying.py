"""An answer on its way to the client: piece by piece, with its end held back where a record comes first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web

from .exchanges import Exchange

__all__ = ["EndOfStream", "relay"]

END = b"data: [DONE]"
"""With this event a client stops to listen, long before the connection ends."""
_ENDS = (END, END.replace(b" ", b""))  # the space is optional

_INTERRUPTED = {"message": "the upstream broke off its answer", "type": "gateway_error", "code": "cut_off"}


class EndOfStream:
    """Holds back the last event of a stream; pure.

    What could be the beginning of that event stays here until the next piece tells.
    """

    def __init__(self) -> None:
        self.held = b""

    def push(self, piece: bytes) -> bytes:
        """Return what may be sent now."""
        whole = self.held + piece
        found = [at for at in map(whole.find, _ENDS) if at >= 0]
        at = min(found, default=len(whole) - _overlap(whole))
        self.held = whole[at:]
        return whole[:at]


def _overlap(whole: bytes) -> int:
    """Return how many of the last bytes are the first ones of an end."""
    for length in range(min(len(END) - 1, len(whole)), 0, -1):
        if any(end.startswith(whole[-length:]) for end in _ENDS):
            return length
    return 0


async def relay(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    first: bytes,
    exchange: Exchange,
    *,
    stall_timeout: float,
    before_end: Callable[[], Awaitable[None]] | None,
) -> web.StreamResponse:
    """Send an upstream's answer to the client.

    Args:
        request: Of the client.
        answer: Of the upstream, whose headers have come.
        first: Its first piece; empty if it has no body.
        exchange: Takes note of all of it.
        stall_timeout: Seconds between two pieces, and for the client to take one.
        before_end: Awaited before the client can see that the answer is complete; raises to break it off.
    """
    out = web.StreamResponse(status=answer.status, headers=_headers(answer, exchange))
    await out.prepare(request)
    try:
        await _send(out, answer, first, exchange, stall_timeout, before_end)
    except (aiohttp.ClientError, TimeoutError, OSError, _NoRecord):
        if exchange.outcome != "client_left":
            await _break_off(request, out, exchange)
    return out


class _NoRecord(Exception):
    """The record could not be made."""


async def _send(
    out: web.StreamResponse,
    answer: aiohttp.ClientResponse,
    piece: bytes,
    exchange: Exchange,
    stall_timeout: float,
    before_end: Callable[[], Awaitable[None]] | None,
) -> None:
    holds = _holder(exchange) if before_end is not None else None
    while piece:
        exchange.keep(piece)
        if sent := piece if holds is None else holds.push(piece):
            await _write(out, sent, exchange, stall_timeout)
        async with asyncio.timeout(stall_timeout):
            piece = await answer.content.readany()
    exchange.end("answered", answer.status)
    if before_end is not None and holds is not None:
        try:
            await before_end()
        except Exception as error:
            exchange.outcome = "cut_off"
            raise _NoRecord from error
        if holds.held:
            await _write(out, holds.held, exchange, stall_timeout)


class _LastPiece:
    """Holds back the newest piece: an answer that is no stream of events ends with its last byte."""

    def __init__(self) -> None:
        self.held = b""

    def push(self, piece: bytes) -> bytes:
        """Return what may be sent now."""
        sent, self.held = self.held, piece
        return sent


def _holder(exchange: Exchange) -> EndOfStream | _LastPiece:
    return EndOfStream() if exchange.event_stream else _LastPiece()


async def _write(out: web.StreamResponse, piece: bytes, exchange: Exchange, stall_timeout: float) -> None:
    try:
        async with asyncio.timeout(stall_timeout):
            await out.write(piece)
    except (TimeoutError, OSError):
        exchange.end("client_left", out.status)
        raise


async def _break_off(request: web.BaseRequest, out: web.StreamResponse, exchange: Exchange) -> None:
    """End a connection so that the client sees that the answer is not complete."""
    exchange.end("cut_off", out.status)
    if exchange.event_stream and request.transport is not None and not request.transport.is_closing():
        event = b"\n\ndata: " + json.dumps({"error": _INTERRUPTED}).encode() + b"\n\n"
        try:
            async with asyncio.timeout(1.0):
                await out.write(event)
        except (TimeoutError, OSError):
            pass
    if request.transport is not None:
        request.transport.close()


def _headers(answer: aiohttp.ClientResponse, exchange: Exchange) -> dict[str, str]:
    """Return what the client gets of an upstream's headers: no cookies, nothing about connections."""
    headers = {
        name: answer.headers[name] for name in ("Content-Type", "Content-Length") if name in answer.headers
    }
    headers["X-Request-Id"] = exchange.request_id
    if exchange.event_stream:
        headers["Cache-Control"] = "no-cache"
        headers["X-Accel-Buffering"] = "no"
    return headers
