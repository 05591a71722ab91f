"""The hot path's second half: an upstream with a place, attempts until the first byte, then the answer.

What an upstream says of itself is not passed on where it could hold the gateway's own key: its 401, 403 and
5xx become errors of the gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web

from .config import Routing, serves
from .errors import GatewayError
from .exchanges import Exchange
from .metrics import Metrics
from .relaying import relay
from .upstreams import Upstream, choose

__all__ = ["Forwarder"]

_OURS = frozenset({401, 403})
"""What an upstream says when the gateway's key is wrong; no affair of the client."""
_WAIT_MAX = 86_400.0
"""Seconds of a `Retry-After` that are passed on at most."""


class _AttemptError(Exception):
    """An attempt failed before its first byte.

    Args:
        error: What the client is told if no other attempt succeeds.
        again: The same upstream may be tried again: a connection that was kept had been closed over there.
    """

    def __init__(self, error: GatewayError, *, again: bool = False) -> None:
        super().__init__(error.code)
        self.error, self.again = error, again


class Forwarder:
    """Sends requests to upstreams and their answers back."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        upstreams: Sequence[Upstream],
        routing: Routing,
        metrics: Metrics,
    ) -> None:
        self._session, self._upstreams, self._routing, self._metrics = session, upstreams, routing, metrics

    async def forward(
        self,
        request: web.BaseRequest,
        exchange: Exchange,
        *,
        before_end: Callable[[], Awaitable[None]] | None,
    ) -> web.StreamResponse:
        """Forward a request and send its answer; see `relay` for `before_end`.

        Cancelled, the connection to the upstream is closed.

        Raises:
            GatewayError: No upstream has the model, has a place in time, or answered.
        """
        async with AsyncExitStack() as stack:
            upstream, answer, first = await self._open(stack, exchange)
            self._metrics.first_byte.observe(time.monotonic() - exchange.began)
            response = await relay(
                request,
                answer,
                first,
                exchange,
                stall_timeout=upstream.config.stall_timeout,
                before_end=before_end,
            )
            if answer.content.at_eof():
                upstream.succeed()
            elif exchange.outcome == "cut_off":
                upstream.fail(_now())
                self._metrics.failures.labels(upstream.name).inc()
            return response

    async def _open(
        self, stack: AsyncExitStack, exchange: Exchange
    ) -> tuple[Upstream, aiohttp.ClientResponse, bytes]:
        """Try upstreams until one answers; what it holds goes on `stack`.

        One that closed its connection is tried once more where there is no other: an old connection may
        have been closed over there in the moment it was used.
        """
        deadline = _now() + self._routing.queue_timeout
        tried: set[Upstream] = set()
        spare: Upstream | None = None
        last: GatewayError | None = None
        for _ in range(self._routing.attempts):
            upstream = choose(self._upstreams, exchange.model, tried, _now()) or spare
            if upstream is None:
                break
            if exchange.attempts:
                self._metrics.retries.labels(upstream.name).inc()
            exchange.attempts += 1
            exchange.upstream = upstream.name
            again = upstream not in tried
            tried.add(upstream)
            spare = None if upstream is spare else spare
            try:
                async with AsyncExitStack() as attempt:
                    await attempt.enter_async_context(upstream.place(deadline))
                    answer, first = await self._try(attempt, upstream, exchange)
                    stack.push_async_exit(attempt.pop_all())
                    return upstream, answer, first
            except _AttemptError as failure:
                last = failure.error
                spare = upstream if failure.again and again else spare
                exchange.outcome = "failed"
            except GatewayError as error:  # no place
                last = last or error
        raise last or self._nothing_open(exchange.model)

    def _nothing_open(self, model: str) -> GatewayError:
        if any(serves(each.config.models, model) for each in self._upstreams):
            return GatewayError(
                503, "upstreams_down", "no upstream for this model answers now", retry_after=1.0
            )
        return GatewayError(404, "model_not_found", "no upstream has this model; see /v1/models")

    async def _try(
        self, attempt: AsyncExitStack, upstream: Upstream, exchange: Exchange
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send the request; return the answer and its first piece."""
        if not upstream.admit(_now()):
            raise _AttemptError(self._nothing_open(exchange.model))
        config = upstream.config
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout)
        try:
            async with asyncio.timeout(config.first_byte_timeout):
                answer = await attempt.enter_async_context(
                    self._session.post(
                        upstream.base / exchange.path.removeprefix("/v1/"),
                        data=exchange.body,
                        headers={
                            "Content-Type": "application/json",
                            "X-Request-Id": exchange.request_id,
                            **upstream.headers,
                        },
                        timeout=timeout,
                        allow_redirects=False,
                    )
                )
                self._check_status(upstream, answer)
                exchange.event_stream = answer.content_type == "text/event-stream"
                first = await answer.content.readany()
        except TimeoutError:
            raise self._failure(upstream, 504, "upstream_timeout", "did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            again = isinstance(error, aiohttp.ServerDisconnectedError)
            raise self._failure(upstream, 502, "upstream_failed", "broke off", again=again) from None
        upstream.begin()
        return answer, first

    def _check_status(self, upstream: Upstream, answer: aiohttp.ClientResponse) -> None:
        """Raise for what another upstream might do better."""
        status = answer.status
        if status == 429:
            upstream.succeed()  # it is well, and busy
            wait = _seconds(answer.headers.get("Retry-After"))
            message = f"the upstream {upstream.name} takes no more requests now"
            raise _AttemptError(GatewayError(429, "upstream_rate_limit", message, retry_after=wait))
        if status in _OURS:
            raise self._failure(
                upstream, 502, "upstream_refused", "refused the gateway's key; see its key_env"
            )
        if status >= 500 or 300 <= status < 400:
            raise self._failure(upstream, 502, "upstream_error", f"answered {status}")

    def _failure(
        self, upstream: Upstream, status: int, code: str, what: str, *, again: bool = False
    ) -> _AttemptError:
        upstream.fail(_now())
        self._metrics.failures.labels(upstream.name).inc()
        return _AttemptError(GatewayError(status, code, f"the upstream {upstream.name} {what}"), again=again)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _seconds(value: str | None) -> float:
    """Return a `Retry-After` in seconds; 1.0 for a date or nonsense."""
    if value is None or not value.isascii() or not value.isdigit():
        return 1.0
    return min(float(value), _WAIT_MAX)
