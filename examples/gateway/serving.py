"""One worker: builds the parts, listens, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from hybridrt import Runtime

from .analysis import load_tokenizer
from .audit import AuditLog
from .config import Config
from .metrics import Metrics
from .recording import Audit, NoAudit, Recorder
from .service import Gateway, open_session
from .upstreams import make_upstreams
from .work import Work

__all__ = ["bind", "serve", "serving"]

logger = logging.getLogger("gateway")

_BACKLOG = 1024
_CLEAN_UP = 1.0
"""Seconds that connections have after the drain, once their requests are cancelled."""


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket bound to an address, which other processes may bind too if `shared`.

    Raises:
        OSError: The address is taken, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


@asynccontextmanager
async def serving(
    config: Config, listener: socket.socket, *, work: Work | None = None, worker: int = 0
) -> AsyncIterator[Gateway]:
    """Serve within the block; on leaving it, drain.

    Draining: `/readyz` says so, after `drain_delay` no connection is accepted, requests get `drain_timeout`
    to end, then their records are written and the log is closed.

    Args:
        config: The whole configuration.
        listener: See `bind`; closed at the end.
        work: Where the computing steps run; the loop's `Runtime` by default.
        worker: Number of this process; its audit log lies in a folder of that number.
    """
    work = Runtime.current() if work is None else work
    metrics, upstreams = Metrics(), make_upstreams(config.upstreams)
    tokenizer = await work.offload(load_tokenizer, config.tokenizer)
    recorder = Recorder(
        work,
        await _open_audit(config, worker),
        tokenizer,
        config.prices,
        metrics,
        durability=config.audit.durability,
    )
    async with open_session() as session:
        gateway = Gateway(
            config, work=work, session=session, upstreams=upstreams, recorder=recorder, metrics=metrics
        )
        runner = web.ServerRunner(gateway.server, shutdown_timeout=_CLEAN_UP)
        await runner.setup()
        site = web.SockSite(runner, listener, backlog=_BACKLOG)
        try:
            await site.start()
            yield gateway
        finally:
            await _drain(config, gateway, runner, site, recorder)


async def _open_audit(config: Config, worker: int) -> Audit:
    if not config.audit.folder:
        return NoAudit()
    name = f"worker-{worker}"
    log = await AuditLog.open(Path(config.audit.folder) / name, name, durability=config.audit.durability)
    for cut in log.cuts:
        logger.warning("the audit log of %s was cut: %s", name, cut)
    return log


async def _drain(
    config: Config, gateway: Gateway, runner: web.ServerRunner, site: web.SockSite, recorder: Recorder
) -> None:
    gateway.draining = True
    if config.server.drain_delay:
        await asyncio.sleep(config.server.drain_delay)
    await site.stop()
    gateway.server.pre_shutdown()
    if not await gateway.idle(config.server.drain_timeout):
        logger.warning("requests ran on after drain_timeout and are cancelled")
    await runner.cleanup()
    await recorder.drain(config.server.drain_timeout)


async def serve(config: Config, listener: socket.socket, *, worker: int | None = None) -> None:
    """Serve until SIGTERM, or until cancelled; print the address when ready.

    Args:
        config: The whole configuration.
        listener: See `bind`.
        worker: Number of a worker of `supervise`, which also ends with its standard input; None for a process
            of its own.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    host, port = listener.getsockname()[:2]
    number = worker or 0

    def end_with_parent() -> None:
        loop.remove_reader(sys.stdin)  # whose end would be there to be read again in each turn
        stop.set()

    async with serving(config, listener, worker=number):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGTERM, stop.set)
            if worker is not None:
                loop.add_reader(sys.stdin, end_with_parent)
        place = f"[{host}]" if ":" in host else host
        # The end of the line with it: another worker may print at the same moment.
        print(f"gateway: worker {number} listens on http://{place}:{port}\n", end="", flush=True)
        await stop.wait()
        logger.info("worker %d drains", number)
