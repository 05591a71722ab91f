"""The background path: an exchange is counted and becomes a record of the audit log.

With "strict" an answer ends when its record is on the disk; with "fast" the record is made afterwards.
Where the background path is full, "strict" makes the record in the request, which slows the clients down,
and "fast" leaves it out and counts that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

from tokenizers import Tokenizer

from hybridrt import QueueFullError

from .analysis import Analysis, analyse
from .audit import AuditError
from .config import Price
from .errors import GatewayError
from .exchanges import Exchange
from .metrics import Metrics
from .work import Work

__all__ = ["Audit", "NoAudit", "Recorder"]

logger = logging.getLogger("gateway")


class Audit(Protocol):
    """An audit log; `AuditLog` is one."""

    async def append(self, record: Mapping[str, Any]) -> Any:
        """Add a record; return when it is durable, or queued, as the log is set up.

        Raises:
            AuditError, OSError: The log has failed.
            Exception: This record cannot be written.
        """
        ...

    async def close(self) -> None:
        """Write what is queued."""
        ...


class NoAudit:
    """No log: `folder` is not set."""

    async def append(self, record: Mapping[str, Any]) -> None:
        """Keep nothing."""

    async def close(self) -> None:
        """Close nothing."""


class Recorder:
    """Counts exchanges and writes their records."""

    def __init__(
        self,
        work: Work,
        audit: Audit,
        tokenizer: Tokenizer,
        prices: Sequence[Price],
        metrics: Metrics,
        *,
        durability: Literal["strict", "fast"],
    ) -> None:
        self.strict = durability == "strict"
        self.failed = False
        self._work, self._audit, self._metrics = work, audit, metrics
        self._tokenizer, self._prices = tokenizer, tuple(prices)
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Refuse a request whose record could not be made.

        Raises:
            GatewayError: 503, "strict" and the log has failed.
        """
        if self.strict and self.failed:
            raise GatewayError(503, "audit_failed", "the audit log takes no records; restart the gateway")

    async def commit(self, exchange: Exchange) -> None:
        """Make the record and return when it is on the disk; it is made though the caller is cancelled.

        Raises:
            Exception: The record could not be made.
        """
        task = self._spawn(exchange)
        assert task is not None  # strict leaves none out
        await asyncio.shield(task)

    def submit(self, exchange: Exchange) -> None:
        """Have the record made beside the request."""
        if self._spawn(exchange) is None:
            self._metrics.records.labels("shed").inc()
            exchange.done()

    async def drain(self, timeout: float) -> None:
        """Wait for the records under way, then close the log."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        try:
            await self._audit.close()
        except Exception as error:
            logger.error("the audit log ended with %s", type(error).__name__)

    def _spawn(self, exchange: Exchange) -> asyncio.Task[None] | None:
        """Start the record; return None where "fast" leaves it out, because the background path is full."""
        try:
            task = self._work.background(self._record(exchange), name="audit record")
        except QueueFullError:
            if not self.strict:
                return None
            task = asyncio.create_task(self._record(exchange), name="audit record")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, exchange))
        return task

    def _ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        exchange.done()
        if not task.cancelled():
            task.exception()  # it was counted and logged in `_record`

    async def _record(self, exchange: Exchange) -> None:
        try:
            found = await self._work.offload(analyse, self._tokenizer, self._prices, exchange)
            self._count(found)
            await self._audit.append(_record_of(exchange, found))
        except Exception as error:
            self._metrics.records.labels("failed").inc()
            if not self.failed:
                logger.error("no audit record could be made: %s", type(error).__name__)
            # Anything else concerns this record alone, and the log takes the next one.
            self.failed |= isinstance(error, (AuditError, OSError))
            raise
        self._metrics.records.labels("written").inc()

    def _count(self, found: Analysis) -> None:
        self._metrics.tokens.labels("prompt").inc(found.prompt_tokens)
        self._metrics.tokens.labels("completion").inc(found.completion_tokens)
        self._metrics.cost.inc(found.cost)
        if found.completion_tokens:
            self._metrics.entropy.observe(found.entropy)


def _record_of(exchange: Exchange, found: Analysis) -> dict[str, Any]:
    """Return the record: who, what, when, how much, and the hashes of what was said; never the texts."""
    return {
        "request_id": exchange.request_id,
        "at": round(exchange.at, 3),
        "key": exchange.key,
        "path": exchange.path,
        "model": exchange.model,
        "stream": exchange.stream,
        "upstream": exchange.upstream,
        "attempts": exchange.attempts,
        "status": exchange.status,
        "outcome": exchange.outcome,
        "seconds": round(exchange.ended - exchange.began, 6),
        "request_sha256": found.request_sha256,
        "response_sha256": found.response_sha256,
        "response_bytes": exchange.size,
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.completion_tokens,
        "usage": list(found.usage) if found.usage else None,
        "entropy": round(found.entropy, 4),
        "cost": round(found.cost, 9),
    }
