"""The audit log as a service uses it: `append` from coroutines, one commit at a time in a worker thread.

Records that come while a commit runs go with the next one (group commit), so that one fsync serves many.
All state here belongs to the event loop; the writer is touched by one offloaded call at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hybridrt import offload

from .errors import AuditClosedError, AuditError, AuditFailedError
from .records import encode_body
from .recovery import Cut
from .storage import Storage
from .writer import SEGMENT_BYTES, Writer

__all__ = ["AuditLog", "Durability", "Receipt"]

Durability = Literal["strict", "fast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What `append` says.

    Attributes:
        index: Number of the record.
        hash: Its hash; None if it is not written yet.
        durable: It is on the disk.
    """

    index: int
    hash: bytes | None
    durable: bool


class _Entry:
    __slots__ = ("body", "waiter")

    def __init__(self, body: bytes, waiter: asyncio.Future[bytes] | None) -> None:
        self.body, self.waiter = body, waiter


class AuditLog:
    """An append-only log whose records form a chain.

    Use `await AuditLog.open(...)`. With "strict" `append` returns when the record is on the disk; with
    "fast" it returns when the record is queued, and a crash may lose what was queued in the last moments.

    Args:
        writer: Of the open log.
        durability: "strict" or "fast".
        batch_records: Records of one commit at most.
        batch_seconds: How long a commit waits for more records after the first one; 0 for not at all.
            Records gather anyway while the commit before runs.
        queue_max: Records that may wait for a commit; `append` waits for a place beyond it.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        durability: Durability = "strict",
        batch_records: int = 256,
        batch_seconds: float = 0.0,
        queue_max: int = 10_000,
    ) -> None:
        if durability not in ("strict", "fast"):
            raise ValueError(f'durability must be "strict" or "fast", got {durability!r}')
        if batch_records < 1 or queue_max < 1 or batch_seconds < 0:
            raise ValueError(
                "batch_records and queue_max must be at least 1 and batch_seconds at least 0, got "
                f"{batch_records}, {queue_max} and {batch_seconds}"
            )
        self.durability: Durability = durability
        self._writer, self._batch_records, self._batch_seconds = writer, batch_records, batch_seconds
        self._queue: deque[_Entry] = deque()
        self._places = asyncio.Semaphore(queue_max)
        self._next = writer.chain.count
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._closing = False
        self._failed: BaseException | None = None
        self._commit = offload(writer.commit)
        self._task = asyncio.create_task(self._run(), name="audit log")

    @classmethod
    async def open(
        cls,
        folder: Path,
        name: str = "audit",
        *,
        segment_bytes: int = SEGMENT_BYTES,
        storage: Storage | None = None,
        **options: Any,
    ) -> AuditLog:
        """Open a log or begin one; moves the remains of an interrupted write aside (see `cuts`).

        Raises:
            AuditLockedError: Another process writes to it.
            AuditBrokenError: It is damaged; `python -m examples.gateway.audit verify` says where.
        """
        writer = await offload(Writer)(folder, name, segment_bytes=segment_bytes, storage=storage)
        try:
            return cls(writer, **options)
        except BaseException:
            writer.close()
            raise

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was moved aside when the log was opened."""
        return self._writer.cuts

    @property
    def head(self) -> tuple[int, str]:
        """Number of records on the disk, and the head that stands for them, in hex. Keep it elsewhere."""
        mountains = self._writer.chain.mountains
        return mountains.count, mountains.head.hex()

    @property
    def queued(self) -> int:
        """Records that wait for a commit."""
        return len(self._queue)

    async def append(self, record: Mapping[str, Any]) -> Receipt:
        """Add a record; return when it is durable ("strict") or queued ("fast").

        Cancelled while it waits for a place, the record is not written; later it is.

        Raises:
            AuditFailedError: The log failed; the record may be on the disk or not.
            AuditClosedError: The log is closed; the record was not written.
            TypeError, ValueError: The record is no JSON object, or too long; it was not written.
        """
        body = encode_body(record)
        self._check()
        await self._places.acquire()
        try:
            self._check()
        except AuditError:
            self._places.release()
            raise
        waiter = asyncio.get_running_loop().create_future() if self.durability == "strict" else None
        index, self._next = self._next, self._next + 1
        self._queue.append(_Entry(body, waiter))
        self._arrived.set()
        if len(self._queue) >= self._batch_records:
            self._full.set()
        if waiter is None:
            return Receipt(index=index, hash=None, durable=False)
        return Receipt(index=index, hash=await waiter, durable=True)

    async def close(self) -> None:
        """Write what is queued and close the files.

        Raises:
            AuditFailedError: The log failed, now or earlier.
        """
        self._closing = True
        self._arrived.set()
        self._full.set()
        await asyncio.shield(self._task)
        if self._failed is not None:
            raise self._failure()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failure()
        if self._closing:
            raise AuditClosedError("the audit log is closed; the record was not written")

    def _failure(self) -> AuditFailedError:
        error = AuditFailedError(f"the audit log takes no more records: {self._failed}")
        error.__cause__ = self._failed
        return error

    async def _run(self) -> None:
        try:
            while await self._gather():
                await self._commit_batch()
        finally:
            self._writer.close()

    async def _gather(self) -> bool:
        """Wait for records; return False when the log is closed and nothing is queued."""
        while not self._queue:
            if self._closing:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        if self._batch_seconds and not self._closing and len(self._queue) < self._batch_records:
            self._full.clear()
            try:
                async with asyncio.timeout(self._batch_seconds):
                    await self._full.wait()
            except TimeoutError:
                pass
        return True

    async def _commit_batch(self) -> None:
        count = min(len(self._queue), self._batch_records)
        entries = [self._queue.popleft() for _ in range(count)]
        try:
            hashes = await self._commit([entry.body for entry in entries])
        except Exception as error:
            self._fail(entries, error)
        else:
            for entry, leaf in zip(entries, hashes, strict=True):
                _settle(entry, leaf)
        for _ in range(count):
            self._places.release()

    def _fail(self, entries: list[_Entry], error: Exception) -> None:
        """Take no more records; tell those that wait."""
        self._failed, self._closing = error, True
        left = [*entries, *self._queue]
        for _ in self._queue:
            self._places.release()
        self._queue.clear()
        for entry in left:
            _settle(entry, self._failure())


def _settle(entry: _Entry, outcome: bytes | Exception) -> None:
    if entry.waiter is None or entry.waiter.done():
        return
    if isinstance(outcome, bytes):
        entry.waiter.set_result(outcome)
    else:
        entry.waiter.set_exception(outcome)
