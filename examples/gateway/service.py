"""The gateway: its routes, and the hot path of a request from its key to its answer.

key -> rate -> body -> checks -> admission -> upstream -> answer          awaited
                                                          -> record      beside it (see `recording`)
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import uuid
from functools import partial

import aiohttp
from aiohttp import web

from .admission import Admission
from .checks import PATHS, Bodies, Checked, check_body
from .config import Config, serves
from .connections import GatewayServer, error_response
from .errors import GatewayError
from .exchanges import Exchange
from .forwarding import Forwarder
from .keys import ANONYMOUS, Key, Keys
from .metrics import CONTENT_TYPE, Metrics
from .recording import Recorder
from .upstreams import Upstream
from .work import Work

__all__ = ["Gateway", "open_session"]

logger = logging.getLogger("gateway")

INLINE_BYTES = 16 << 10
"""A body up to this is checked on the loop, in some 50 us; a longer one off it."""


def open_session() -> aiohttp.ClientSession:
    """Return the client for all upstreams; how many connections there are is the affair of their places."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class Gateway:
    """Answers requests. One per process; all state belongs to the event loop.

    Args:
        config: The whole configuration.
        work: Where computing steps and the background path run.
        session: See `open_session`; the caller closes it.
        upstreams: See `make_upstreams`.
        recorder: The background path; the caller drains it.
        metrics: Shared with the recorder.
    """

    def __init__(
        self,
        config: Config,
        *,
        work: Work,
        session: aiohttp.ClientSession,
        upstreams: tuple[Upstream, ...],
        recorder: Recorder,
        metrics: Metrics,
    ) -> None:
        self._config, self._work, self._recorder, self._metrics = config, work, recorder, metrics
        self._upstreams = upstreams
        self._keys = Keys(config.keys)
        self._bodies = Bodies(config.limits)
        self._admission = Admission(config.limits.exchanges_max)
        self._forwarder = Forwarder(session, upstreams, config.routing, metrics)
        self._idle = asyncio.Event()
        self._idle.set()
        self._running = 0
        self.draining = False
        self.server = GatewayServer(
            self._handle,
            connections_max=config.server.connections_max,
            idle_timeout=config.server.idle_timeout,
        )

    async def idle(self, timeout: float) -> bool:
        """Wait until no request runs; return False if some still do after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._running += 1
        self._idle.clear()
        try:
            return await self._route(request)
        except GatewayError as error:
            self._metrics.refusals.labels(error.code).inc()
            return error_response(error, close=error.status in (408, 413))
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in PATHS:
            if request.method != "POST":
                raise GatewayError(405, "method_not_allowed", "expected POST")
            return await self._forward(request, path)
        if request.method == "GET":
            if path == "/healthz":
                return web.json_response({"status": "ok"})
            if path == "/readyz":
                return self._ready()
            if path == "/metrics":
                return self._metrics_text(request)
            if path == "/v1/models":
                return self._models(self._keys.find(request.headers.get("Authorization", "")))
        raise GatewayError(404, "not_found", f"expected one of {', '.join(PATHS)}, /v1/models")

    # ------------------------------------------------------------------ the hot path

    async def _forward(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        key = self._keys.find(request.headers.get("Authorization", ""))
        if key is not None:
            key.take(asyncio.get_running_loop().time())
        self._recorder.check()
        await self._bodies.wait_for_room(self._config.routing.queue_timeout)
        body = await self._bodies.read(request)
        try:
            checked = await self._check(path, body)
            if key is not None and not serves(key.config.models, checked.model):
                raise GatewayError(403, "model_not_allowed", "this key may not use this model")
            place = await self._admission.enter(self._config.routing.queue_timeout)
        except BaseException:
            self._bodies.release(len(body))
            raise
        exchange = Exchange(
            request_id=uuid.uuid4().hex,
            key=ANONYMOUS if key is None else key.name,
            path=path,
            body=body,
            model=checked.model,
            stream=checked.stream,
            kept_max=self._config.limits.kept_max,
            hold=self._bodies.hold,
            release=partial(self._let_go, place),
        )
        return await self._exchange(request, exchange)

    def _let_go(self, place: object, size: int) -> None:
        """Count an exchange out whose record is made."""
        self._bodies.release(size)
        self._admission.leave(place)

    async def _check(self, path: str, body: bytes) -> Checked:
        if len(body) <= INLINE_BYTES:
            return check_body(path, body, self._config.limits)
        return await self._work.offload(check_body, path, body, self._config.limits)

    async def _exchange(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        """Forward, and leave a record whatever happens."""
        recorded = False

        async def commit() -> None:
            nonlocal recorded
            recorded = True
            await self._recorder.commit(exchange)

        try:
            return await self._forwarder.forward(
                request, exchange, before_end=commit if self._recorder.strict else None
            )
        except GatewayError as error:
            exchange.end(exchange.outcome, error.status)
            if self._recorder.strict:
                await commit()
            raise
        except asyncio.CancelledError:
            exchange.end("client_left", exchange.status)
            raise
        finally:
            if not recorded:
                self._recorder.submit(exchange)
            self._metrics.requests.labels(exchange.outcome, str(exchange.status)).inc()
            self._log(exchange)

    def _log(self, exchange: Exchange) -> None:
        if self._config.server.log_requests:
            logger.info(
                "%s %s key=%s upstream=%s status=%d %s bytes=%d seconds=%.3f",
                exchange.request_id,
                exchange.path,
                exchange.key,
                exchange.upstream or "-",
                exchange.status,
                exchange.outcome,
                exchange.size,
                exchange.ended - exchange.began,
            )

    # ------------------------------------------------------------------ the rest

    def _ready(self) -> web.Response:
        now = asyncio.get_running_loop().time()
        state = "draining" if self.draining else "ready"
        if not self.draining and self._recorder.strict and self._recorder.failed:
            state = "audit_failed"
        if state == "ready" and not any(each.may_take(now) for each in self._upstreams):
            state = "upstreams_down"
        return web.json_response({"status": state}, status=200 if state == "ready" else 503)

    def _metrics_text(self, request: web.BaseRequest) -> web.Response:
        """Answer this machine at once, others and what a proxy forwards only with a key."""
        if not _is_local(request):
            self._keys.find(request.headers.get("Authorization", ""))
        text = self._metrics.text(
            self._upstreams,
            self._admission,
            body_bytes=self._bodies.held,
            connections=len(self.server.connections),
        )
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    def _models(self, key: Key | None) -> web.Response:
        names = {
            model
            for upstream in self._upstreams
            for model in upstream.config.models
            if "*" not in model and (key is None or serves(key.config.models, model))
        }
        rows = [
            {"id": name, "object": "model", "created": 0, "owned_by": "gateway"} for name in sorted(names)
        ]
        return web.json_response({"object": "list", "data": rows})


def _is_local(request: web.BaseRequest) -> bool:
    if "Forwarded" in request.headers or "X-Forwarded-For" in request.headers:
        return False
    try:
        return ipaddress.ip_address(request.remote or "").is_loopback
    except ValueError:
        return False
