"""Connections of clients: how many there may be, and errors in the protocol that repeat nothing of a request.

aiohttp answers a request it cannot parse with the bytes it could not parse, and logs them. A header of such
a request may hold a key, so both are replaced here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from .errors import GatewayError

__all__ = ["GatewayServer", "error_response"]

logger = logging.getLogger("gateway")

_HEADER_BYTES = 16_384
_LINGER = 1.0
"""Seconds in which the rest of a refused body is read, so that the client sees the answer and no reset."""


def error_response(error: GatewayError, *, close: bool = False) -> web.Response:
    """Return an error as the protocol has it."""
    response = web.json_response(error.body, status=error.status, headers=error.headers)
    if close:
        response.force_close()
    return response


class Connection(web.RequestHandler):
    """One connection of a client."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that is no HTTP, or whose handler failed, without a word of it."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already; the connection is closed")
        if status < 500:
            return error_response(
                GatewayError(status, "bad_http", "expected a valid HTTP request"), close=True
            )
        logger.error("a request failed with %s", _places(exc))
        return error_response(GatewayError(status, "internal_error", "the gateway failed"), close=True)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log the kind of an error and where it rose; its text could repeat what the client sent."""
        logger.error("a connection failed with %s", _places(kw.get("exc_info")))


class GatewayServer(web.Server):
    """Accepts connections, up to a limit; a handler is cancelled when its client leaves."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        connections_max: int,
        idle_timeout: float,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._connections_max, self._idle_timeout = connections_max, idle_timeout
        self.refused = 0

    def __call__(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._idle_timeout,
            lingering_time=_LINGER,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # None is allowed: no access log
            logger=logger,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection in, or close it where there are too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._connections_max:
            self.refused += 1
            transport.abort()


def _places(error: object) -> str:
    """Return the kind of an error and the lines it came through, without its text."""
    if not isinstance(error, BaseException):
        return "an error of no kind"
    lines = []
    trace = error.__traceback__
    while trace is not None:
        lines.append(f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__} at {' > '.join(lines[-6:]) or 'no place'}"
