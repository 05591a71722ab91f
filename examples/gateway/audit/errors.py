"""What can go wrong with an audit log."""

from __future__ import annotations

__all__ = ["AuditBrokenError", "AuditClosedError", "AuditError", "AuditFailedError", "AuditLockedError"]


class AuditError(Exception):
    """Of the audit log."""


class AuditClosedError(AuditError):
    """A record came after `close()`; it was not written."""


class AuditFailedError(AuditError):
    """A write or an fsync failed. The record may be on the disk or not; no further one is taken.

    A failed fsync is not tried again: the kernel may have dropped the pages it could not write, and a second
    fsync would then succeed without them. Open the log anew; that reads what is there.
    """


class AuditLockedError(AuditError):
    """Another process writes to this log."""


class AuditBrokenError(AuditError):
    """A record in the middle of the log is damaged or was changed.

    Attributes:
        index: The record, from 0.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
