"""The lock on the folder of a log: one process at a time writes or repairs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import AuditLockedError

__all__ = ["lock_folder"]


def lock_folder(folder: Path) -> int:
    """Return a descriptor that holds the lock until it is closed.

    Raises:
        AuditLockedError: Another one holds it.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"another process writes to the audit log in {folder}; give each its own"
        raise AuditLockedError(message) from None
    return descriptor
