"""The writer: appends batches of records to the last segment and begins a new one when that is full.

For one thread at a time. Knows no event loop. One failure ends it (see `AuditFailedError`); the lock on the
folder keeps a second process out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .errors import AuditClosedError, AuditFailedError
from .frames import encode_frame
from .lock import lock_folder
from .records import Chain, encode_header
from .recovery import Cut, recover
from .scan import segment_name
from .storage import Storage, SystemStorage, write_all

__all__ = ["SEGMENT_BYTES", "Writer"]

SEGMENT_BYTES = 64 << 20
"""Length from which on a segment is followed by the next one."""


class Writer:
    """A log that is open for writing.

    Args:
        folder: Where its segments lie; made if it is not there.
        name: Of the chain, for a new log.
        segment_bytes: From which length on a new segment is begun.
        storage: The operating system; another one in tests.

    Raises:
        AuditLockedError: Another process writes to it.
        AuditBrokenError: It is damaged.
        OSError: It cannot be read or made.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "audit",
        *,
        segment_bytes: int = SEGMENT_BYTES,
        storage: Storage | None = None,
    ) -> None:
        if segment_bytes < 1:
            raise ValueError(f"segment_bytes must be at least 1, got {segment_bytes}")
        self._storage = SystemStorage() if storage is None else storage
        self._folder, self._segment_bytes = folder, segment_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(folder)
        self._failed: BaseException | None = None
        self._descriptor: int | None = None
        try:
            found = recover(folder)
            self.chain: Chain = found.chain
            self.name = found.name or name
            self.cuts: tuple[Cut, ...] = found.cuts
            self._size = found.size
            if found.path is not None:
                self._descriptor = self._storage.open(found.path)
        except BaseException:
            os.close(self._lock)
            raise

    def commit(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Append records, as `encode_body` made them, and return their hashes once they are on the disk.

        After a failure some of them may be in the file.

        Raises:
            AuditFailedError: This or an earlier write failed.
            AuditClosedError: The writer is closed.
        """
        self._check()
        ahead = Chain(self.chain.count, self.chain.last, self.chain.mountains.peaks)
        frames, hashes = [], []
        for body in bodies:
            frames.append(encode_frame(ahead.encode(body)))
            hashes.append(ahead.last)
        try:
            if self._descriptor is None or self._size >= self._segment_bytes:
                self._begin_segment()
            assert self._descriptor is not None
            content = b"".join(frames)
            write_all(self._storage, self._descriptor, content)
            self._storage.sync(self._descriptor)
        except BaseException as error:
            self._failed = error
            self._close_file()
            raise self._failure() from error
        self._size += len(content)
        self.chain = ahead
        return hashes

    def close(self) -> None:
        """Close the files. What was committed is on the disk already."""
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failure() from self._failed
        if self._lock < 0:
            raise AuditClosedError(f"the audit log in {self._folder} is closed")

    def _failure(self) -> AuditFailedError:
        return AuditFailedError(f"the audit log in {self._folder} takes no more records: {self._failed}")

    def _begin_segment(self) -> None:
        """Begin the next segment; its header is on the disk before the first record is written."""
        path = self._folder / segment_name(self.chain.count)
        header = encode_frame(encode_header(self.chain.header(self.name)))
        self._close_file()
        self._descriptor = self._storage.create(path)
        write_all(self._storage, self._descriptor, header)
        self._storage.sync(self._descriptor)
        self._storage.sync_folder(self._folder)
        self._size = len(header)

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._storage.close(descriptor)
